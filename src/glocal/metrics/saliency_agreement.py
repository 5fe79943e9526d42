"""Rank correlation with another method's scores."""

import numpy

from glocal.metrics._evidence import Evidence, rank_correlation
from glocal.registry import registered


@registered(
    summary="rank correlation with another method's scores",
    source="Modarressi et al. 2022 (GlobEnc, 2205.03286)",
    needs="a reference method",
    limits="agreement, not faithfulness: it is as good as the reference",
    extra=(("unit", "correlation"), ("better", "higher")),
)
def saliency_agreement(evidence: Evidence) -> float:
    """Spearman's correlation over tokens of |scores| with those of the reference method (gradient x input by default)."""
    if evidence.saliency is None:
        return float("nan")
    return rank_correlation(numpy.abs(evidence.scores), numpy.abs(evidence.saliency))
