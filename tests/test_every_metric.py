"""Laws of every faithfulness metric: a new file in metrics/ is tested the day it lands."""

import numpy as np
import pytest

from glocal import registry
from glocal.metrics._evidence import Evidence

NAMES = registry.names("metrics")
BINS, FRACTIONS = (0.1, 0.5), (0.25, 0.5, 0.75)
every_metric = pytest.mark.parametrize("name", NAMES)


def evidence(weights, scores, *, cues=(0,), saliency=None):
    """Of a model whose output is the sum of the weights of the tokens that are there (and of 1), fractions rounded up."""
    weights, scores = np.asarray(weights, dtype=float), np.asarray(scores, dtype=float)
    order = np.argsort(-scores, kind="stable")
    number = {each: int(np.ceil(len(weights) * each)) for each in (0.0, *BINS, *FRACTIONS)}
    kept = {each: float(1 + weights[order[:n]].sum()) for each, n in number.items()}
    removed = {each: float(1 + weights[order[n:]].sum()) for each, n in number.items()}
    known = np.zeros(len(weights), dtype=bool)
    known[list(cues)] = True
    whole = float(1 + weights.sum())
    return Evidence(
        scores, whole, removed, kept, BINS, FRACTIONS, {each: value > whole / 2 for each, value in removed.items()},
        whole - weights, weights if saliency is None else saliency, known,
    )  # fmt: skip


def metric(name, made):
    return registry.get("metrics", name)(made)


def better(name, one, other):
    direction = dict(registry.get("metrics", name).card.extra)["better"]
    return one > other if direction == "higher" else one < other


@every_metric
def test_the_card_says_what_a_table_needs(name):
    card = registry.get("metrics", name).card
    assert card.summary and card.source and card.limits and card.needs
    assert dict(card.extra)["better"] in {"higher", "lower"} and dict(card.extra)["unit"]


@every_metric
def test_true_scores_are_better_than_inverse_ones(name):
    weights = [4.0, 1.0, 3.0, 2.0]
    assert better(name, metric(name, evidence(weights, weights)), metric(name, evidence(weights, [5 - each for each in weights])))


@every_metric
def test_only_the_order_or_the_proportions_matter(name):
    weights, scores = [4.0, 1.0, 3.0, 2.0], np.array([4.0, 2.0, 3.0, 1.0])
    np.testing.assert_allclose(metric(name, evidence(weights, 7 * scores)), metric(name, evidence(weights, scores)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("comprehensiveness", (0 + 4 + 7) / 3),
        ("sufficiency", (10 + 6 + 3) / 3),
        ("aopc", (4 + 7 + 9) / 3),
        ("log_odds", (np.log(7 / 11) + np.log(4 / 11) + np.log(2 / 11)) / 3),
        ("deletion", (9 + 5.5 + 3) / 3),
        ("insertion", (3 + 6.5 + 9) / 3),
        ("accuracy_left", 1 / 3),
        ("blank_out", 1.0),
        ("blank_out_signed", 1.0),
        ("saliency_agreement", 1.0),
        ("cue_mass", 0.4),
        ("cue_precision", 1.0),
    ],
)
def test_values_by_hand(name, expected):
    assert np.isclose(metric(name, evidence([4.0, 1.0, 3.0, 2.0], [4.0, 1.0, 3.0, 2.0])), expected)


def test_every_metric_has_a_value_by_hand():
    assert {each for each, _ in test_values_by_hand.pytestmark[0].args[1]} == set(NAMES)


@pytest.mark.parametrize("name", ["blank_out", "blank_out_signed", "saliency_agreement"])
def test_correlations_with_constant_scores_are_undefined(name):
    assert np.isnan(metric(name, evidence([4.0, 1.0, 3.0], [1.0, 1.0, 1.0])))


@pytest.mark.parametrize("name", ["cue_mass", "cue_precision"])
def test_no_cues_no_value(name):
    assert np.isnan(metric(name, evidence([4.0, 1.0, 3.0], [1.0, 2.0, 3.0], cues=())))


def test_average_precision_counts_the_cues_before_each_cue():
    made = evidence([1.0, 1.0, 1.0, 1.0], [4.0, 3.0, 2.0, 1.0], cues=(1, 3))
    assert np.isclose(metric("cue_precision", made), (1 / 2 + 2 / 4) / 2)


def test_outputs_that_are_not_positive_have_no_log_odds():
    assert np.isnan(metric("log_odds", evidence([-4.0, 1.0, 3.0], [1.0, 2.0, 3.0])))


def test_the_sign_matters_to_the_signed_correlation_alone():
    weights = [4.0, -3.0, 1.0, 2.0]
    assert np.isclose(metric("blank_out_signed", evidence(weights, weights)), 1)
    assert np.isclose(metric("blank_out", evidence(weights, np.abs(weights))), 1)
    assert metric("blank_out_signed", evidence(weights, np.abs(weights))) < 1
