"""Cosine of the angle between two rows."""

from jaxtyping import Float
from torch import Tensor

from glocal.registry import registered


@registered(
    summary="cosine similarity",
    source="standard",
    limits="dominated by the largest shares",
    extra=(("unit", "none"), ("range", (0.0, 1.0)), ("larger_is", "more alike")),
)
def cosine(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """p . q / (||p|| ||q||); 0 to 1.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows]. A row with a NaN gives NaN.
    """
    p, q = attention.double(), attribution.double()
    # Rounding can exceed 1, of which the angle would be NaN.
    return ((p * q).sum(-1) / (p.square().sum(-1) * q.square().sum(-1)).sqrt()).clamp(max=1)
