"""The terminal summary and the JSON form."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from stories import make_output_story, make_story

from glocal.views.terminal import as_json, summary
from glocal.views.words import paragraph, verdict


def printed(story):
    stream = io.StringIO()
    summary(story, Console(file=stream, width=140, force_terminal=False))
    return stream.getvalue()


def test_every_layer_and_the_extreme_heads_are_listed():
    story = make_story(n=6, layers=3, heads=4)
    out = printed(story)
    grid = story.discrepancy_jsd.mean("target")
    for layer in (1, 2, 3):
        assert f"{float(grid.sel(layer=layer).mean()):.3f}" in out
    largest, smallest = grid.where(grid == grid.max(), drop=True), grid.where(grid == grid.min(), drop=True)
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip().startswith(("largest", "smallest"))}
    for word, cell in (("largest", largest), ("smallest", smallest)):
        assert lines[word].split()[1:3] == [f"L{cell.layer.item()}", f"H{cell['head'].item()}"]


@pytest.mark.parametrize(
    "options", [{}, {"sketch": True}, {"ladder": True}, {"of": "hidden"}, {"causal": True}, {"n": 1}, {"targets": [2]}], ids=str
)
def test_every_kind_of_story_has_a_summary(options):
    story = make_story(**options)
    out = printed(story)
    assert "layer" in out and "engine" in out
    assert ("error estimate" in out) == bool(options.get("sketch"))
    assert "discrepancy" in out or options.get("of") == "hidden"


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", "\x1b[31mred", "a\x00b", "😀 שלום"], ids=ascii)
def test_texts_are_never_interpreted(text):
    story = make_story()
    story.attrs["text"] = text
    out = printed(story)
    assert "\x1b" not in out and "\x00" not in out
    assert text.replace("\x1b", "␛").replace("\x00", "␀") in out


def test_notes_and_counts_are_printed():
    story = make_story()
    story.attrs["notes"] = ["[red]cut off"]
    story.attrs["not_finite"] = [{"variable": "attribution", "layer": 1, "head": None, "nan": 3, "infinite": 0}]
    story.attrs["masked_rows"] = 2
    out = printed(story)
    assert "[red]cut off" in out and "attribution: 3 NaN values (L1)" in out and "2 fully masked rows" in out


def test_json_holds_everything_and_no_nan():
    story = make_story()
    story["attribution"].values[0, 0, 0, 0] = np.nan
    document = json.loads(json.dumps(as_json(story), allow_nan=False))
    assert document["schema"] == story.attrs["glocal_schema"]
    assert document["variables"]["attribution"]["values"][0][0][0][0] is None
    np.testing.assert_allclose(document["variables"]["attention"]["values"], story.attention, atol=1e-7)
    assert [token["token"] for token in document["tokens"]] == story.source_token.values.tolist()


def test_json_keeps_every_number_exactly_and_summarises():
    story = make_story(n=6, layers=2, heads=3)
    story["discrepancy_jsd"].values[0, 0, 0] = np.inf
    story.attrs["error_estimate"] = {"mean_total_variation_of_a_row": float("nan")}
    document = json.loads(json.dumps(as_json(story), allow_nan=False))
    assert (np.float32(document["variables"]["attribution_norm"]["values"]) == story.attribution_norm.values).all()
    assert document["variables"]["discrepancy_jsd"]["values"][0][0][0] is None
    assert document["attributes"]["error_estimate"] == {"mean_total_variation_of_a_row": None}
    by_head = np.array(document["summary"]["by_head"]["discrepancy_jsd"])
    np.testing.assert_allclose(by_head[1], story.discrepancy_jsd.mean("target").values[1], rtol=1e-6)
    np.testing.assert_allclose(document["summary"]["by_layer"]["discrepancy_jsd"], by_head.mean(1), rtol=1e-6)
    assert document["layers"] == [1, 2] and document["heads"] == [1, 2, 3] and document["targets"] == [0, 1, 2, 3, 4, 5]


def test_json_of_hidden_states_has_heads_for_attention_alone():
    document = as_json(make_story(of="hidden", layers=2, heads=3))
    assert [len(row) for row in document["summary"]["by_head"]["own_share_attribution"]] == [1, 1]
    assert [len(row) for row in document["summary"]["by_head"]["own_share_attention"]] == [3, 3]


def test_long_texts_are_shortened():
    story = make_story()
    story.attrs["text"] = "word " * 1000
    assert len(printed(story).splitlines()[0]) < 420


def test_a_measure_of_likeness_points_the_other_way():
    story = make_story(layers=3, heads=4, measures=("spearman",))
    grid = story.discrepancy_spearman.mean("target")
    by_layer = grid.mean("head").values
    least, most = by_layer.argmin() + 1, by_layer.argmax() + 1
    assert f"furthest apart in layer {least} and closest in layer {most}" in verdict(story)
    assert f"Closest is head {grid.where(grid == grid.max(), drop=True)['head'].item()} of layer" in paragraph(story)
    assert "larger is more alike" in printed(story)


def test_the_paragraph_quotes_the_numbers():
    story = make_story(n=6, layers=2, heads=3)
    text = paragraph(story)
    grid = story.discrepancy_jsd.mean("target")
    assert f"{float(grid.sel(layer=1).mean()):.3f}" in text
    assert f"{float(grid.max()):.3f}" in text and f"{float(grid.min()):.3f}" in text


def test_the_largest_sources_are_those_of_the_maps():
    story = make_story(n=6, layers=2, heads=3)
    story["attention"].values[:] = np.eye(6)[2]
    story["attribution"].values[:] = np.eye(6)[4]
    assert "it reads “keys” most (100% of attention), and its output depends most on “.” (100%)" in paragraph(story)


def test_a_token_that_occurs_twice_is_told_by_its_position():
    story = make_story(tokens=["the", "cat", "the", "mat"])
    story["attention"].values[:] = np.eye(4)[2]
    assert "reads “the” at position 2 most" in paragraph(story)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 1}, "one token"),
        ({"of": "hidden"}, "outputs of whole layers"),
        ({"layers": 1}, "on average in layer 1"),
        ({}, "furthest apart in layer"),
    ],
    ids=str,
)
def test_the_verdict_fits_the_story(options, said):
    assert said in verdict(make_story(**options))


def test_one_map_alone_is_said_to_be_alone():
    story = make_story().drop_vars(["attribution", "attribution_norm", "discrepancy_jsd"])
    assert verdict(story) == "This Story holds attention alone, so there is nothing to compare."
    assert "attribution" not in paragraph(story)


def test_the_paragraph_of_a_sketch_says_that_it_is_one():
    assert "sketch: a share has a standard error of" in paragraph(make_story(sketch=True))
    assert "sketch" not in paragraph(make_story())


def test_scores_for_an_output_are_a_table_and_no_text_in_it_is_interpreted():
    story = make_output_story()
    out = printed(story)
    assert "The output “class:[b]good” is 1.25, probability 0.750." in out
    assert "occlusion: baseline [x]" in out and "undefined" in out and "-0.5" in out
    alone = printed(story.drop_vars([name for name in story.data_vars if name != "occlusion"]))
    assert "-0.5" in alone and "discrepancy" not in alone
    assert as_json(story)["variables"]["occlusion"]["values"][0] == -0.5
