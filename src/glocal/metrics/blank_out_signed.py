"""Rank correlation with what leaving out each token alone takes away, sign and all."""

from glocal.metrics._evidence import Evidence, rank_correlation
from glocal.registry import registered


@registered(
    summary="rank correlation with the fall without each token alone, with its sign",
    source="after Abnar and Zuidema 2020 (2005.00928), without absolute values (glocal)",
    needs="single",
    limits="misses what tokens do together; scores without a sign cannot do well where tokens speak against the output",
    extra=(("unit", "correlation"), ("better", "higher")),
)
def blank_out_signed(evidence: Evidence) -> float:
    """Spearman's correlation over tokens of the scores with f(x) - f(x without the token); NaN where either is constant."""
    if evidence.single is None:
        return float("nan")
    return rank_correlation(evidence.scores, evidence.whole - evidence.single)
