"""Values against scipy, and in closed form."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import distance

from glocal import registry
from glocal.errors import ChoiceError
from glocal.measures._rows import normalise_rows

SOURCES = np.arange(7)
ORACLES = {
    "jsd": lambda p, q: distance.jensenshannon(p, q) ** 2,
    "js_distance": distance.jensenshannon,
    "kl": stats.entropy,
    "kl_reverse": lambda p, q: stats.entropy(q, p),
    "total_variation": lambda p, q: abs(p - q).sum() / 2,
    "hellinger": lambda p, q: np.linalg.norm(np.sqrt(p) - np.sqrt(q)) / math.sqrt(2),
    "cosine": lambda p, q: 1 - distance.cosine(p, q),
    "pearson": lambda p, q: stats.pearsonr(p, q).statistic,
    "spearman": lambda p, q: stats.spearmanr(p, q).statistic,
    "kendall": lambda p, q: stats.kendalltau(p, q).statistic,
    "wasserstein": lambda p, q: stats.wasserstein_distance(SOURCES, SOURCES, p, q),
}
# Few distinct counts, so that ties are common.
counts = st.lists(st.integers(1, 5), min_size=7, max_size=7).filter(lambda row: len(set(row)) > 1)


@pytest.mark.parametrize("name", ORACLES)
@given(counts, counts)
def test_values_equal_scipys(name, one, other):
    p, q = np.array(one) / sum(one), np.array(other) / sum(other)
    value = registry.get("measures", name)(torch.tensor(p[None]), torch.tensor(q[None])).item()
    assert value == pytest.approx(ORACLES[name](p, q), abs=2e-8)


def call(name, p, q, **options):
    return registry.get("measures", name)(torch.tensor([p]), torch.tensor([q]), **options).item()


def test_bits_are_nats_over_ln_2():
    p, q = [0.75, 0.25], [0.25, 0.75]
    assert call("jsd", p, q, base=2) == pytest.approx(call("jsd", p, q) / math.log(2))
    assert call("jsd", [1.0, 0.0], [0.0, 1.0], base=2) == pytest.approx(1)
    assert call("js_distance", p, q, base=2) == pytest.approx(math.sqrt(call("jsd", p, q, base=2)))


@pytest.mark.parametrize("base", [1, 0, -2, math.inf, math.nan])
@pytest.mark.parametrize("name", ["jsd", "js_distance"])
def test_a_base_that_is_no_base_is_refused(name, base):
    with pytest.raises(ChoiceError, match="above 1"):
        call(name, [0.5, 0.5], [1.0, 0.0], base=base)


def test_the_cosine_of_a_row_with_itself_has_an_angle():
    row = normalise_rows(torch.rand(1000, 7, dtype=torch.float64))
    assert not registry.get("measures", "cosine")(row, row).arccos().isnan().any()


def test_kl_is_infinite_where_the_other_has_nothing():
    assert call("kl", [0.5, 0.5], [1.0, 0.0]) == math.inf
    assert call("kl", [1.0, 0.0], [0.5, 0.5]) == pytest.approx(math.log(2))


@pytest.mark.parametrize("name", ["pearson", "spearman", "kendall"])
def test_correlations_of_constant_rows_are_undefined(name):
    assert math.isnan(call(name, [0.5, 0.5], [0.9, 0.1]))
    assert math.isnan(call(name, [1.0], [1.0]))
    assert math.isnan(call(name, [1 / 3, 1 / 3, 1 / 3], [0.2, 0.3, 0.5]))


def test_ties_for_the_largest_share_count_as_a_set():
    assert call("top1", [0.4, 0.4, 0.2], [0.1, 0.8, 0.1]) == 1
    assert call("top1", [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]) == 0


def test_topk_is_cut_to_what_can_be_reached():
    p, q = [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]
    assert call("topk", p, q, k=1) == 0
    assert call("topk", p, q, k=2) == 0
    assert call("topk", p, q, k=3) == pytest.approx(2 / 3)
    assert call("topk", p, q, k=9) == 1
    assert call("topk", [1.0, 0.0], [1.0, 0.0]) == 1
    with pytest.raises(ChoiceError, match="k=0"):
        call("topk", p, q, k=0)


def test_ties_for_the_last_places_share_them():
    # One place for two sources: half of it each.
    assert call("topk", [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], k=1) == 0.5
    assert call("topk", [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], k=1) == 0
    assert call("topk", [0.4, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 0.4], k=2) == pytest.approx((1 / 3 + 1 / 3 + 1 / 3 + 1 / 3) / 2)


def test_topk_counts_only_what_can_be_reached():
    # A sliding window: the first source is out of reach, and must not fill a place.
    assert call("topk", [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], k=2) == 1


def test_mass_travels_in_tokens():
    assert call("wasserstein", [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]) == 3
    assert call("wasserstein", [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]) == 1


def test_kendall_in_chunks_of_rows_is_the_same(monkeypatch):
    from glocal.measures import kendall as module

    p, q = torch.rand(40, 7, dtype=torch.float64), torch.rand(40, 7, dtype=torch.float64)
    whole = module.kendall(p, q)
    monkeypatch.setattr(module, "_CELLS", 7 * 7 * 3)
    assert torch.equal(module.kendall(p, q), whole)


def test_rows_are_divided_by_their_sum_and_empty_ones_are_nan():
    rows = normalise_rows(torch.tensor([[1.0, 3.0], [0.0, 0.0], [torch.nan, 1.0]], dtype=torch.float64))
    assert rows[0].tolist() == [0.25, 0.75]
    assert rows[1:].isnan().all()
