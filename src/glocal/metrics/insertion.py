"""Height of the insertion curve."""

from glocal.metrics._evidence import Evidence, area
from glocal.registry import registered


@registered(
    summary="height of the insertion curve",
    source="Petsiuk et al. 2018 (1806.07421)",
    needs="kept",
    limits="as sufficiency",
    extra=(("unit", "output"), ("better", "higher")),
)
def insertion(evidence: Evidence) -> float:
    """Area under f(the top K alone) over K from 0 to the last fraction, divided by its length, in units of the output."""
    return area(evidence.kept, (0.0, *evidence.fractions))
