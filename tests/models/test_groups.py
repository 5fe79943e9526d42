"""Sources taken together: which tokens, what they are called, and that their norms are those of the whole block."""

import numpy as np
import pytest
import torch
from families import ids, make_model, model

import glocal
from glocal.errors import ChoiceError, StoryError
from glocal.models.encode import encode
from glocal.models.groups import group_numbers, grouped

GROUPS = [0, 1, 1, 2, 0]


@pytest.fixture(scope="module")
def tokens(minilm):
    return encode(("Unbelievable cats sat. Did they?", "No."), *minilm, truncation=False)


def texts(tokens, groups):
    return list(grouped(tokens, group_numbers(tokens, groups)).token)


def test_words_sentences_and_segments(tokens):
    assert texts(tokens, "word") == ["[CLS]", "Unbelievable", "cats", "sat", ".", "Did", "they", "?", "[SEP]", "No", ".", "[SEP]"]
    assert texts(tokens, "sentence") == ["[CLS]", "Unbelievable cats sat.", "Did they?", "[SEP]", "No.", "[SEP]"]
    assert texts(tokens, "segment") == ["[CLS]", "Unbelievable cats sat. Did they?", "[SEP]", "No.", "[SEP]"]


def test_numbers_are_counted_in_order_of_appearance(tokens):
    n = len(tokens)
    assert group_numbers(tokens, [7] * 3 + [2] * (n - 3)) == (0,) * 3 + (1,) * (n - 3)


@pytest.mark.parametrize("groups", ["words", [0], []])
def test_groups_that_do_not_fit_are_refused(tokens, groups):
    with pytest.raises(ChoiceError, match="groups"):
        group_numbers(tokens, groups)


@pytest.mark.parametrize("engine", ["straight", "collapsed", "reverse"])
def test_exact_norms_are_those_of_the_whole_block(engine):
    alone = glocal.analyze(ids(), model("Bert"))
    story = glocal.analyze(ids(), model("Bert"), groups=GROUPS, engine=engine)
    squares = alone.attribution_norm.values**2
    expected = np.stack([squares[..., [0, 4]].sum(-1), squares[..., [1, 2]].sum(-1), squares[..., 3]], -1) ** 0.5
    np.testing.assert_allclose(story.attribution_norm, expected, rtol=1e-9)
    np.testing.assert_allclose(story.attention[..., 0], alone.attention.values[..., [0, 4]].sum(-1), rtol=1e-9)
    np.testing.assert_allclose(story.attribution.sum("source"), 1)


def test_a_sketch_costs_as_many_directions_as_groups_and_is_unbiased():
    exact = glocal.analyze(ids(), model("Bert"), groups=GROUPS)
    sketches = [glocal.analyze(ids(), model("Bert"), groups=GROUPS, probes=4, seed=seed, measures=()) for seed in range(60)]
    assert sketches[0].attrs["plan"]["tangents"] == 3 * 4
    squares = np.stack([story.attribution_norm.values**2 for story in sketches])
    error = squares.std(0) / len(sketches) ** 0.5
    assert (abs(squares.mean(0) - exact.attribution_norm.values**2) < 4.5 * error).all()
    inside = [(abs(story.attribution_norm - exact.attribution_norm) <= 1.96 * story.attribution_norm_se).mean() for story in sketches]
    assert 0.9 < np.mean(inside) < 0.99


@pytest.mark.parametrize("engine", ["collapsed", "reverse"])
def test_other_engines_do_not_sketch_groups(engine):
    with pytest.raises(ChoiceError, match="straight"):
        glocal.analyze(ids(), model("Bert"), groups=GROUPS, probes=4, engine=engine)


@pytest.mark.parametrize("options", [{"times_input": True}, {"norm": "summed"}, {"of": "hidden"}, {"targets": [1, 4]}], ids=str)
def test_groups_go_with_other_options(options):
    alone = glocal.analyze(ids(), model("GPT2"), **options, measures=())
    story = glocal.analyze(ids(), model("GPT2"), groups=[0, 0, 1, 1, 1], **options, measures=())
    squares = alone.attribution_norm.values**2
    expected = np.stack([squares[..., :2].sum(-1), squares[..., 2:].sum(-1)], -1) ** 0.5
    np.testing.assert_allclose(story.attribution_norm, expected, rtol=1e-6)
    full = glocal.analyze(ids(), model("GPT2"), groups=[0, 0, 1, 1, 1], probes=32, engine="straight", **options, measures=())
    assert torch.tensor(full.attribution_norm.values).isfinite().all()


def test_a_grouped_story_is_saved_and_summarised_but_not_drawn(tmp_path, minilm):
    from rich.console import Console

    from glocal.views.terminal import as_json, summary

    story = glocal.analyze("Glocalisation sat.", *minilm, groups="word", probes=4)
    assert list(story.source_token.values) == ["[CLS]", "Glocalisation", "sat", ".", "[SEP]"]
    assert story.sizes["target"] > story.sizes["source"]
    assert glocal.open(glocal.save(story, tmp_path / "a.zarr")).identical(story)
    console = Console(record=True, width=200)
    summary(story, console)
    assert "5 groups of tokens" in console.export_text()
    assert len(as_json(story)["tokens"]) == 5
    for refused in (lambda: glocal.report(story, tmp_path / "a.html"), lambda: glocal.describe(story)):
        with pytest.raises(StoryError, match="groups"):
            refused()


def test_groups_of_one_token_each_are_the_tokens():
    alone, story = (glocal.analyze(ids(), model("Bert"), probes=4, groups=groups, engine="straight") for groups in (None, range(5)))
    for variable in alone.data_vars:
        np.testing.assert_allclose(story[variable], alone[variable], rtol=1e-9)
    many = glocal.analyze(ids(), model("Bert"), probes="auto", error=1e-9, groups=range(5))
    assert many.attrs["plan"]["probes"] == 0 and "attribution_se" not in many


def test_bfloat16_is_carried_by_the_collapsed_engine_only():
    network = make_model("Bert", torch.float32)
    assert glocal.analyze(ids(3), network, probes=2, precision="bfloat16").attrs["engine"] == "collapsed"
    with pytest.raises(ChoiceError, match="bfloat16"):
        glocal.analyze(ids(), network, probes=2, precision="bfloat16", groups=GROUPS)
