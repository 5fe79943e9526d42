"""The report as a file: escaped, self-contained, small, and true to the Story."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest
from stories import make_output_story, make_story

import glocal
from glocal.errors import StoryError
from glocal.views.figures.visible import visible
from glocal.views.report.story_page import render

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><b>",
    "\u2028\u2029",
    "<!--",
    "]]>",
    "[bold]",
    "a\x00\x1b[31m",
    "{{data}}{{words}}",
]


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="glocal-data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.parametrize("token", HOSTILE, ids=ascii)
def test_texts_are_data(token):
    story = make_story(tokens=["[CLS]", token, "[SEP]"])
    story.attrs["text"] = token
    page = render(story)
    assert embedded(page)["tokens"][1]["shown"] == visible(token)
    assert embedded(page)["title"] == visible(token)
    # Two scripts are opened and closed: the data and the explorer.
    assert page.count("<script") == page.count("</script") == 2
    data = page.split('id="glocal-data">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(data)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else():
    page = render(make_story())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    for tag, kind in (("style", "style-src"), ('script type="module"', "script-src")):
        inside = re.search(f"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_nothing_is_loaded_from_anywhere():
    page = render(make_story())
    assert not re.search(
        r"""(src|href)\s*=|url\(|@import|\bfetch\(|XMLHttpRequest|\bimport\s""",
        page.split("<style>")[1].split('<script type="application')[0],
    )
    assert re.findall(r"https?://[^\"'\s<)]+", page) == ["http://www.w3.org/2000/svg"]


def test_the_report_of_twelve_by_twelve_heads_and_128_tokens_stays_below_five_megabytes(tmp_path):
    path = glocal.report(make_story(n=128, layers=12, heads=12), tmp_path / "large.html")
    assert path.stat().st_size < 5_000_000


@pytest.mark.parametrize(
    "options", [{}, {"sketch": True}, {"ladder": True}, {"of": "hidden"}, {"causal": True}, {"n": 1}, {"targets": [1, 3]}], ids=str
)
def test_every_kind_of_story_has_a_report(options, tmp_path):
    story = make_story(**options)
    path = glocal.report(story, tmp_path / "story.html")
    data = embedded(path.read_text(encoding="utf-8"))
    assert len(data["tokens"]) == story.sizes["source"]
    assert data["verdict"]


@pytest.mark.parametrize("name", ["attention", "attribution"])
def test_one_map_alone_has_a_report(name):
    story = make_story()
    kept = [variable for variable in story.data_vars if str(variable) == name]
    assert list(embedded(render(story[kept]))["maps"]) == [name]


@pytest.mark.parametrize("alone", [False, True])
def test_scores_for_an_output_have_a_table_without_scripts(alone):
    story = make_output_story()
    story.attrs["explained"]["name"] = "class:<b>good"
    page = render(story.drop_vars([name for name in story.data_vars if name != "occlusion"]) if alone else story)
    static = page.split('<section class="outputs"')[1].split("</section>")[0]
    assert "class:&lt;b&gt;good” is 1.25, probability 0.750." in static and "gap 0.0125" in static
    assert static.count('<rect class="against"') == 1 and static.count("<td>undefined</td>") == 1
    assert static.count('<rect class="for"') == story.sizes["source"] - 2
    assert "style=" not in static
    assert '<section class="outputs"' not in render(make_story())


def test_the_static_page_says_what_a_reader_must_know():
    story = make_story()
    story.attrs["notes"] = ["<b>90</b> tokens were cut off."]
    story.attrs["not_finite"] = [{"variable": "attribution", "layer": 1, "head": 2, "nan": 3, "infinite": 0}]
    story["discrepancy_jsd"].values[0, 1] = np.nan
    static = render(story).split('<script type="application/json"')[0]
    assert "&lt;b&gt;90&lt;/b&gt; tokens were cut off." in static and "attribution: 3 NaN values (L1 H2)" in static
    assert "<td>undefined</td>" in static
    assert re.search(r"attention within 0\.00\d+ percentage points", static)


def test_a_report_is_whole_or_not_there(tmp_path):
    with pytest.raises(StoryError, match="does not exist"):
        glocal.report(make_story(), tmp_path / "missing" / "story.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(StoryError, match="something at this path"):
        glocal.report(make_story(), tmp_path / "folder.html")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder.html"]


def test_only_pages_of_glocal_are_replaced(tmp_path):
    story, page, foreign = make_story(), tmp_path / "page.html", tmp_path / "thesis.html"
    glocal.report(story, page)
    glocal.report(story, page)
    with pytest.raises(StoryError, match="a page of glocal"):
        glocal.report(story, page, overwrite=False)
    foreign.write_text("<html>my thesis</html>", encoding="utf-8")
    with pytest.raises(StoryError, match="a file that glocal did not write"):
        glocal.report(story, foreign)
    for name in ("model.safetensors", "notes", "story.zarr"):
        with pytest.raises(StoryError, match="ending"):
            glocal.report(story, tmp_path / name)
    assert foreign.read_text(encoding="utf-8") == "<html>my thesis</html>"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["page.html", "thesis.html"]


@pytest.mark.parametrize("select", [{"source": [2, 3]}, {"layer": 1}, {"target": 0}], ids=str)
def test_a_story_that_was_cut_is_refused_and_not_drawn_wrong(select, tmp_path):
    with pytest.raises(StoryError, match="select"):
        glocal.report(make_story().isel(select), tmp_path / "story.html")


@pytest.mark.parametrize("what", ["a text", None, [1], {"attention": 1}], ids=repr)
def test_what_is_no_story_is_refused(what, tmp_path):
    with pytest.raises(StoryError, match="not a Story"):
        glocal.report(what, tmp_path / "story.html")
