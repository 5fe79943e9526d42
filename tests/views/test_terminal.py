"""The terminal summary and the JSON form."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from stories import make_story

from glocal.views.terminal import as_json, summary
from glocal.views.words import paragraph


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
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith(("largest", "smallest"))}
    for word, cell in (("largest", largest), ("smallest", smallest)):
        assert lines[word].split(") ")[1].split()[0] == f"{cell.layer.item()}-{cell['head'].item()}"


@pytest.mark.parametrize("options", [{}, {"sketch": True}, {"ladder": True}, {"of": "hidden"}, {"causal": True}, {"n": 1}], ids=str)
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
    assert "[red]cut off" in out and "attribution, layer 1: 3 NaN" in out and "2 fully masked rows" in out


def test_json_holds_everything_and_no_nan():
    story = make_story()
    story["attribution"].values[0, 0, 0, 0] = np.nan
    document = json.loads(json.dumps(as_json(story), allow_nan=False))
    assert document["schema"] == story.attrs["glocal_schema"]
    assert document["variables"]["attribution"]["values"][0][0][0][0] is None
    np.testing.assert_allclose(document["variables"]["attention"]["values"], story.attention, atol=1e-7)
    assert [token["token"] for token in document["tokens"]] == story.source_token.values.tolist()


def test_the_paragraph_quotes_the_numbers():
    story = make_story(n=6, layers=2, heads=3)
    text = paragraph(story)
    grid = story.discrepancy_jsd.mean("target")
    assert f"{float(grid.sel(layer=1).mean()):.3f}" in text
    assert f"{float(grid.max()):.3f}" in text and f"{float(grid.min()):.3f}" in text


def test_the_paragraph_of_a_sketch_says_that_it_is_one():
    assert "sketch" in paragraph(make_story(sketch=True))
    assert "sketch" not in paragraph(make_story())
