"""How many tokens the mass has to travel."""

from jaxtyping import Float
from torch import Tensor

from glocal.registry import registered


@registered(
    summary="1-Wasserstein distance over positions",
    source="standard (earth mover's distance)",
    limits="positions count as evenly spaced; depends on word order by intention",
    extra=(("unit", "tokens"), ("range", (0.0, float("inf"))), ("larger_is", "more different")),
)
def wasserstein(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """sum over positions of |P_j - Q_j|, P and Q the cumulative sums: the mean way that mass travels; 0 to n - 1.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows] in tokens. A row with a NaN gives NaN.
    """
    return (attention.double() - attribution.double()).cumsum(-1).abs().sum(-1)
