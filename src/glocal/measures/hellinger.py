"""Hellinger distance."""

from jaxtyping import Float
from torch import Tensor

from glocal.registry import registered


@registered(
    summary="Hellinger distance",
    source="Hellinger 1909",
    limits="weighs differences of small shares more than total variation does",
    extra=(("unit", "none"), ("range", (0.0, 1.0)), ("larger_is", "more different")),
)
def hellinger(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """||sqrt(p) - sqrt(q)||_2 / sqrt(2); 0 to 1.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows]. A row with a NaN gives NaN.
    """
    return ((attention.double().sqrt() - attribution.double().sqrt()).square().sum(-1) / 2).sqrt()
