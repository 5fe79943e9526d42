"""Rank correlation with what leaving out each token alone changes."""

import numpy

from glocal.metrics._evidence import Evidence, rank_correlation
from glocal.registry import registered


@registered(
    summary="rank correlation with what leaving out each token alone changes",
    source="Abnar and Zuidema 2020 (2005.00928)",
    needs="single",
    limits="misses what tokens do together",
    extra=(("unit", "correlation"), ("better", "higher")),
    default=True,
)
def blank_out(evidence: Evidence) -> float:
    """Spearman's correlation over tokens of |scores| with |f(x) - f(x without the token)|; NaN where either is constant."""
    if evidence.single is None:
        return float("nan")
    return rank_correlation(numpy.abs(evidence.scores), numpy.abs(evidence.whole - evidence.single))
