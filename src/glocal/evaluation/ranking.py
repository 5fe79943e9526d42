"""Scores of explanations over texts -> means with intervals, ranks, and which differences are more than chance."""

from collections.abc import Mapping, Sequence

import numpy
import xarray
from numpy.typing import NDArray
from scipy import stats

from glocal.dims import EXPLANATION, METRIC, OTHER_EXPLANATION, TEXT

DRAWS = 2000


def ranking(
    values: NDArray[numpy.float64], explanations: Sequence[str], metrics: Mapping[str, str], *, seed: int, draws: int = DRAWS
) -> xarray.Dataset:
    """Values [metric, explanation, text] -> a Dataset; `metrics` says of each whether "higher" or "lower" is better.

    `value` [metric, explanation, text]; `mean`, `low`, `high` (95 %: percentiles of a bootstrap over texts, the same draws for all),
    `count` (texts that have a value for it), `rank` [metric, explanation] (1 is best, by mean). `difference` [metric, explanation,
    other_explanation]: how much better an explanation is than another one (positive whichever direction is better), over texts that have
    both, with `difference_low`, `_high`, and `difference_q`: two-sided p of the paired bootstrap, 2 (1 + draws beyond zero) / (1 + draws),
    corrected by Benjamini and Hochberg over all pairs of a metric.
    """
    times = _times(values.shape[-1], seed, draws)
    mean, low, high = _with_interval(values, times)
    sign = numpy.array([1.0 if better == "higher" else -1.0 for better in metrics.values()])
    better = sign[:, None, None, None] * (values[:, :, None] - values[:, None])
    difference, below, above, p = _with_interval(better, times, with_p=True)
    rank = numpy.full(mean.shape, numpy.nan)
    for row in range(len(rank)):
        known = numpy.isfinite(mean[row])
        rank[row, known] = stats.rankdata(-sign[row] * mean[row, known], method="min")
    by, pair = (METRIC, EXPLANATION), (METRIC, EXPLANATION, OTHER_EXPLANATION)
    return xarray.Dataset(
        {
            "value": ((*by, TEXT), values),
            "mean": (by, mean),
            "low": (by, low),
            "high": (by, high),
            "count": (by, numpy.isfinite(values).sum(-1)),
            "rank": (by, rank),
            "difference": (pair, difference),
            "difference_low": (pair, below),
            "difference_high": (pair, above),
            "difference_q": (pair, _corrected(p)),
        },
        {
            METRIC: list(metrics),
            EXPLANATION: list(explanations),
            OTHER_EXPLANATION: list(explanations),
            TEXT: numpy.arange(values.shape[-1]),
            "better": (METRIC, list(metrics.values())),
        },
    )


def interval(values: NDArray[numpy.float64], *, seed: int, draws: int = DRAWS) -> tuple[NDArray, ...]:
    """Mean over texts (the last axis) with the ends of its 95 % interval, by the same draws as in `ranking`."""
    return _with_interval(values, _times(values.shape[-1], seed, draws))


def _times(texts: int, seed: int, draws: int) -> NDArray:
    """How often every draw takes every text."""
    return numpy.random.default_rng(seed).multinomial(texts, numpy.full(texts, 1 / texts), size=draws)


def _with_interval(values: NDArray, times: NDArray, *, with_p: bool = False) -> tuple[NDArray, ...]:
    """Mean over the last axis and what a bootstrap says about it; undefined values are left out, of draws too."""
    valid = numpy.isfinite(values)
    filled = numpy.where(valid, values, 0.0)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(-1) / valid.sum(-1)
        drawn = (filled @ times.T) / (valid.astype(float) @ times.T)
    known = numpy.isfinite(drawn).any(-1)
    low, high = (numpy.full(mean.shape, numpy.nan) for _ in range(2))
    if known.any():
        low[known], high[known] = numpy.nanquantile(drawn[known], [0.025, 0.975], axis=-1)
    if not with_p:
        return mean, low, high
    beyond = numpy.minimum((drawn <= 0).sum(-1), (drawn >= 0).sum(-1))
    p = numpy.minimum(1.0, 2 * (1 + beyond) / (1 + drawn.shape[-1]))
    return mean, low, high, numpy.where(known, p, numpy.nan)


def _corrected(p: NDArray) -> NDArray:
    """Of every metric, over the pairs of two different explanations, each once."""
    q = numpy.full(p.shape, numpy.nan)
    first, second = numpy.triu_indices(p.shape[1], 1)
    for row in range(len(p)):
        found = p[row, first, second]
        known = numpy.isfinite(found)
        if known.any():
            kept = numpy.full(found.shape, numpy.nan)
            kept[known] = stats.false_discovery_control(found[known])
            q[row, first, second] = q[row, second, first] = kept
    return q
