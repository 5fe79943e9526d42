"""The report in a real browser: by mouse and keyboard, offline, hostile, dark, narrow, without scripts."""

import pytest
from stories import make_story

import glocal

pytestmark = pytest.mark.browser


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
    assert chosen(page) == "Layer 2 · head 2"
    for key, expected in (
        ("ArrowDown", "Layer 3 · head 2"),
        ("ArrowRight", "Layer 3 · head 3"),
        ("ArrowUp", "Layer 2 · head 3"),
        ("ArrowLeft", "Layer 2 · head 2"),
    ):
        page.keyboard.press(key)
        assert chosen(page) == expected
    assert page.get_by_role("heading", name="Layer 2 · head 2: what").count() == 1


def test_targets_follow_the_pointer_and_can_be_held(page_file, open_page):
    page = open_page(page_file(n=6))
    tokens = page.locator(".face.attention .flow .token")
    tokens.nth(3).hover()
    assert "target" in tokens.nth(3).get_attribute("class")
    tokens.nth(3).click()
    assert tokens.nth(3).get_attribute("aria-pressed") == "true"
    tokens.nth(1).hover()
    assert "target" in tokens.nth(3).get_attribute("class")
    assert "(position 1)" in page.locator(".readout").first.inner_text()
    page.keyboard.press("Escape")
    tokens.nth(1).hover()
    tokens.nth(2).hover()
    assert "target" in tokens.nth(2).get_attribute("class")


def test_tokens_are_reached_by_keyboard(page_file, open_page):
    page = open_page(page_file(n=6))
    page.locator(".face.attribution .flow .token[tabindex='0']").focus()
    page.keyboard.press("Home")
    before = page.locator(".face.attribution .token.target").get_attribute("data-source")
    page.keyboard.press("ArrowRight" if before != "5" else "ArrowLeft")
    assert page.locator(".face.attribution .token.target").get_attribute("data-source") != before


def test_matrices_link_rows_and_columns(page_file, open_page):
    page = open_page(page_file(n=6))
    canvas = page.locator(".matrix.attribution canvas")
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 1.5 / 6, "y": box["height"] * 4.5 / 6})
    readout = page.locator(".readout").first.inner_text()
    assert "(position 4)" in readout and "(position 1)" in readout
    canvas.focus()
    page.keyboard.press("ArrowUp")
    assert "(position 3)" in page.locator(".readout").first.inner_text()


def test_shown_shares_are_those_of_the_story(page_file, open_page, tmp_path):
    story = make_story(n=6, layers=2, heads=3)
    page = open_page(glocal.report(story, tmp_path / "s.html"))
    page.locator("[role=gridcell]").nth(4).click()
    page.locator(".face.attention .token").nth(2).click()
    for face in ("attention", "attribution"):
        for source in range(6):
            label = page.locator(f".face.{face} .flow .token").nth(source).get_attribute("aria-label")
            share = float(story[face].sel(layer=2, head=2, target=2, source=source))
            assert abs(float(label.rsplit(" ", 2)[1]) / 100 - share) < 0.006


def test_the_address_restores_the_view(page_file, open_page):
    page = open_page(page_file(n=6, layers=3, heads=4))
    page.locator("[role=gridcell]").nth(9).click()
    page.locator(".face.attention .token").nth(4).click()
    address = page.url
    assert "layer=3" in address and "head=2" in address and "target=4" in address
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("[data-ready]")
    assert chosen(page) == "Layer 3 · head 2"
    assert page.locator(".face.attention .token.target").get_attribute("data-source") == "4"


def test_colouring_by_another_statistic(page_file, open_page):
    page = open_page(page_file(n=6))
    before = page.locator("[role=gridcell]").first.inner_text()
    page.get_by_label("colour by").select_option(index=1)
    assert "own-token share" in page.locator("[role=gridcell]").first.get_attribute("aria-label")
    assert page.locator("[role=gridcell]").first.inner_text() != before


def test_hostile_tokens_run_nothing(page_file, open_page):
    hostile = ["[CLS]", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "'\"><svg onload=alert(1)>", "[SEP]"]
    page = open_page(page_file(tokens=hostile))
    for source, token in enumerate(hostile):
        page.locator(".face.attention .token").nth(source).hover()
        assert page.locator(".face.attention .token bdi").nth(source).inner_text() == token
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("n", [1, 9, 128])
def test_no_page_is_wider_than_the_screen(page_file, open_page, scheme, width, n):
    page = open_page(page_file(n=n, layers=4, heads=12, ladder=True), color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 23, 29)") == (scheme == "dark")


@pytest.mark.parametrize("options", [{"of": "hidden"}, {"sketch": True}, {"causal": True}, {"n": 1}], ids=str)
def test_every_kind_of_story_opens(page_file, open_page, options):
    page = open_page(page_file(**options))
    assert page.locator(".matrix canvas").count() == 2


def test_without_scripts_the_words_and_a_table_remain(page_file, open_page):
    page = open_page(page_file(n=6, layers=2, heads=3), java_script_enabled=False)
    assert "differ by" in page.locator("#verdict").inner_text()
    assert page.locator("noscript table td").count() >= 6


def test_controls_have_names_and_roles(page_file, open_page):
    page = open_page(page_file(n=6, ladder=True))
    for control in page.locator("button, select, canvas[role=img], svg[role=img], [role=grid]").all():
        name = control.get_attribute("aria-label") or control.inner_text()
        assert name.strip()
    assert page.locator("h1").count() == 1
    # One stop per group: arrow keys do the rest.
    assert page.locator("[role=gridcell][tabindex='0']").count() == 1
    assert page.locator(".face.attention .token[tabindex='0']").count() == 1
