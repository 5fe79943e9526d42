"""Summaries merge in any order, and agree with numpy on all data at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glocal.corpus.moments import Bootstrap, Moments, Quantiles, interval, poisson_draws

values = arrays(np.float64, st.tuples(st.integers(1, 6), st.just(2)), elements=st.floats(-1e6, 1e6) | st.just(np.nan))


def close(one, other):
    for name in ("count", "mean", "squares"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-3 if name == "squares" else 1e-9)


@given(values, values, values)
def test_merging_is_associative_and_commutative(a, b, c):
    one, two, three = map(Moments.of, (a, b, c))
    close(one.merge(two).merge(three), one.merge(two.merge(three)))
    close(one.merge(two), two.merge(one))
    close(one.merge(two).merge(three), Moments.of(np.concatenate([a, b, c])))


def test_ten_million_values_of_mixed_scale():
    generator = np.random.default_rng(0)
    data = generator.standard_normal(10_000_000) * 10.0 ** generator.integers(-3, 4, 10_000_000) + 1e4
    merged = None
    for piece in np.array_split(data, 997):
        one = Moments.of(piece[:, None])
        merged = one if merged is None else merged.merge(one)
    np.testing.assert_allclose(merged.mean, data.mean(), rtol=1e-9)
    np.testing.assert_allclose(merged.squares / (len(data) - 1), data.var(ddof=1), rtol=1e-9)


def test_the_bootstrap_does_not_depend_on_the_pieces_and_covers():
    data = np.random.default_rng(1).standard_normal((400, 3))
    of = lambda first, last: Bootstrap.of(data[first:last], poisson_draws(range(first, last), draws=200, seed=0))  # noqa: E731
    whole, parts = of(0, 400), of(150, 400).merge(of(0, 150))
    np.testing.assert_allclose(parts.total, whole.total, atol=1e-9)
    low, high = interval(whole.means)
    spread = data.std(0, ddof=1) / 20
    np.testing.assert_allclose(high - low, 2 * 1.96 * spread, rtol=0.25)
    assert (low < data.mean(0)).all() and (data.mean(0) < high).all()


def test_what_is_nowhere_a_number_stays_undefined():
    data = np.array([[1.0, np.nan], [3.0, np.nan]])
    one = Moments.of(data)
    assert one.count.tolist() == [2, 0] and np.isnan(one.standard_error[1]) and one.mean[0] == 2
    low, _ = interval(Bootstrap.of(data, poisson_draws([0, 1], draws=50, seed=0)).means)
    assert np.isnan(low[1]) and np.isfinite(low[0])


@given(values, values, values)
def test_quantiles_merge_exactly_in_any_order(a, b, c):
    one, two, three = map(Quantiles.of, (a, b, c))
    np.testing.assert_array_equal(one.merge(two).merge(three).counts, three.merge(one.merge(two)).counts)
    np.testing.assert_array_equal(one.merge(two).merge(three).counts, Quantiles.of(np.concatenate([a, b, c])).counts)


def test_quantiles_are_right_to_half_a_percent():
    data = np.random.default_rng(2).lognormal(-2, 1, (5001, 2)) * [1, -1]
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    found = Quantiles.of(data).at(levels)
    np.testing.assert_allclose(found, np.quantile(data, levels, axis=0, method="lower"), rtol=0.0051)
    assert np.isnan(Quantiles.of(np.full((3, 1), np.nan)).at([0.5])).all()
    assert Quantiles.of(np.zeros((3, 1))).at([0.5]) == 0
