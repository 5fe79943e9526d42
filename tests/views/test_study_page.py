"""The page of a Study: escaped, self-contained, and true to its numbers."""

import base64
import hashlib
import html
import re
import xml.etree.ElementTree

import numpy as np
import pytest

from glocal.errors import StudyError
from glocal.views import study_words
from glocal.views.plots.gallery import available
from glocal.views.report.page_file import MARK
from glocal.views.report.study_page import render_study
from studies import make_study

HOSTILE = ["</style><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"'><b>", "{{words}}{{style}}", "a\x00\u202eb"]


def shown(page):
    """The page without its style and its pictures."""
    return re.sub(r"base64,[\w+/=]+|<style>.*?</style>", "", page, flags=re.DOTALL)


def small(**options):
    """A Study with one plot, for what is not about plots."""
    study = make_study(**options)
    return study[[name for name in study.data_vars if str(name).startswith("discrepancy_jsd") and "_by_" not in str(name)]]


@pytest.fixture(scope="module")
def page():
    return render_study(make_study(layers=4, heads=3))


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_texts_are_data(text):
    study = small(model=text, rejected=[{"number": 3, "name": text, "reason": text}])
    study.attrs["settings"]["columns"] = {text: [text]}
    page = render_study(study)
    assert "<script" not in page and "onerror=alert" not in page.replace("onerror=alert(1)&gt;", "")
    assert not {"\x00", "\u202e"} & set(page)
    assert page.count("<style>") == page.count("</style>") == page.count("<h1") == 1
    if text.isprintable():
        assert shown(page).count(html.escape(text)) >= 6


def test_the_policy_allows_this_style_and_pictures_inside_the_page_and_nothing_else(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    assert " style=" not in shown(page)


def test_the_page_is_glocals_and_nothing_is_loaded_from_anywhere(page):
    assert set(re.findall(r"""src=["']([^"',]*)""", page)) == {"data:image/svg+xml;base64"}
    assert set(re.findall(r"https?://[^\"'\s<)]+", shown(page))) == {"https://arxiv.org/abs/2004.05916"}
    assert MARK in page.encode()[:4096]  # so that it may be replaced later
    assert "@import" not in page and "url(" not in page


def test_every_plot_is_inside_with_its_words(page):
    study = make_study(layers=4, heads=3)
    names = [name for kind in available(study).values() for name in kind]
    assert re.findall(r'<figure id="([^"]*)">', page) == names
    assert re.findall(r'href="#([^"]*)"', page) == [*names, "methods"]
    assert len(re.findall("<figcaption>[^<]{60,}</figcaption>", page)) == len(names)
    for picture in re.findall(r"base64,([\w+/=]+)", page):
        assert xml.etree.ElementTree.fromstring(base64.b64decode(picture)).tag.endswith("svg")


def test_alternative_texts_say_what_the_pictures_show():
    study = small()
    low, high = float(study["discrepancy_jsd"].min()), float(study["discrepancy_jsd"].max())
    (text,) = re.findall(r'<img alt="([^"]*)"', render_study(study))
    assert f"discrepancy jsd from {low:.3g} to {high:.3g}" in text


def test_the_same_study_gives_the_same_page():
    assert render_study(small()) == render_study(small())


def test_the_verdict_names_the_extreme_layers_with_their_intervals():
    study = make_study(layers=3)
    for place, (value, low, high) in enumerate([(0.2, 0.19, 0.21), (0.4, 0.38, 0.42), (0.1, 0.05, 0.15)]):
        for suffix, number in (("", value), ("_low", low), ("_high", high)):
            study[f"discrepancy_jsd_over_heads{suffix}"][place] = number
    assert study_words.verdict(study) == (
        "What heads read and what their outputs depend on are furthest apart in layer 2, Jensen-Shannon divergence 0.400 nats "
        "(0.380 to 0.420), and closest in layer 3, 0.100 nats (0.050 to 0.150)."
    )
    study["discrepancy_jsd_over_heads_low"][1] = 0.12
    assert study_words.verdict(study).endswith("(0.050 to 0.150); these intervals overlap.")


def test_of_a_similarity_the_smallest_is_furthest_apart():
    study = make_study(layers=3, measures=("cosine",))
    study["discrepancy_cosine_over_heads"][:] = [0.5, 0.9, 0.7]
    assert re.search("furthest apart in layer 1, .* closest in layer 2,", study_words.verdict(study))


def test_sentences_say_the_numbers_of_the_study():
    study = make_study(layers=3)
    for name in ("own_share_over_heads", "dominant_agreement", "hidden_own_share"):
        for suffix, shift in (("", 0.0), ("_low", -0.01), ("_high", 0.02)):
            study[name + suffix][..., :] = np.array([0.5, 0.3, 0.1]) + shift
    mass = study["category_mass_over_heads"].sel(pattern="separator")
    mass.loc["attention"], mass.loc["attribution"] = [0.1, 0.3, 0.2], [0.05, 0.1, 0.15]
    for suffix in ("", "_low", "_high"):
        study[f"ladder_jsd_over_heads{suffix}"].loc[{"layer": 3}] = [0.4, 0.3, 0.2]
    text = study_words.sentences(study)
    assert "30.0% of attention and 30.0% of attribution stay on the own token" in text
    assert "of attribution from 50.0% (49.0% to 52.0%) in layer 1 to 10.0% (9.0% to 12.0%) in layer 3" in text
    assert "Separators receive 20.0% of attention and 10.0% of attribution; most attention falls on them in layer 2, 30.0% (" in text
    assert "where 10.0% (" in text
    assert "for 50.0% (49.0% to 52.0%) of heads in layer 1 but 10.0% (9.0% to 12.0%) in layer 3" in text
    assert "For heads of layer 3, the Jensen-Shannon divergence is 0.200 nats (0.200 to 0.200) when their outputs" in text
    assert "and 0.400 nats (0.400 to 0.400) when to the input of the first layer" in text
    assert "correlates by 0.41 (Mantel test, p = 0.001, 999 permutations)" in text
    assert "The own token keeps 10.0% (9.0% to 12.0%) of what the output of layer 3 depends on." in text


def test_the_table_holds_every_layer_and_the_words_are_on_the_page(page):
    study = make_study(layers=4, heads=3)
    for each in (study_words.verdict(study), study_words.sentences(study)):
        assert html.escape(each) in page
    rows = re.findall(r"<tr><th scope=row>(\d+)</th><td>([\d.]+)<small>([\d.]+) to ([\d.]+)</small></td>", page)
    for place, row in enumerate(rows):
        expected = [study[f"discrepancy_jsd_over_heads{suffix}"].values[place] for suffix in ("", "_low", "_high")]
        assert row == (str(place + 1), *(f"{number:.3f}" for number in expected))
    assert len(rows) == 4


def test_counts_and_rejections_are_said_by_reason():
    rejected = [{"number": number, "name": str(number), "reason": f"{100 + number} tokens, more than max_tokens=64"} for number in range(7)]
    rejected.append({"number": 40, "name": "forty", "reason": "The text is empty."})
    page = render_study(small(texts=1234, rejected=rejected))
    about = re.search('<ul class="about">(.*?)</ul>', page)[1]
    assert "1,234 texts" in about and "20,978 tokens" in about and "3 layers x 2 heads" in about and "8 rejected" in about
    assert "8 rows rejected" in page
    assert "7 rows: 100 tokens, more than max_tokens=64 (row 0, row 1, row 2, row 3, row 4 and 2 more)" in page
    assert "1 row: The text is empty. (row 40 “forty”)" in page
    assert "rejected</h2>" not in render_study(small())


def test_settings_are_all_there():
    page = render_study(small())
    for label, value in (("options probes", "8"), ("columns pair", "none"), ("weights fingerprint", "0" * 16), ("options measures", "jsd")):
        assert f"<dt>{label}</dt><dd>{value}</dd>" in page
    assert "attribution from a sketch (probes=8)" in page and "It is a sketch from random directions (probes=8)." in page
    exact = small()
    exact.attrs["settings"]["options"]["probes"] = None
    assert "exact attribution" in render_study(exact) and "random directions" not in render_study(exact)


def test_few_texts_are_warned_of():
    assert "5 texts: intervals from so few texts are too narrow." in render_study(small(texts=5))
    assert "Intervals need more than one text." in render_study(small(texts=1))
    assert 'class="notes"' not in render_study(small(texts=30))


def test_a_study_of_nothing_has_a_page():
    study = make_study(texts=0, layers=2)
    page = render_study(study)
    assert "No text of this corpus could be analysed." in page and "<figure" not in page and "By layer" not in page
    assert not re.search(r"\bnan\b", shown(page))


def test_what_is_no_study_is_refused():
    study = small()
    del study.attrs["study_schema"]
    with pytest.raises(StudyError, match=r"not a Study that can be shown\.\n  found: study_schema=None"):
        render_study(study)


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_a_browser_shows_every_picture_and_scrolls_in_one_direction(page, open_page, tmp_path, scheme, width):
    path = tmp_path / "study.html"
    path.write_text(page, encoding="utf-8")
    opened = open_page(path, color_scheme=scheme, viewport={"width": width, "height": 900}, java_script_enabled=False)
    sizes = opened.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(sizes) == page.count("<figure") and min(sizes) > 200
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    turned = opened.evaluate("getComputedStyle(document.images[0]).filter")
    assert ("invert" in turned) == (scheme == "dark")
