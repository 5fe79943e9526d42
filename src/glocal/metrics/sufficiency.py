"""How far the output falls with the highest-scoring tokens alone."""

from glocal.metrics._evidence import Evidence
from glocal.registry import registered


@registered(
    summary="how far the output falls with the highest-scoring tokens alone",
    source="DeYoung et al. 2020 (1911.03429), ERASER",
    needs="kept",
    limits="a few tokens alone are not a text that the model was trained on",
    extra=(("unit", "output"), ("better", "lower")),
    default=True,
)
def sufficiency(evidence: Evidence) -> float:
    """Mean fall of the output with only the highest-scoring tokens.

    (f(x) - f(nothing) + sum over b in B of f(x) - f(the top b)) / (|B| + 1). In units of the output.
    """
    falls = [evidence.whole - evidence.kept[each] for each in (0.0, *evidence.bins)]
    return float(sum(falls) / len(falls))
