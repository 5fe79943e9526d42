"""Share of fractions at which the class is still the right one."""

import numpy

from glocal.metrics._evidence import Evidence
from glocal.registry import registered


@registered(
    summary="share of fractions at which the class is still the right one",
    source="Modarressi et al. 2023 (DecompX, 2306.02873)",
    needs="removed, and an output that is a class",
    limits="coarse: it sees only whether the class changes",
    extra=(("unit", "share"), ("better", "lower")),
)
def accuracy_left(evidence: Evidence) -> float:
    """Mean over the fractions of whether the class of x without the top K is still the right one (share); NaN where there is no class."""
    found = [evidence.right[each] for each in evidence.fractions if each in evidence.right]
    return float(numpy.mean(found)) if found else float("nan")
