"""What the whole corpus shows, on masses whose answer is known."""

import numpy as np

from glocal.corpus.across import head_maps, persistence


def masses(heads=6, layers=2, seed=0):
    """[map, pattern, layer, head] of seven patterns."""
    made = np.random.default_rng(seed).dirichlet(np.ones(7), (2, layers, heads))
    return np.moveaxis(made, -1, 1)


def found(of, draws=None, seed=0):
    return {name: values for name, (_, values, _, _) in persistence(of, of[None] if draws is None else draws, seed=seed).items()}


def test_equal_maps_persist_wholly():
    same = masses()
    same[1] = same[0]
    out = found(same)
    for name in ("persistence", "mass_correlation"):
        np.testing.assert_allclose(out[name], 1)
    np.testing.assert_array_equal(out["dominant_agreement"], 1)


def test_correlations_are_those_of_numpy():
    of = masses(seed=3)
    out = found(of)
    assert np.isclose(out["persistence"][1, 2], np.corrcoef(of[0, :, 1, 2], of[1, :, 1, 2])[0, 1])
    assert np.isclose(out["mass_correlation"][4, 1], np.corrcoef(of[0, 4, 1], of[1, 4, 1])[0, 1])
    np.testing.assert_array_equal(out["dominant_pattern"], of.argmax(1))


def test_survival_is_told_from_what_shuffled_heads_give():
    of = np.full((2, 7, 1, 8), 0.1)
    of[0, 1, 0, :4] = of[1, 1, 0, :4] = 0.9  # four heads attend to the previous token, and depend on it
    of[0, 2, 0, 4:] = 0.9  # the others attend to the next token, and do not
    out = found(of)
    assert out["survival_heads"][:, 0].tolist() == [0, 4, 4, 0, 0, 0, 0]
    assert np.isclose(out["survival"][1, 0], 0.9) and np.isclose(out["survival_expected"][1, 0], 0.5)
    # One of the 70 choices of four heads reaches it.
    assert 0.005 < out["survival_p"][1, 0] < 0.03 and out["survival_p"][2, 0] == 1
    assert out["survival_expected_high"][1, 0] < 0.9
    assert np.isnan(out["survival"][0, 0]) and np.isnan(out["survival_p"][0, 0])


def test_intervals_come_from_the_draws():
    draws = np.stack([masses(seed=seed) for seed in range(100)])
    out = found(masses(), draws)
    values = [np.corrcoef(each[0, :, 0, 0], each[1, :, 0, 0])[0, 1] for each in draws]
    np.testing.assert_allclose([out["persistence_low"][0, 0], out["persistence_high"][0, 0]], np.quantile(values, [0.025, 0.975]))
    assert (out["dominant_agreement_low"] <= out["dominant_agreement_high"]).all()


def test_undefined_masses_stay_undefined():
    of = masses()
    of[1, :, 0, 2] = np.nan
    out = found(of)
    assert np.isnan(out["persistence"][0, 2]) and np.isfinite(out["persistence"][0, 1])
    assert out["dominant_pattern"][1, 0, 2] == -1 and np.isfinite(out["dominant_agreement"]).all()


def test_maps_of_heads_that_differ_by_layer_are_alike():
    place = np.random.default_rng(1).normal(size=(2, 3, 4, 2))
    place[1] = place[0] + 0.01
    flat = place.reshape(2, 12, 2)
    distance = (np.linalg.norm(flat[:, :, None] - flat[:, None], axis=-1) ** 2).reshape(2, 3, 4, 3, 4)
    maps, alike = head_maps(distance, seed=0)
    assert alike["correlation"] > 0.99 and alike["p"] == 0.001
    assert {name: values[1].shape for name, values in maps.items()}["head_place"] == (2, 3, 4, 2)
