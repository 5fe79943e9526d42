"""An evaluation on the terminal, as JSON, and as figures."""

import json

import numpy as np
import pandas as pd
import pytest

from glocal import plot
from glocal.errors import ChoiceError, StudyError
from glocal.evaluation.ranking import interval, ranking
from glocal.views.evaluation_terminal import as_json, summary
from glocal.views.plots.evaluations import evaluation_plots

NAMES, METRICS = ["good", "[bold]bad[/]", "random"], {"aopc": "higher", "sufficiency": "lower"}


def evaluation(texts=40, missing=0):
    """Of an output; "good" is best in both metrics."""
    rng = np.random.default_rng(0)
    values = rng.normal(scale=0.1, size=(2, 3, texts)) + np.array([[0.9, 0.4, 0.2], [0.1, 0.4, 0.6]])[..., None]
    values[0, 1, :missing] = np.nan
    found = ranking(values, NAMES, METRICS, seed=0)
    inverse = -values
    inverse[:, 2] = np.nan
    found["inverse"] = (("metric", "explanation", "text"), inverse)
    for name, each in zip(("inverse_mean", "inverse_low", "inverse_high"), interval(inverse, seed=0), strict=True):
        found[name] = (("metric", "explanation"), each)
    for name in ("fall_removed", "fall_kept"):
        fall = np.array([[0.5, 0.8], [0.2, 0.5], [0.1, 0.3]])
        for suffix, by in (("", 0), ("_low", -0.1), ("_high", 0.1)):
            found[name + suffix] = (("explanation", "fraction"), fall + by)
    settings = {
        "model": "a\x1b[31mmodel", "explain": "class:a", "replace": "mask", "scale": "probability", "rounding": "ceil", "special": False,
        "bins": (0.1,), "fractions": (0.25, 0.5),
    }  # fmt: skip
    return found.assign_coords(fraction=[0.25, 0.5]).assign_attrs(reference="output", settings=settings, texts=texts)


def of_layers():
    values = np.random.default_rng(0).normal(size=(2, 3, 40))
    found = ranking(values, NAMES, METRICS, seed=0).assign_coords(layer=[1, 2])
    found["by_layer"] = (("metric", "explanation", "layer"), np.zeros((2, 3, 2)))
    return found.assign_attrs(reference="head_occlusion", settings={"model": "m", "of": "head"}, texts=40)


def test_the_summary_says_every_choice_and_the_best_first():
    text = summary(evaluation())
    assert (
        "explain=class:a" in text and "replace=mask, scale=probability, rounding=ceil, special tokens stay" in text and "\x1b" not in text
    )
    rows = [line.split()[0] for line in text.splitlines() if " to " in line]
    assert rows == ["good", "[bold]bad[/]", "random"] * 2
    assert "better than 2 of 2" in text and "aopc (higher is better)" in text and "sufficiency (lower is better)" in text
    assert "undefined" not in text and "!" not in text


def test_few_texts_and_undefined_values_are_said():
    text = summary(evaluation(texts=5, missing=2))
    assert "! Fewer than 30 texts" in text and text.count("undefined in 2 texts") == 1


def test_a_metric_without_any_value_is_shown_as_such():
    assert "undefined in 40 texts" in summary(evaluation(missing=40))


def test_json_has_all_numbers_but_those_of_single_texts():
    found = json.loads(json.dumps(as_json(evaluation()), allow_nan=False))
    assert found["coordinates"]["fraction"] == [0.25, 0.5] and "layer" not in found["coordinates"]
    assert {"mean", "inverse_mean", "fall_removed"} <= set(found["values"]) and not {"value", "inverse"} & set(found["values"])
    assert found["values"]["inverse_mean"]["values"][0][2] is None


@pytest.mark.parametrize(
    ("made", "names"),
    [(evaluation, ["ranking", "tokens_removed", "tokens_kept"]), (of_layers, ["ranking", "agreement_by_layer"])],
)
def test_figures_with_their_numbers(made, names, tmp_path):
    found = made()
    assert list(evaluation_plots(found)) == names
    paths = plot(found, tmp_path, formats=["svg", "png"])
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in names for kind in ("svg", "png", "csv")]
    table = pd.read_csv(tmp_path / "ranking.csv")
    good = table[(table["explanation"] == "good") & (table["metric"] == "aopc") & (table["variable"] == "mean")]
    assert np.isclose(good["value"].item(), found["mean"].sel(metric="aopc", explanation="good"))
    again = plot(found, tmp_path / "again", formats=["svg", "png"])
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]


def test_the_best_is_drawn_on_top():
    drawn = evaluation_plots(evaluation())["ranking"]["ranking"]()
    for axes in drawn.figure.axes:
        assert [label.get_text() for label in axes.get_yticklabels()] == ["random", "[bold]bad[/]", "good"]


def test_figures_that_there_are_not(tmp_path):
    with pytest.raises(ChoiceError, match="tokens_removed"):
        plot(evaluation(), tmp_path, names=["nothing"])
    with pytest.raises(StudyError):
        plot(evaluation().drop_attrs(), tmp_path)
