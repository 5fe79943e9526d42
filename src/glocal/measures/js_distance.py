"""Jensen-Shannon distance: the divergence as a metric."""

import math

from jaxtyping import Float
from torch import Tensor

from glocal.measures.jsd import jsd
from glocal.registry import registered


@registered(
    summary="Jensen-Shannon distance, the square root of the divergence",
    source="Endres and Schindelin 2003",
    limits="more sensitive to small differences than the divergence",
    extra=(("unit", "square root of nats"), ("range", (0.0, 0.8325546111576977)), ("larger_is", "more different")),
)
def js_distance(
    attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"], *, base: float = math.e
) -> Float[Tensor, "*rows"]:
    """Square root of the Jensen-Shannon divergence, a metric; 0 to sqrt(ln 2).

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows], in square roots of the base's unit. A row with a
    NaN gives NaN.
    """
    return jsd(attention, attribution, base=base).sqrt()
