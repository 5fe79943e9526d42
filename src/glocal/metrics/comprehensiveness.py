"""How far the output falls without the highest-scoring tokens."""

from glocal.metrics._evidence import Evidence
from glocal.registry import registered


@registered(
    summary="how far the output falls without the highest-scoring tokens",
    source="DeYoung et al. 2020 (1911.03429), ERASER",
    needs="removed",
    limits="a text without these tokens is not one that the model was trained on",
    extra=(("unit", "output"), ("better", "higher")),
    default=True,
)
def comprehensiveness(evidence: Evidence) -> float:
    """Mean fall of the output without the highest-scoring tokens.

    (sum over b in B of f(x) - f(x without the top b)) / (|B| + 1), B the bins (1, 5, 10, 20, 50 % by default); the empty set counts as a
    bin without a fall, as in ERASER. In units of the output.
    """
    return float(sum(evidence.whole - evidence.removed[each] for each in evidence.bins) / (len(evidence.bins) + 1))
