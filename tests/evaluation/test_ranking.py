"""Means, intervals, ranks and significance over texts."""

import numpy as np
import pytest
from scipy import stats

from glocal.errors import ChoiceError
from glocal.evaluation.order import count, highest, shuffled
from glocal.evaluation.ranking import ranking


def made(values, better=("higher",)):
    values = np.asarray(values, dtype=float)
    metrics = {f"metric{number}": direction for number, direction in enumerate(better)}
    return ranking(values, [f"method{number}" for number in range(values.shape[1])], metrics, seed=0)


def test_a_method_that_is_better_in_every_text_is_ranked_first_and_significantly():
    texts = np.random.default_rng(0).normal(size=40)
    for direction, first in (("higher", 1), ("lower", 0)):
        out = made([[texts, texts + 0.1, texts + np.random.default_rng(1).normal(size=40)]], (direction,))
        assert out["rank"].sel(explanation=f"method{first}").item() < out["rank"].sel(explanation=f"method{1 - first}").item()
        pair = out.sel(explanation=f"method{first}", other_explanation=f"method{1 - first}").isel(metric=0)
        assert np.isclose(pair["difference"], 0.1) and pair["difference_q"] < 0.01
        # Every draw has the same difference, though means differ much from draw to draw: the comparison is paired.
        assert np.isclose(pair["difference_low"], 0.1) and np.isclose(pair["difference_high"], 0.1)
        assert out["high"][0, 0] - out["low"][0, 0] > 0.3


def test_intervals_cover_the_mean_and_agree_with_scipy():
    values = np.random.default_rng(3).exponential(size=(1, 1, 200))
    out = made(values)
    assert np.isclose(out["mean"].item(), values.mean())
    other = stats.bootstrap((values.ravel(),), np.mean, method="percentile", random_state=0).confidence_interval
    assert abs(out["low"].item() - other.low) < 0.03 and abs(out["high"].item() - other.high) < 0.03


def test_equal_methods_tie_and_do_not_differ():
    texts = np.random.default_rng(0).normal(size=20)
    out = made([[texts, texts]])
    assert out["rank"].values.tolist() == [[1, 1]] and out["difference_q"][0, 0, 1].item() == 1
    assert np.isnan(out["difference_q"].values[0, 0, 0])


def test_undefined_values_are_left_out_and_counted():
    out = made([[[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan], [0.0, 5.0, 1.0]]])
    assert out["count"].values.tolist() == [[2, 0, 3]] and out["mean"].values[0, 0] == 2
    assert np.isnan(out["mean"].values[0, 1]) and np.isnan(out["rank"].values[0, 1])
    assert out["difference"].values[0, 0, 2] == 1.5  # texts 0 and 2 only


@pytest.mark.parametrize(
    ("tokens", "fraction", "rounding", "expected"),
    [(30, 0.1, "ceil", 3), (9, 0.1, "ceil", 1), (9, 0.1, "floor", 0), (25, 0.1, "round", 2), (35, 0.1, "round", 4), (7, 1.0, "floor", 7)],
)
def test_counts(tokens, fraction, rounding, expected):
    assert count(tokens, fraction, rounding) == expected


def test_an_unknown_rounding_is_refused():
    with pytest.raises(ChoiceError, match=r"rounding .up.*\n.*\n.*ceil, floor, round"):
        count(3, 0.1, "up")


def test_ties_come_in_the_order_of_the_text_and_undefined_scores_last():
    scores = np.array([1.0, np.nan, 2.0, 1.0, -5.0])
    assert [highest(scores, number) for number in (1, 2, 4)] == [{2}, {0, 2}, {0, 2, 3, 4}]
    assert sorted(shuffled(5, 0, 1)) == [0, 1, 2, 3, 4] and not np.array_equal(shuffled(50, 0, 1), shuffled(50, 0, 2))
