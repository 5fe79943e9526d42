"""Summaries merge in any order, and agree with numpy on all data at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glocal.corpus.moments import Bootstrap, Moments

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
    whole = Bootstrap.of(data, range(400), draws=200, seed=0)
    parts = Bootstrap.of(data[150:], range(150, 400), draws=200, seed=0).merge(Bootstrap.of(data[:150], range(150), draws=200, seed=0))
    np.testing.assert_allclose(parts.total, whole.total, atol=1e-9)
    low, high = whole.interval()
    spread = data.std(0, ddof=1) / 20
    np.testing.assert_allclose(high - low, 2 * 1.96 * spread, rtol=0.25)
    assert (low < data.mean(0)).all() and (data.mean(0) < high).all()


def test_what_is_nowhere_a_number_stays_undefined():
    data = np.array([[1.0, np.nan], [3.0, np.nan]])
    one = Moments.of(data)
    assert one.count.tolist() == [2, 0] and np.isnan(one.standard_error[1]) and one.mean[0] == 2
    low, _ = Bootstrap.of(data, [0, 1], draws=50, seed=0).interval()
    assert np.isnan(low[1]) and np.isfinite(low[0])
