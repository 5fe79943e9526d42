"""The plots of a Study: they show its numbers and nothing else, as files that are the same every time."""

import io
import subprocess
import sys
import xml.etree.ElementTree
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pandas
import pytest
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.patches import Rectangle
from PIL import Image

from glocal.errors import ChoiceError, StudyError
from glocal.views.plots.drawing import picture, thinned
from glocal.views.plots.files import plot
from glocal.views.plots.gallery import KINDS, available
from studies import make_study

KEYS = ("map", "pattern", "layer", "head", "offset", "category", "length", "level", "source_layer", "axis")


def drawn(study, *names):
    """The plots of these kinds, or all of them, by name."""
    kinds = available(study)
    return {name: draw() for kind in names or kinds for name, draw in kinds[kind].items()}


def holes(study, name="discrepancy_jsd"):
    study[name][{"layer": 0, "head": 1}] = np.nan
    return study


STUDIES = {
    "three layers": make_study,
    "one layer and head": lambda: make_study(layers=1, heads=1, texts=1),
    "many": lambda: make_study(layers=30, heads=9),
    "undefined cells": lambda: holes(make_study()),
}


@cache
def everything(kind):
    """A Study and all its plots."""
    study = STUDIES[kind]()
    return study, drawn(study)


@pytest.mark.parametrize("kind", STUDIES)
def test_every_row_of_every_table_is_a_value_of_the_study(kind):
    study, plots = everything(kind)
    for shown in plots.values():
        # Of long tables some rows from everywhere; how many there are is tested below.
        for row in shown.data.iloc[:: max(1, len(shown.data) // 50)].to_dict("records"):
            where = {key: row[key] for key in KEYS if key in row and not pandas.isna(row[key])}
            for column, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
                if suffix and f"{row['variable']}_low" not in study:
                    assert pandas.isna(row[column])
                    continue
                expected = study[f"{row['variable']}{suffix}"].sel(where)
                assert expected.dims in ((), ("head",)) and row[column] == pytest.approx(float(expected.mean()), nan_ok=True)


@pytest.mark.parametrize("kind", STUDIES)
def test_tables_leave_out_what_is_undefined_and_nothing_else(kind):
    study, plots = everything(kind)
    for shown in plots.values():
        for name, rows in shown.data.groupby("variable"):
            variable = study[name].mean("head") if "quantile" in name else study[name]
            shown_layers = variable.sel(layer=sorted(rows["layer"].unique())) if shown.name == "position_profile" else variable
            assert len(rows) == int(shown_layers.notnull().sum())


@pytest.mark.parametrize("kind", STUDIES)
def test_every_plot_can_be_drawn_and_says_what_it_is(kind):
    for shown in everything(kind)[1].values():
        assert len(picture(shown, "svg")) > 3000
        assert shown.title and shown.caption.endswith(".") and "text" in shown.caption
        labels = [text for axes in shown.figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())]
        assert any(labels) or shown.figure.get_supxlabel()


def lines(axes):
    return {line.get_label(): line.get_ydata() for line in axes.lines}


def bands(axes):
    """Lower and upper ends of every filled band at its inner points."""
    for collection in axes.collections:
        if isinstance(collection, PolyCollection) and not isinstance(collection, QuadMesh):
            x, y = collection.get_paths()[0].vertices.T
            yield [(y[x == place].min(), y[x == place].max()) for place in np.unique(x)]


@pytest.mark.parametrize("name", ["own_share", "entropy"])
def test_lines_bands_and_dots_are_where_the_numbers_are(name):
    study = make_study()
    axes = drawn(study, name)[name].figure.axes[0]
    for number, face in enumerate(("attention", "attribution")):
        mean, low, high = (study[f"{name}_over_heads{suffix}"].sel(map=face).values for suffix in ("", "_low", "_high"))
        np.testing.assert_allclose(lines(axes)[face], mean)
        np.testing.assert_allclose(list(bands(axes))[number], np.stack([low, high], -1))
        dots = [each for each in axes.collections if isinstance(each, PathCollection)][number].get_offsets()
        np.testing.assert_allclose(np.asarray(dots)[:, 1], study[name].sel(map=face).values.reshape(-1))
        assert set(np.round(dots[:, 0]).astype(int)) == {0, 1, 2}


def test_what_has_no_neighbour_has_an_error_bar():
    study = make_study(layers=3)
    study["hidden_own_share"][1] = np.nan
    axes = drawn(study, "hidden")["hidden"].figure.axes[0]
    bars = next(each for each in axes.collections if isinstance(each, LineCollection)).get_segments()
    ends = [study[f"hidden_own_share_{bound}"].values for bound in ("low", "high")]
    np.testing.assert_allclose(bars, [[[layer, ends[0][layer]], [layer, ends[1][layer]]] for layer in (0, 2)])


def test_masses_have_a_panel_per_pattern():
    study = make_study()
    axes = drawn(study, "category_mass")["category_mass"].figure.axes
    for number, pattern in enumerate(study["pattern"].values):
        for face in ("attention", "attribution"):
            expected = study["category_mass_over_heads"].sel(map=face, pattern=pattern)
            np.testing.assert_allclose(lines(axes[number])[face], expected)
    assert [each.get_title(loc="left") for each in axes[:4]] == ["own token", "previous token", "next token", "first special token"]


@pytest.mark.parametrize("name", ["discrepancy_jsd", "persistence"])
def test_heat_maps_show_heads_upwards_and_hatch_what_is_undefined(name):
    study = holes(make_study(layers=4, heads=3), name)
    axes = next(iter(drawn(study, name.removesuffix("_jsd")).values())).figure.axes[0]
    mesh = next(each for each in axes.collections if isinstance(each, QuadMesh))
    shown = np.ma.filled(mesh.get_array().reshape(3, 4).astype(float), np.nan)
    np.testing.assert_array_equal(shown, study[name].values.T)
    (hatched,) = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    assert hatched.get_xy() == (-0.5, 0.5)


def test_quantiles_are_shades_around_the_mean():
    study = make_study(layers=4)
    axes = drawn(study, "discrepancy")["discrepancy_jsd"].figure.axes[1]
    np.testing.assert_allclose(lines(axes)["mean"], study["discrepancy_jsd_over_heads"])
    levels = study["discrepancy_jsd_quantile"].mean("head").values
    for shade, (low, high) in zip(bands(axes), ((0, 1), (3, 4), (1, 3)), strict=False):
        np.testing.assert_allclose(shade, levels[[low, high]].T)


@pytest.mark.parametrize("layers", [3, 9])
def test_the_ladder_counts_the_layers_that_are_looked_through(layers):
    study = make_study(layers=layers)
    shown = drawn(study, "ladder")["ladder_jsd"]
    assert len(shown.data) == layers * (layers + 1) / 2
    assert (shown.data["depth"] == shown.data["layer"] - shown.data["source_layer"]).all()
    for line in shown.figure.axes[0].lines:
        layer = int(line.get_label().removeprefix("layer "))
        for depth, value in zip(line.get_xdata(), line.get_ydata(), strict=True):
            assert value == float(study["ladder_jsd_over_heads"].sel(layer=layer, source_layer=layer - depth))


def test_the_map_has_a_point_per_head_and_says_the_mantel_correlation():
    study = make_study(layers=4, heads=3)
    shown = drawn(study, "head_map")["head_map"]
    for axes, face in zip(shown.figure.axes, ("attention", "attribution"), strict=False):
        np.testing.assert_allclose(axes.collections[0].get_offsets(), study["head_place"].sel(map=face).values.reshape(-1, 2))
        (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
        assert x1 - x0 == pytest.approx(y1 - y0)
    assert "0.41" in shown.caption and "999 permutations" in shown.caption
    assert "Mantel" not in drawn(make_study(mantel=False), "head_map")["head_map"].caption


def test_survival_marks_what_is_beyond_chance_and_skips_patterns_of_no_head():
    study = make_study(layers=5, heads=6)
    axes = drawn(study, "survival")["survival"].figure.axes
    present = [pattern for pattern in study["pattern"].values if study["survival"].sel(pattern=pattern).notnull().any()]
    assert 0 < len(present) < 7
    for panel, pattern in zip(axes, present, strict=False):
        points = {each.get_label(): each.get_offsets() for each in panel.collections if isinstance(each, PathCollection)}
        one = study.sel(pattern=pattern)
        sure = one["survival"].values[one["survival_p"].values < 0.05]
        np.testing.assert_allclose(np.asarray(points["observed, p < 0.05"])[:, 1], sure)


def test_positions_are_in_order_also_if_the_study_is_not():
    study = make_study()
    axes = drawn(study.transpose("head", "layer", ...), "position_profile")["position_profile"].figure.axes[1]
    expected = study["position_profile_over_heads"].sel(map="attribution", layer=2)
    np.testing.assert_allclose(lines(axes)["attribution"], expected)
    many = drawn(make_study(layers=30), "position_profile")["position_profile"]
    assert sorted(many.data["layer"].unique())[0::11] == [1, 30] and "12 of 30 layers" in many.caption


def test_length_legends_say_how_many_texts_and_leave_out_lengths_without_any():
    study = make_study(texts=1234)
    shown = drawn(study, "discrepancy_by_length")["discrepancy_jsd_by_length"]
    labels = [line.get_label() for line in shown.figure.axes[0].lines]
    assert labels[0] == "1-8 tokens (n = 1,234)" and len(labels) == 5
    assert "1,234 texts" in shown.caption


def test_captions_say_where_values_come_from_fewer_texts():
    study = make_study()
    study["category_mass_over_heads_count"][{"layer": 0}] = 12
    assert "12 to 40 texts" in drawn(study, "category_mass")["category_mass"].caption


def test_hidden_vectors_have_a_panel_each():
    study = make_study()
    shown = drawn(study, "hidden")["hidden"]
    for axes, name in zip(shown.figure.axes, ("hidden_own_share", "hidden_other_largest"), strict=True):
        np.testing.assert_allclose(axes.lines[0].get_ydata(), study[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_plot_without_its_variables_is_left_out_alone(kind):
    study = make_study()
    for need in KINDS[kind].needs:
        # Other plots may share the variable; what measures are there is read from the first of them.
        sharing = {other for other in KINDS if need in KINDS[other].needs}
        if kind == "discrepancy":
            sharing |= {other for other in KINDS if KINDS[other].of_measures}
        assert set(available(study.drop_vars(need.format("jsd")))) == set(KINDS) - sharing
        undefined = study.copy(deep=True)
        undefined[need.format("jsd")] = np.nan * undefined[need.format("jsd")]
        assert kind not in available(undefined)


def test_every_measure_has_its_own_plots():
    study = make_study(measures=("jsd", "cosine"))
    assert list(available(study)["ladder"]) == ["ladder_jsd", "ladder_cosine"]
    shown = drawn(study, "discrepancy")
    assert "larger is more alike" in shown["discrepancy_cosine"].caption
    assert shown["discrepancy_jsd"].figure.axes[1].get_ylabel() == "Jensen-Shannon\ndivergence (nats)"


def test_names_are_texts_not_formulas():
    study = make_study(measures=("a$x^$",))
    picture(drawn(study, "discrepancy")["discrepancy_a$x^$"], "svg")


def test_files_hold_pictures_and_tables(tmp_path):
    study = make_study()
    paths = plot(study, tmp_path / "new" / "plots", names=["own_share", "discrepancy"])
    stems = ("discrepancy_jsd", "own_share")
    assert sorted(path.name for path in paths) == sorted(f"{stem}.{kind}" for stem in stems for kind in ("pdf", "svg", "png", "csv"))
    assert sorted(path.name for path in (tmp_path / "new" / "plots").iterdir()) == sorted(path.name for path in paths)
    for path in paths:
        content = path.read_bytes()
        if path.suffix == ".pdf":
            assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
        elif path.suffix == ".svg":
            assert xml.etree.ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
        elif path.suffix == ".png":
            with Image.open(io.BytesIO(content)) as image:
                image.load()
                assert image.width == 1020  # 3.4 inches, 300 dots each
        else:
            table = drawn(study, "discrepancy", "own_share")[path.stem].data
            read = pandas.read_csv(path)
            assert list(read) == list(table)
            np.testing.assert_array_equal(read["value"], table["value"])
            np.testing.assert_array_equal(read["layer"], table["layer"].astype(int))


def test_every_plot_is_written_unless_names_are_given(tmp_path):
    study = make_study(measures=("jsd", "cosine"))
    every = [name for kind in available(study).values() for name in kind]
    assert {path.stem for path in plot(study, tmp_path / "all", formats="svg")} == set(every)
    assert [path.name for path in plot(study, tmp_path / "one", formats=["svg"], names="ladder_cosine")] == [
        "ladder_cosine.svg",
        "ladder_cosine.csv",
    ]


def test_the_same_study_gives_the_same_bytes_whatever_the_user_has_set(tmp_path):
    names = ["discrepancy", "head_map"]
    first = plot(make_study(), tmp_path / "first", names=names)
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "other", "axes.grid": True, "savefig.dpi": 50, "lines.linestyle": "--"}):
        before = dict(matplotlib.rcParams)
        second = plot(make_study(), tmp_path / "second", names=names)
        assert dict(matplotlib.rcParams) == before
    assert len(first) == 8
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_plots_need_neither_torch_nor_pyplot_and_pages_load_matplotlib_only_when_they_draw(tmp_path):
    tests = Path(__file__).parent.parent
    code = (
        f"import sys; sys.modules['torch'] = None; sys.path.insert(0, {str(tests)!r})\n"
        "import glocal.views.report.study_page\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from glocal.views.plots.files import plot\n"
        "from studies import make_study\n"
        f"plot(make_study(), {str(tmp_path)!r}, names=['own_share'])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    # Another process, another hash seed: the same bytes.
    assert (tmp_path / "own_share.svg").read_bytes() == picture(drawn(make_study(), "own_share")["own_share"], "svg")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"formats": ["jpg"]}, ChoiceError, ["This is not a format of plots.", "formats=['jpg']", "pdf, svg, png"]),
        ({"formats": []}, ChoiceError, ["This is not a format of plots.", "formats=[]"]),
        ({"names": ["discrepency"]}, ChoiceError, ["There is no plot called 'discrepency'.", "discrepancy_jsd", "choose among these"]),
        ({"names": ["ladder"]}, StudyError, ["nothing for the plot 'ladder'", "own_share", "ladder=True"]),
    ],
    ids=str,
)
def test_wrong_choices_are_named_before_anything_is_written(options, error, says, tmp_path):
    with pytest.raises(error) as caught:
        plot(make_study(ladder=False), tmp_path / "plots", **options)
    assert all(each in str(caught.value) for each in says)
    assert not (tmp_path / "plots").exists()


def test_what_is_no_study_and_where_nothing_can_be_written_is_said(tmp_path):
    study = make_study()
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StudyError, match=r"The plots cannot be written\.\n  asked: .*taken"):
        plot(study, tmp_path / "taken", names=["entropy"])
    study.attrs["study_schema"] = 2
    with pytest.raises(StudyError, match=r"not a Study that can be shown\.\n  found: study_schema=2\n  allowed: .*study_schema=1\n"):
        plot(study, tmp_path)
    with pytest.raises(StudyError, match="found: a dict"):
        plot({}, tmp_path)


@pytest.mark.parametrize(
    ("numbers", "most", "shown"),
    [([1, 2, 3], 7, [1, 2, 3]), (list(range(1, 13)), 7, [1, 3, 5, 7, 9, 11]), (list(range(1, 31)), 7, [1, 5, 10, 15, 20, 25, 30])],
    ids=str,
)
def test_ticks_are_few_and_round(numbers, most, shown):
    assert [numbers[place] for place in thinned(numbers, most)] == shown
