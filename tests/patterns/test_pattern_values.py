"""Patterns in closed form."""

import math

import torch

from glocal.patterns.category_mass import PATTERNS, category_mass
from glocal.patterns.entropy import entropy
from glocal.patterns.own_share import own_share
from glocal.patterns.position_profile import pairs, position_profile

CATEGORY = ("first_special", "word", "word", "punctuation", "separator")
UNIFORM = torch.full((1, 1, 5, 5), 0.2, dtype=torch.float64)


def shifted(offset):
    """All mass at one relative position, where it exists."""
    return torch.eye(5, dtype=torch.float64).roll(offset, 1)[None, None]


def test_masses_of_a_uniform_map_count_sources():
    mass = dict(zip(PATTERNS, category_mass(UNIFORM, CATEGORY)[0, 0].tolist(), strict=True))
    # 5 targets of which one has no previous and one no next token.
    expected = {"self": 0.2, "previous": 0.2 * 4 / 5, "next": 0.2 * 4 / 5, "first_special": 0.2, "separator": 0.2, "punctuation": 0.2}
    for name, value in expected.items():
        assert math.isclose(mass[name], value), name


def test_neighbours_of_some_targets_are_told_by_their_positions():
    mass = category_mass(shifted(1)[:, :, [1, 3]], CATEGORY, targets=[1, 3])[0, 0]
    assert mass[PATTERNS.index("next")] == 1 and mass[PATTERNS.index("previous")] == mass[PATTERNS.index("self")] == 0


def test_a_source_of_two_patterns_counts_for_both_or_for_the_first():
    onto_separator = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    onto_separator[..., 4] = 1
    both = dict(zip(PATTERNS, category_mass(onto_separator, CATEGORY)[0, 0].tolist(), strict=True))
    first = dict(zip(PATTERNS, category_mass(onto_separator, CATEGORY, exclusive=True)[0, 0].tolist(), strict=True))
    # Target 4 is the separator itself, to target 3 it is the next token.
    assert both["separator"] == 1 and math.isclose(both["self"], 0.2) and math.isclose(both["next"], 0.2)
    assert math.isclose(first["separator"], 0.6) and math.isclose(first["self"], 0.2) and math.isclose(first["next"], 0.2)


def test_special_tokens_of_no_kind_are_other():
    onto_special = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    onto_special[..., 2] = 1
    assert category_mass(onto_special[:, :, :1], ("word", "word", "special"), targets=[0])[0, 0, PATTERNS.index("other")] == 1


def test_other_is_what_no_pattern_takes():
    mass = category_mass(UNIFORM, ("word",) * 5)[0, 0]
    assert math.isclose(mass[PATTERNS.index("other")], 0.2 * (5 * 5 - 5 - 4 - 4) / 5)
    assert math.isclose(mass.sum(), 1)


def test_exclusive_masses_sum_to_one():
    torch.testing.assert_close(category_mass(UNIFORM, CATEGORY, exclusive=True).sum(-1), torch.ones(1, 1, dtype=torch.float64))
    assert category_mass(UNIFORM, CATEGORY).sum() > 1


def test_special_tokens_are_told_by_category_and_not_by_position():
    onto_second = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    onto_second[..., 1] = 1
    category = ("word", "first_special", "word", "word", "word")
    assert category_mass(onto_second, category)[0, 0, PATTERNS.index("first_special")] == 1


def test_a_shifted_map_is_seen_by_its_neighbour_and_its_profile():
    previous = shifted(-1)
    previous[..., 0, :] = torch.nan  # the first token has no previous one
    assert category_mass(previous, CATEGORY)[0, 0, PATTERNS.index("previous")] == 1
    profile = position_profile(previous, CATEGORY)[0, 0]
    assert profile[3] == 1 and profile[4] == 0


def test_own_share_is_the_diagonal():
    assert own_share(shifted(0), CATEGORY).item() == 1
    assert own_share(UNIFORM[:, :, :1], CATEGORY, targets=[3]).item() == 0.2


def test_entropy_of_one_source_and_of_all():
    assert entropy(shifted(0), CATEGORY).item() == 0
    assert math.isclose(entropy(UNIFORM, CATEGORY).item(), math.log(5))
    assert math.isclose(entropy(shifted(0), CATEGORY, smoothing=1.0).item(), math.log(5))
    clark = [0.9999 + 0.0001 / 5, *[0.0001 / 5] * 4]
    assert math.isclose(entropy(shifted(0), CATEGORY, smoothing=0.0001).item(), -sum(a * math.log(a) for a in clark))


def test_profiles_average_over_the_targets_that_have_the_offset():
    profile = position_profile(UNIFORM, CATEGORY)[0, 0]
    torch.testing.assert_close(profile, torch.full((9,), 0.2, dtype=torch.float64))
    assert pairs(5) == [1, 2, 3, 4, 5, 4, 3, 2, 1]
    some = position_profile(UNIFORM[:, :, :1], CATEGORY, targets=[0])[0, 0]
    assert some[:4].isnan().all() and not some[4:].isnan().any()
