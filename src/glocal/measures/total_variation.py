"""Total variation: the share that would have to be moved."""

from jaxtyping import Float
from torch import Tensor

from glocal.registry import registered


@registered(
    summary="total variation distance",
    source="standard",
    limits="blind to how far mass is moved",
    extra=(("unit", "share"), ("range", (0.0, 1.0)), ("larger_is", "more different")),
)
def total_variation(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """Half the sum of absolute differences: the share of mass that would have to move; 0 to 1.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows] (shares). A row with a NaN gives NaN.
    """
    return (attention.double() - attribution.double()).abs().sum(-1) / 2
