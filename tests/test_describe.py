"""Patterns of a Story, labelled."""

import numpy as np
import pytest
from stories import make_story

import glocal
from glocal.errors import StoryError


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


def test_hidden_states_are_described_without_heads():
    described = glocal.describe(make_story(of="hidden"))
    assert described.hidden_own_share.dims == ("layer",)
    assert list(described["map"].values) == ["attention"]


def test_a_story_without_maps_is_refused():
    with pytest.raises(StoryError, match="nothing to describe"):
        glocal.describe(make_story().drop_vars(["attention", "attribution"]))
