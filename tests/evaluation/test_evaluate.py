"""Which maps agree with taking tokens away."""

import numpy as np
import pytest
from families import ids, make_model, model

import glocal
from glocal.errors import ChoiceError, TextError

TEXTS = [ids(5, seed=seed) for seed in range(6)]


def test_values_are_means_of_the_measure_between_rows():
    found = glocal.evaluate(TEXTS[:2], model("Bert"), methods=("attention",), measures=("cosine",))
    story = glocal.analyze(TEXTS[1], model("Bert"), methods=("attention", "head_occlusion"), measures=())
    one, other = (story[name].values / story[name].sum("source").values[..., None] for name in ("attention", "head_occlusion"))
    cosine = (one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)
    assert np.isclose(found.value.sel(metric="cosine", explanation="attention").values[1], cosine.mean())
    assert found.by_layer.dims == ("metric", "explanation", "layer") and found.sizes["layer"] == 3


def test_the_reference_itself_is_perfect_and_random_rows_are_last_but_bad_maps():
    found = glocal.evaluate(TEXTS, model("Bert"), methods={"head_occlusion": {}, "attribution": {}}, measures=("spearman", "jsd"))
    perfect = found.sel(explanation="head_occlusion")
    assert np.allclose(perfect["mean"].sel(metric="spearman"), 1) and np.allclose(perfect["mean"].sel(metric="jsd"), 0, atol=1e-12)
    assert perfect["rank"].values.tolist() == [1, 1]
    assert abs(found["mean"].sel(metric="spearman", explanation="random")) < 0.2
    assert found["mean"].sel(metric="spearman", explanation="attribution") > found["mean"].sel(metric="spearman", explanation="random")


def test_the_same_call_gives_the_same_numbers_and_counts_progress():
    seen = []
    options = {"methods": ("attention",), "progress": lambda done, total: seen.append((done, total))}
    one, other = (glocal.evaluate(TEXTS, model("Bert"), **options) for _ in range(2))
    assert one.identical(other) and seen[5] == (6, 6) and len(seen) == 12


def test_layers_are_compared_with_occlusion_of_layers():
    found = glocal.evaluate(TEXTS[:2], model("Bert"), of="hidden", methods=("rollout", "attribution"), measures=("spearman",))
    assert found.attrs["settings"]["of"] == "hidden" and np.isfinite(found["mean"]).all()


def test_files_and_pairs_are_read(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,other\nA cat sat.,It sat.\nA dog ran.,It ran.\n")
    found = glocal.evaluate(path, methods=("attention",), pair="other", limit=2, options={"layers": [1, 2]})
    assert found.attrs["texts"] == 2 and found.attrs["settings"]["options"] == {"layers": "[1, 2]"}


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"methods": ("rollout",)}, ChoiceError, "of='hidden'"),
        ({"methods": ("nothing",)}, ChoiceError, "nothing"),
        ({"of": "head_output"}, ChoiceError, "methods"),
        ({"replace": "noise", "methods": ("attention",)}, ChoiceError, "noise"),
    ],
)
def test_refusals(options, error, said):
    with pytest.raises(error, match=said):
        glocal.evaluate(TEXTS, make_model("Bert"), **options)


def test_no_texts_are_an_error():
    with pytest.raises(TextError, match="no text"):
        glocal.evaluate([], model("Bert"))
