"""Area over the perturbation curve."""

from glocal.metrics._evidence import Evidence
from glocal.registry import registered


@registered(
    summary="area over the perturbation curve",
    source="Samek et al. 2017; Modarressi et al. 2023 (DecompX, 2306.02873)",
    needs="removed",
    limits="weighs all fractions alike, also those where nothing of the text is left",
    extra=(("unit", "output"), ("better", "higher")),
    default=True,
)
def aopc(evidence: Evidence) -> float:
    """Mean over the fractions K (10 to 90 % by default) of f(x) - f(x without the top K), in units of the output."""
    return float(sum(evidence.whole - evidence.removed[each] for each in evidence.fractions) / len(evidence.fractions))
