"""The report in a real browser: by mouse and keyboard, offline, hostile, dark, narrow, without scripts."""

import re

import pytest
from playwright.sync_api import expect
from stories import make_story

import glocal

pytestmark = pytest.mark.browser
AXIS = 92


@pytest.fixture
def page_file(tmp_path):
    def write(**options):
        return glocal.report(make_story(**options), tmp_path / "story.html")

    return write


def chosen(page):
    return page.locator("[role=gridcell][aria-selected=true]").get_attribute("aria-label").split(":")[0]


def test_heads_are_chosen_by_mouse_and_by_keyboard(page_file, open_page):
    page = open_page(page_file(n=6, layers=3, heads=4))
    page.locator("[role=gridcell]").nth(5).click()
    assert chosen(page) == "layer 2 head 2"
    for key, expected in (
        ("ArrowDown", "layer 3 head 2"),
        ("ArrowRight", "layer 3 head 3"),
        ("ArrowUp", "layer 2 head 3"),
        ("Home", "layer 2 head 1"),
        ("End", "layer 2 head 4"),
        ("ArrowLeft", "layer 2 head 3"),
    ):
        page.keyboard.press(key)
        assert chosen(page) == expected
    assert page.get_by_role("heading", name="Layer 2 head 3 — what").count() == 1


def test_a_cell_says_where_it_is_and_what_it_shows(open_page, tmp_path):
    story = make_story(n=6, layers=3, heads=4)
    page = open_page(glocal.report(story, tmp_path / "s.html"))
    value = float(story.discrepancy_jsd.sel(layer=2, head=3).mean())
    label = page.locator("[role=gridcell]").nth(6).get_attribute("aria-label")
    assert label == f"layer 2 head 3: Jensen-Shannon divergence {value:.3f} {story.discrepancy_jsd.attrs['unit']}"


def test_enter_chooses_a_head_and_holds_a_target(page_file, open_page):
    page = open_page(page_file(n=6, layers=3, heads=4))
    page.locator(".extremes button").last.focus()
    page.keyboard.press("Enter")
    assert chosen(page) in page.locator(".extremes button").last.get_attribute("aria-label")
    page.locator(".flow .token[tabindex='0']").focus()
    page.keyboard.press("Enter")
    assert page.locator(".flow .token.target").get_attribute("aria-pressed") == "true"
    assert page.locator(".held").count() == 2


def test_targets_follow_the_pointer_and_can_be_held(page_file, open_page):
    page = open_page(page_file(n=6))
    tokens = page.locator(".flow .token")
    tokens.nth(3).hover()
    assert "target" in tokens.nth(3).get_attribute("class")
    tokens.nth(3).click()
    assert tokens.nth(3).get_attribute("aria-pressed") == "true"
    tokens.nth(1).hover()
    assert "target" in tokens.nth(3).get_attribute("class")
    assert "(1)" in page.locator(".readout").first.inner_text()
    page.keyboard.press("Escape")
    tokens.nth(1).hover()
    tokens.nth(2).hover()
    assert "target" in tokens.nth(2).get_attribute("class")


def test_tokens_are_reached_by_keyboard(page_file, open_page):
    page = open_page(page_file(n=6))
    page.locator(".flow .token[tabindex='0']").focus()
    for key, expected in (("Home", "0"), ("ArrowRight", "1"), ("ArrowDown", "2"), ("ArrowLeft", "1"), ("End", "5"), ("ArrowRight", "5")):
        page.keyboard.press(key)
        assert page.locator(".flow .token.target").get_attribute("data-source") == expected


def test_arrows_follow_the_direction_of_the_script(page_file, open_page):
    page = open_page(page_file(tokens=["[CLS]", "שלום", "עולם", "[SEP]"]))
    assert page.locator(".flow").get_attribute("dir") == "rtl"
    boxes = [page.locator(".flow .token").nth(source).bounding_box()["x"] for source in range(4)]
    assert boxes == sorted(boxes, reverse=True)
    page.locator(".flow .token[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".flow .token.target").get_attribute("data-source") == "1"


def test_matrices_link_rows_and_columns(page_file, open_page):
    page = open_page(page_file(n=6))
    canvas = page.locator(".matrix.attribution canvas")
    box = canvas.bounding_box()
    # The tokens are written left of the cells and above them, in the same room.
    cell = (box["width"] - AXIS) / 6
    canvas.hover(position={"x": AXIS + 1.5 * cell, "y": AXIS + 4.5 * cell})
    said = page.locator(".readout").first
    assert "(4) from The (1)" in said.inner_text()
    assert page.locator(".flow .token.target").get_attribute("data-source") == "4"
    assert page.locator(".flow .token.source").get_attribute("data-source") == "1"
    canvas.focus()
    page.keyboard.press("ArrowUp")
    assert "(3) from The (1)" in said.inner_text()
    page.keyboard.press("ArrowRight")
    assert "(3) from keys (2)" in said.inner_text()
    assert "from keys" in page.locator(".matrix.attention canvas").get_attribute("aria-label")


@pytest.mark.parametrize("n", [6, 64])
def test_shown_shares_are_those_of_the_story(open_page, tmp_path, n):
    story = make_story(n=n, layers=8, heads=32 if n == 64 else 3)
    page = open_page(glocal.report(story, tmp_path / "s.html"))
    page.get_by_role("gridcell", name="layer 2 head 2:").click()
    page.locator(".flow .token").nth(2).click()
    for source in range(0, n, 5):
        label = page.locator(".flow .token").nth(source).get_attribute("aria-label")
        for face in ("attention", "attribution"):
            shown = float(re.search(rf"{face} ([\d.]+)%", label)[1]) / 100
            assert abs(shown - float(story[face].sel(layer=2, head=2, target=2, source=source))) < 0.006


def test_the_readout_gives_standard_errors_of_a_sketch(open_page, tmp_path):
    page = open_page(glocal.report(make_story(n=6, sketch=True), tmp_path / "s.html"))
    assert "±" in page.locator(".readout").first.inner_text()


def test_the_address_restores_the_view(page_file, open_page):
    page = open_page(page_file(n=6, layers=3, heads=4))
    page.locator("[role=gridcell]").nth(9).click()
    page.locator(".flow .token").nth(4).click()
    page.wait_for_url(re.compile(r"layer=3.*target=4.*head=2"))
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("[data-ready]")
    assert chosen(page) == "layer 3 head 2"
    assert page.locator(".flow .token.target").get_attribute("data-source") == "4"


def test_colouring_by_another_statistic(page_file, open_page):
    page = open_page(page_file(n=6))
    before = page.locator("[role=gridcell]").first.inner_text()
    page.get_by_label("Coloured by").select_option(index=1)
    assert "own-token share" in page.locator("[role=gridcell]").first.get_attribute("aria-label")
    assert page.locator("[role=gridcell]").first.inner_text() != before


def test_hostile_tokens_run_nothing(open_page, tmp_path):
    hostile = [
        "[CLS]",
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "'\"><svg onload=alert(1)>",
        "{{data}}",
        "[SEP]",
    ]
    story = make_story(tokens=hostile)
    story.attrs["notes"] = ["<img src=x onerror=alert(1)>"]
    page = open_page(glocal.report(story, tmp_path / "s.html"))
    for source, token in enumerate(hostile):
        shown = page.locator(".flow .token").nth(source)
        shown.hover()
        assert shown.locator("bdi").first.inner_text() == token
    assert page.locator("h1").inner_text() == story.attrs["text"]
    assert page.locator("img, svg[onload], script").count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("n", [1, 9, 128])
def test_no_page_is_wider_than_the_screen(page_file, open_page, scheme, width, n):
    page = open_page(page_file(n=n, layers=4, heads=12, ladder=True), color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 21, 27)") == (scheme == "dark")


@pytest.mark.parametrize("options", [{"of": "hidden"}, {"sketch": True}, {"causal": True}, {"n": 1}, {"targets": [0, 3]}], ids=str)
def test_every_kind_of_story_opens(page_file, open_page, options):
    page = open_page(page_file(**options))
    assert page.locator(".matrix canvas").count() == 2
    page.locator(".matrix canvas").last.hover()
    page.locator("[role=gridcell]").last.click()
    page.keyboard.press("ArrowUp")


@pytest.mark.parametrize("face", ["attention", "attribution"])
def test_one_map_alone_opens(open_page, tmp_path, face):
    story = make_story(n=6)
    page = open_page(glocal.report(story.drop_vars([name for name in story.data_vars if name != face]), tmp_path / "s.html"))
    assert page.locator(".matrix canvas").count() == 1
    assert page.locator(".flow .token").first.locator("bdi").count() == 1


def test_a_story_without_maps_opens(open_page, tmp_path):
    story = make_story(n=6)
    page = open_page(glocal.report(story.drop_vars(list(story.data_vars)), tmp_path / "s.html"))
    assert "neither" in page.locator("#verdict").inner_text()


def test_undefined_values_are_said_and_not_drawn_as_zero(open_page, tmp_path):
    story = make_story(n=6)
    story["attribution"].values[0, 0, :] = float("nan")
    story["discrepancy_jsd"].values[0, 0, :] = float("nan")
    page = open_page(glocal.report(story, tmp_path / "s.html"))
    first = page.locator("[role=gridcell]").first
    assert "undefined" in first.get_attribute("class") and first.get_attribute("aria-label").endswith("undefined")
    first.click()
    assert "attribution undefined" in page.locator(".readout").first.inner_text()


def test_shades_follow_a_change_of_scheme(page_file, open_page):
    page = open_page(page_file(n=6), color_scheme="light")
    shaded = page.locator(".flow .token:not(.target) bdi").first
    light = shaded.get_attribute("style")
    page.emulate_media(color_scheme="dark")
    expect(shaded).not_to_have_attribute("style", light)


def test_the_ladder_follows_the_chosen_head(open_page, tmp_path):
    story = make_story(n=6, layers=3, heads=4, ladder=True)
    page = open_page(glocal.report(story, tmp_path / "s.html"))
    page.get_by_role("gridcell", name="layer 3 head 2:").click()
    label = page.locator("svg.ladder").get_attribute("aria-label")
    values = story.ladder_jsd.sel(layer=3, head=2).values
    unit = story.ladder_jsd.attrs["unit"]
    assert label == "; ".join(f"input of layer {index + 1}: {values[index]:.3f} {unit}" for index in (2, 1, 0))


def test_without_scripts_the_words_and_a_table_remain(page_file, open_page):
    page = open_page(page_file(n=6, layers=2, heads=3), java_script_enabled=False)
    assert "furthest apart in layer" in page.locator("#verdict").inner_text()
    assert "Jensen-Shannon divergence between" in page.locator("#words").inner_text()
    assert page.locator("noscript table td").count() >= 6
    page.locator("#facts summary").click()
    assert "transformers" in page.locator("#facts dl").inner_text()


def test_controls_have_names_and_roles(page_file, open_page):
    page = open_page(page_file(n=6, ladder=True))
    for control in page.locator("button, canvas, svg[role=img], [role=grid]").all():
        name = control.get_attribute("aria-label") or control.inner_text()
        assert name.strip()
    assert page.locator("h1").count() == 1
    # One stop per group: arrow keys do the rest.
    assert page.locator("[role=gridcell][tabindex='0']").count() == 1
    assert page.locator(".flow .token[tabindex='0']").count() == 1
