"""Share of the scores on tokens that are known to matter."""

import numpy

from glocal.metrics._evidence import Evidence
from glocal.registry import registered


@registered(
    summary="share of the scores on tokens that are known to matter",
    source="Mohebbi et al. 2023 (Value Zeroing, 2301.12971)",
    needs="cues",
    limits="needs tokens that are known to matter; scores below zero count as zero",
    extra=(("unit", "share"), ("better", "higher")),
)
def cue_mass(evidence: Evidence) -> float:
    """Sum of the scores on the cues over the sum of all, both without what is negative (share); NaN without cues or scores."""
    if evidence.cues is None or not evidence.cues.any():
        return float("nan")
    scores = numpy.maximum(numpy.nan_to_num(evidence.scores), 0)
    return float(scores[evidence.cues].sum() / scores.sum()) if scores.sum() > 0 else float("nan")
