"""What all metrics are computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[numpy.float64]


@dataclass(frozen=True)
class Evidence:
    """One method's scores of one text, and what the explained output did when tokens were taken away in their order.

    `scores` [token] and the arrays beside it are of the tokens that may be taken away, in the order of the text. Curves map a fraction
    of these tokens to the output without the highest-scoring ones (`removed`) or with only these (`kept`); `bins` and `fractions` are the
    two sets of fractions that metrics use.
    """

    scores: Array
    whole: float
    removed: Mapping[float, float]
    kept: Mapping[float, float]
    bins: tuple[float, ...]
    fractions: tuple[float, ...]
    right: Mapping[float, bool] = field(default_factory=dict)  # whether the class is still the right one, fractions removed
    single: Array | None = None  # output without this token alone
    saliency: Array | None = None  # scores of the method taken as reference
    cues: NDArray[numpy.bool_] | None = None  # tokens that are known to matter


def rank_correlation(one: Array, other: Array) -> float:
    """Spearman's correlation with average ranks; NaN where either is constant or has fewer than two finite values."""
    valid = numpy.isfinite(one) & numpy.isfinite(other)
    if valid.sum() < 2 or numpy.ptp(one[valid]) == 0 or numpy.ptp(other[valid]) == 0:
        return float("nan")
    return float(numpy.corrcoef(stats.rankdata(one[valid]), stats.rankdata(other[valid]))[0, 1])


def area(curve: Mapping[float, float], fractions: tuple[float, ...]) -> float:
    """Mean height of a curve between its first and its last fraction, by trapezes."""
    x, y = numpy.asarray(fractions), numpy.asarray([curve[each] for each in fractions])
    return float(numpy.trapezoid(y, x) / (x[-1] - x[0]))
