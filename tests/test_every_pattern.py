"""Laws of every pattern: a new file in patterns/ is tested the day it lands."""

import pytest
import torch

from glocal import registry
from glocal.errors import ChoiceError

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
    assert card.summary and card.source and card.limits and dict(card.extra)["unit"]


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


@every_pattern
def test_float32_is_accepted(name):
    torch.testing.assert_close(pattern(name)(maps().float(), CATEGORY).double(), pattern(name)(maps(), CATEGORY), atol=1e-6, rtol=1e-6)


@every_pattern
def test_targets_without_any_row_that_is_a_number_are_undefined(name):
    assert pattern(name)(torch.full((1, 1, 5, 5), torch.nan), CATEGORY).isnan().all()


@every_pattern
def test_the_map_is_not_changed(name):
    given = maps()
    pattern(name)(given, CATEGORY)
    assert torch.equal(given, maps())


@every_pattern
@pytest.mark.parametrize("targets", [None, [0, 1], [5], [-1]])
def test_targets_that_do_not_fit_are_refused(name, targets):
    """One row must not be spread over all positions."""
    with pytest.raises(ChoiceError, match="1 rows over 5 sources"):
        pattern(name)(maps(targets=1), CATEGORY, targets=targets)


@every_pattern
def test_categories_that_do_not_fit_are_refused(name):
    with pytest.raises(ChoiceError, match="1 categories"):
        pattern(name)(maps(), CATEGORY[:1])
