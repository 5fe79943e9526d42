"""Laws of every measure: a new file in measures/ is tested the day it lands."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glocal import registry
from glocal.errors import ChoiceError

NAMES = registry.names("measures")
SYMMETRIC = sorted(set(NAMES) - {"kl", "kl_reverse"})
CORRELATIONS = {"pearson", "spearman", "kendall"}  # undefined for constant rows
POSITIONAL = {"wasserstein"}  # the order of sources matters
every_measure = pytest.mark.parametrize("name", NAMES)


def rows(seed, shape=(3, 6)):
    values = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 1e-3
    return values / values.sum(-1, keepdim=True)


# Few distinct shares, zeros among them, so that ties and infinities are common.
counts = st.lists(st.integers(0, 3), min_size=6, max_size=6).filter(any)


def shares(*rows_of_counts):
    values = torch.tensor(rows_of_counts, dtype=torch.float64)
    return values / values.sum(-1, keepdim=True)


def measure(name):
    return registry.get("measures", name)


def facts(name):
    return dict(measure(name).card.extra)


@every_measure
def test_the_card_says_what_a_table_needs(name):
    card = measure(name).card
    assert card.summary and card.source and card.limits
    assert facts(name)["larger_is"] in {"more different", "more alike"}
    assert facts(name)["unit"] and len(facts(name)["range"]) == 2
    assert card.default == (name == "jsd")


@every_measure
def test_equal_rows_are_as_alike_as_can_be(name):
    lowest, highest = facts(name)["range"]
    best = lowest if facts(name)["larger_is"] == "more different" else highest
    value = measure(name)(rows(0), rows(0))
    torch.testing.assert_close(value, torch.full_like(value, best), atol=2e-8, rtol=0)


@every_measure
@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_values_stay_in_their_range(name, one, other):
    lowest, highest = facts(name)["range"]
    value = measure(name)(rows(one), rows(other))
    assert value.dtype == torch.float64 and value.shape == (3,)
    assert bool(((value >= lowest) & (value <= highest)).all())


@every_measure
@given(counts, counts)
def test_zeros_and_ties_stay_in_the_range_or_are_undefined(name, one, other):
    lowest, highest = facts(name)["range"]
    value = measure(name)(shares(one), shares(other)).item()
    undefined = value != value
    assert (undefined and name in CORRELATIONS) or lowest - 1e-12 <= value <= highest + 1e-12


@pytest.mark.parametrize("name", SYMMETRIC)
def test_order_of_the_two_does_not_matter(name):
    torch.testing.assert_close(measure(name)(rows(0), rows(1)), measure(name)(rows(1), rows(0)))


@every_measure
def test_disjoint_rows_are_as_different_as_can_be(name):
    p, q = torch.tensor([[0.5, 0.5, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 0.5, 0.5]])
    lowest, highest = facts(name)["range"]
    worst = highest if facts(name)["larger_is"] == "more different" else lowest
    if name == "wasserstein":
        worst = 2.0
    if name == "topk":
        worst = 2 / 3  # three of the four sources are always shared
    torch.testing.assert_close(measure(name)(p, q), torch.tensor([worst], dtype=torch.float64), atol=1e-7, rtol=0)


@every_measure
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_unreachable_sources_change_nothing(name, seed, count):
    """The future of a causal model: zeros that both rows share."""
    p, q, zeros = rows(seed), rows(seed + 1), torch.zeros(3, count, dtype=torch.float64)
    torch.testing.assert_close(measure(name)(torch.cat([p, zeros], -1), torch.cat([q, zeros], -1)), measure(name)(p, q))


@every_measure
@given(counts, counts, st.integers(1, 4))
def test_unreachable_sources_in_front_change_nothing(name, one, other, count):
    """The far past of a sliding window."""
    p, q, zeros = shares(one), shares(other), torch.zeros(1, count, dtype=torch.float64)
    wide = measure(name)(torch.cat([zeros, p], -1), torch.cat([zeros, q], -1))
    torch.testing.assert_close(wide, measure(name)(p, q), equal_nan=True)


@pytest.mark.parametrize("name", sorted(set(NAMES) - POSITIONAL))
@given(counts, counts, st.permutations(range(6)))
def test_order_of_sources_does_not_matter(name, one, other, order):
    p, q = shares(one, [6, 5, 4, 3, 2, 1]), shares(other, [1, 3, 2, 6, 5, 4])
    # Sums in another order round otherwise: a root of 1e-16 is 1e-8.
    torch.testing.assert_close(measure(name)(p[:, order], q[:, order]), measure(name)(p, q), atol=2e-8, rtol=0, equal_nan=True)


@every_measure
def test_masked_rows_are_nan_and_do_not_touch_others(name):
    p, q = rows(0), rows(1)
    expected = measure(name)(p, q)
    for broken in (p, q):
        kept = broken[1].clone()
        broken[1] = torch.nan
        value = measure(name)(p, q)
        assert value.isnan().tolist() == [False, True, False]
        torch.testing.assert_close(value[[0, 2]], expected[[0, 2]])
        broken[1] = kept


@every_measure
def test_a_batch_equals_singles(name):
    p, q = rows(0, (2, 3, 4, 6)), rows(1, (2, 3, 4, 6))
    whole = measure(name)(p, q)
    assert whole.shape == (2, 3, 4)
    for index in np.ndindex(2, 3, 4):
        torch.testing.assert_close(whole[index], measure(name)(p[index], q[index]))


@every_measure
def test_the_layout_in_memory_does_not_matter(name):
    p, q = rows(0, (4, 6)), rows(1, (4, 6))
    torch.testing.assert_close(measure(name)(p.T.contiguous().T, q.T.contiguous().T), measure(name)(p, q))


@every_measure
def test_float32_is_computed_in_float64(name):
    value = measure(name)(rows(0).float(), rows(1).float())
    assert value.dtype == torch.float64
    torch.testing.assert_close(value, measure(name)(rows(0), rows(1)), atol=1e-5, rtol=1e-5)


@every_measure
def test_arguments_are_not_changed(name):
    p, q = rows(0), rows(1)
    measure(name)(p, q)
    assert torch.equal(p, rows(0)) and torch.equal(q, rows(1))


def test_unknown_names_are_refused_with_all_names():
    with pytest.raises(ChoiceError, match="jsd"):
        registry.get("measures", "jds")
