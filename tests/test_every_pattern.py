"""Laws of every pattern: a new file in patterns/ is tested the day it lands."""

import pytest
import torch

from glocal import registry

NAMES = registry.names("patterns")
every_pattern = pytest.mark.parametrize("name", NAMES)
CATEGORY = ("first_special", "word", "word", "punctuation", "separator")


def maps(seed=0, targets=5):
    values = torch.rand(2, 3, targets, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values / values.sum(-1, keepdim=True)


def pattern(name):
    return registry.get("patterns", name)


@every_pattern
def test_the_card_says_what_a_table_needs(name):
    card = pattern(name).card
    assert card.summary and card.source and card.limits


@every_pattern
def test_a_batch_equals_singles(name):
    whole = pattern(name)(maps(), CATEGORY)
    assert whole.shape[:2] == (2, 3)
    for layer in range(2):
        for head in range(3):
            single = pattern(name)(maps()[layer : layer + 1, head : head + 1], CATEGORY)
            torch.testing.assert_close(single[0, 0], whole[layer, head], equal_nan=True)


@every_pattern
def test_masked_rows_are_left_out(name):
    masked = maps()
    masked[:, :, 2] = torch.nan
    rest = [0, 1, 3, 4]
    expected = pattern(name)(maps()[:, :, rest], CATEGORY, targets=rest)
    torch.testing.assert_close(pattern(name)(masked, CATEGORY), expected, equal_nan=True)


@every_pattern
def test_naming_all_targets_changes_nothing(name):
    torch.testing.assert_close(pattern(name)(maps(), CATEGORY, targets=range(5)), pattern(name)(maps(), CATEGORY))
