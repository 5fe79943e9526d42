"""Plain data for the views: true to the Story, small, and independent of torch."""

import numpy as np
import pytest
from stories import make_story

import glocal
from glocal import registry
from glocal.views.figures import facts, numbers
from glocal.views.figures.measures import KNOWN, measures
from glocal.views.figures.packed import FINE_CELLS, packed, unpacked
from glocal.views.figures.payload import payload
from glocal.views.figures.visible import right_to_left, shortened, visible


def test_the_table_of_measures_is_that_of_the_registry():
    cards = registry.cards("measures")
    assert set(KNOWN) == set(cards)
    for name, (_, alike, low) in KNOWN.items():
        extra = dict(cards[name].extra)
        assert alike == (extra["larger_is"] == "more alike"), name
        assert low == (extra["range"][0] if extra["range"][0] == 0 else None), name


@pytest.mark.parametrize("n", [6, 100])
def test_maps_are_as_precise_as_they_say(n):
    story = make_story(n=n, layers=10, heads=12)
    data = payload(story)
    for name in ("attention", "attribution"):
        made = data["maps"][name]
        assert made["bits"] == (16 if story[name].size <= FINE_CELLS else 8)
        assert abs(unpacked(made) - story[name].values).max() <= made["error"] + 1e-6


def test_small_shares_are_kept_apart_in_eight_bits():
    values = np.tile(np.linspace(0.001, 0.02, 1000), 1001).reshape(1, 1, 1001, 1000)
    made = packed(values)
    assert made["bits"] == 8
    assert (abs(unpacked(made) - values) / values).max() < 0.13


def test_what_is_undefined_stays_undefined():
    story = make_story()
    story["attribution"].values[0, 0, 1] = np.nan
    story["discrepancy_jsd"].values[0, 1] = np.nan
    data = payload(story)
    assert np.isnan(unpacked(data["maps"]["attribution"])[0, 0, 1]).all()
    assert np.isfinite(unpacked(data["maps"]["attribution"])[0, 0, 0]).all()
    assert data["statistics"][0]["grid"][0][1] is None
    assert data["rows"]["discrepancy_jsd"][0][1] == [None] * 6


def test_numbers_are_those_of_the_story():
    story = make_story()
    data = payload(story)
    statistics = {each["name"]: np.array(each["grid"], float) for each in data["statistics"]}
    np.testing.assert_allclose(statistics["discrepancy_jsd"], story.discrepancy_jsd.mean("target"), atol=1e-5)
    described = glocal.describe(story)
    for face in ("attention", "attribution"):
        np.testing.assert_allclose(statistics[f"own_{face}"], described.own_share.sel(map=face), atol=1e-5)
        np.testing.assert_allclose(statistics[f"entropy_{face}"], described.entropy.sel(map=face), atol=1e-5)
        special = described.category_mass.sel(map=face, pattern=["first_special", "separator"]).sum("pattern")
        np.testing.assert_allclose(statistics[f"special_{face}"], special, atol=1e-5)


def test_means_leave_out_what_is_not_a_number():
    story = make_story()
    story["discrepancy_jsd"].values[0, 0, 2:4] = np.nan
    kept = story.discrepancy_jsd.values[0, 0, [0, 1, 4, 5]]
    assert numbers.discrepancy(story, "jsd")[0, 0] == pytest.approx(kept.mean())


def test_ladders_have_one_grid_per_measure():
    data = payload(make_story(layers=3, ladder=True, measures=("jsd", "spearman")))
    assert [each["name"] for each in data["ladders"]] == ["jsd", "spearman"]
    assert data["ladders"][0]["grid"][0][0][1:] == [None, None]


def test_a_text_without_special_tokens_has_no_such_columns():
    data = payload(make_story(tokens=["one", "two", "three"]))
    assert not [each for each in data["statistics"] if each["name"].startswith("special")]
    assert [figure["label"] for figure in data["figures"]] == ["mean discrepancy", "stays on the own token"]


def test_a_measure_of_ones_own_is_called_by_its_name():
    story = make_story(measures=("jsd",)).rename(discrepancy_jsd="discrepancy_my_own")
    story["discrepancy_my_own"].attrs["unit"] = "as my_own defines it"
    (measure,) = measures(story)
    assert (measure.label, measure.unit, measure.low) == ("my own", "", None)


def test_notes_are_counted_by_variable():
    story = make_story()
    story.attrs["notes"] = ["A sentence."]
    story.attrs["not_finite"] = [{"variable": "discrepancy_kl", "layer": 1, "head": head, "nan": 0, "infinite": 2} for head in range(1, 7)]
    story.attrs |= {"masked_rows": 1, "truncated": 90}
    assert facts.notes(story) == [
        "A sentence.",
        "90 tokens cut off at the end of the text.",
        "discrepancy_kl: 12 infinite values (L1 H1, L1 H2, L1 H3, L1 H4 and 2 more), left out of every mean.",
        "1 fully masked row of attention left out of every mean.",
    ]


def test_attention_sinks_are_said_and_divided_out():
    story = make_story()
    story["attention"] = story["attention"] * 0.8
    assert "attention sinks" in " ".join(facts.notes(story))
    np.testing.assert_allclose(numbers.maps(story)["attention"].sum("source"), 1, atol=1e-6)
    assert not facts.notes(make_story())


def test_a_story_of_ids_is_titled_by_its_tokens():
    story = make_story(tokens=["[CLS]", "a\x00", "[SEP]"])
    story.attrs["text"] = ""
    assert facts.title(story) == "[CLS] a␀ [SEP]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00\x1b\n", "a␀␛␊"),
        (" ", "␠"),
        ("\u2028", "␠"),
        ("👩‍👩‍👧 שלום", "👩‍👩‍👧 שלום"),
        ("\u202eabc", "\\u202eabc"),
        ("a\u200bb", "a\\u200bb"),
        ("\u200d", "\\u200d"),
        ("\ufe0f", "\\ufe0f"),
        ("\u0301", "◌\u0301"),
        ("\U000e0001", "\\U000e0001"),
        ("नमस्ते", "नमस्ते"),
    ],
    ids=ascii,
)
def test_nothing_in_a_text_is_hidden(text, shown):
    assert visible(text) == shown


def test_texts_are_cut_between_words():
    assert shortened("one two three", 20) == "one two three"
    assert shortened("one two three", 10) == "one two …"
    assert shortened("猫はマットの上に", 4) == "猫はマ…"


def test_direction_is_that_of_the_first_letter():
    assert right_to_left("... שלום world") and not right_to_left("world שלום") and not right_to_left("12")
