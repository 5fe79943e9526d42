"""Average precision of ranking the tokens that are known to matter."""

import numpy

from glocal.metrics._evidence import Evidence
from glocal.registry import registered


@registered(
    summary="average precision of ranking the tokens that are known to matter",
    source="Mohebbi et al. 2023 (Value Zeroing, 2301.12971)",
    needs="cues",
    limits="needs tokens that are known to matter",
    extra=(("unit", "share"), ("better", "higher")),
)
def cue_precision(evidence: Evidence) -> float:
    """Mean over the cues of the share of cues among the tokens scored at least as high; tied tokens come in the order of the text.

    NaN without cues.
    """
    if evidence.cues is None or not evidence.cues.any():
        return float("nan")
    order = numpy.argsort(-numpy.nan_to_num(evidence.scores, nan=-numpy.inf), kind="stable")
    found = evidence.cues[order]
    precision = numpy.cumsum(found) / numpy.arange(1, len(found) + 1)
    return float(precision[found].mean())
