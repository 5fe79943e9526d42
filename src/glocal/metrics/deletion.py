"""Height of the deletion curve."""

from glocal.metrics._evidence import Evidence, area
from glocal.registry import registered


@registered(
    summary="height of the deletion curve",
    source="Petsiuk et al. 2018 (1806.07421)",
    needs="removed",
    limits="as comprehensiveness",
    extra=(("unit", "output"), ("better", "lower")),
)
def deletion(evidence: Evidence) -> float:
    """Area under f(x without the top K) over K from 0 to the last fraction, divided by its length, in units of the output."""
    return area({0.0: evidence.whole, **evidence.removed}, (0.0, *evidence.fractions))
