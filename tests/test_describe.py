"""Patterns of a Story, labelled."""

import math

import numpy as np
import pytest
import torch
from stories import make_story

import glocal
from glocal import registry
from glocal.errors import ChoiceError, StoryError
from glocal.registry import registered


def test_both_faces_side_by_side():
    described = glocal.describe(make_story(n=6, layers=2, heads=3))
    assert list(described["map"].values) == ["attention", "attribution"]
    assert described.category_mass.dims == ("map", "layer", "head", "pattern")
    assert described.own_share.dims == described.entropy.dims == ("map", "layer", "head")
    assert described.position_profile.sizes["offset"] == 11
    assert described.targets.sel(offset=0) == 6


def test_numbers_are_those_of_the_maps():
    story = make_story(n=6, layers=2, heads=3)
    described = glocal.describe(story)
    for name in ("attention", "attribution"):
        own = np.diagonal(story[name].values, axis1=2, axis2=3).mean(-1)
        np.testing.assert_allclose(described.own_share.sel(map=name), own, rtol=1e-6)


def test_patterns_in_closed_form():
    """[CLS], two words, a full stop, [SEP]: attention is uniform, attribution stays where it is."""
    uniform, own = torch.full((1, 1, 5, 5), 0.2), torch.eye(5)[None, None]
    described = glocal.describe(make_story(n=5, layers=1, heads=1, variables={"attention": uniform, "attribution": own})).isel(
        layer=0, head=0
    )
    np.testing.assert_allclose(described.own_share, [0.2, 1])
    np.testing.assert_allclose(described.entropy, [math.log(5), 0], atol=1e-6)
    np.testing.assert_allclose(described.category_mass.sel(map="attention", pattern=["previous", "separator"]), [0.16, 0.2])
    # One target of five is the first token, one the separator, one the full stop: each draws on itself alone.
    expected = {"self": 1, "previous": 0, "next": 0, "first_special": 0.2, "separator": 0.2, "punctuation": 0.2, "other": 0}
    mass = described.category_mass.sel(map="attribution")
    assert {str(pattern): round(float(mass.sel(pattern=pattern)), 6) for pattern in mass.pattern.values} == expected
    np.testing.assert_allclose(described.position_profile.sel(map="attribution"), [0, 0, 0, 0, 1, 0, 0, 0, 0])
    assert described.targets.values.tolist() == [1, 2, 3, 4, 5, 4, 3, 2, 1]


def test_selected_targets_keep_their_positions():
    story = make_story(n=6, layers=2, heads=3)
    described = glocal.describe(story.sel(target=[1, 4], head=[2]))
    own = (story.attention.sel(target=1, source=1) + story.attention.sel(target=4, source=4)) / 2
    np.testing.assert_allclose(described.own_share.sel(map="attention", head=2), own.sel(head=2), rtol=1e-6)
    assert described.targets.sel(offset=[-4, 4]).values.tolist() == [1, 1] and described.targets.sel(offset=5) == 0


def test_rows_are_normalised_and_masked_ones_left_out():
    """Attention sinks take a part of every row; a masked row is NaN."""
    story = make_story(n=6)
    sunk = story.assign(attention=story.attention.copy(data=story.attention.values / 2))
    np.testing.assert_allclose(glocal.describe(sunk).entropy, glocal.describe(story).entropy, rtol=1e-5)
    values = story.attention.values.copy()
    values[:, :, 2] = np.nan
    masked = story.assign(attention=story.attention.copy(data=values))
    rest = glocal.describe(story.sel(target=[0, 1, 3, 4, 5]))
    for name in ("own_share", "entropy", "category_mass"):
        np.testing.assert_allclose(glocal.describe(masked)[name].sel(map="attention"), rest[name].sel(map="attention"), rtol=1e-6)


def test_one_map_is_enough():
    described = glocal.describe(make_story().drop_vars(["attention", "discrepancy_jsd"]))
    assert list(described["map"].values) == ["attribution"]


def test_hidden_states_are_described_without_heads():
    described = glocal.describe(make_story(of="hidden"))
    assert described.hidden_own_share.dims == ("layer",)
    assert list(described["map"].values) == ["attention"]
    alone = glocal.describe(make_story(of="hidden").drop_vars("attention"))
    assert set(alone.data_vars) == {f"hidden_{name}" for name in registry.names("patterns")}
    assert "head" not in alone.dims and "map" not in alone.dims


def test_every_variable_says_what_it_is():
    described = glocal.describe(make_story())
    assert {name: variable.attrs["unit"] for name, variable in described.data_vars.items()} == {
        "category_mass": "share",
        "own_share": "share",
        "entropy": "nats",
        "position_profile": "share",
    }
    assert all(variable.attrs["long_name"] for variable in described.data_vars.values())


def test_patterns_are_chosen_by_name_or_passed():
    def largest(maps, category, *, targets=None):
        return maps.amax((-2, -1))

    @registered(summary="share of every source", source="here", extra=(("dimension", "place"),))
    def received(maps, category, *, targets=None):
        return maps.mean(-2)

    story = make_story()
    described = glocal.describe(story, patterns=["entropy", largest, received])
    assert set(described.data_vars) == {"entropy", "largest", "received"}
    np.testing.assert_allclose(described.largest.sel(map="attention"), story.attention.max(["target", "source"]), rtol=1e-6)
    assert described.received.dims == ("map", "layer", "head", "place")
    with pytest.raises(ChoiceError, match="entropie"):
        glocal.describe(story, patterns=["entropie"])


@pytest.mark.parametrize("selection", [{"layer": 1}, {"target": 0}, {"source": [1, 2]}])
def test_selections_that_break_rows_or_dimensions_are_refused(selection):
    with pytest.raises(StoryError, match=next(iter(selection))):
        glocal.describe(make_story().sel(selection))


def test_a_story_without_maps_is_refused():
    with pytest.raises(StoryError, match="nothing to describe"):
        glocal.describe(make_story().drop_vars(["attention", "attribution"]))
