"""Jensen-Shannon divergence: how far apart two distributions are."""

import math

from jaxtyping import Float
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.measures._rows import relative_entropy
from glocal.registry import registered


@registered(
    summary="Jensen-Shannon divergence",
    source="Lin 1991; Clark et al. 2019 compare heads by it",
    limits="a number for the whole row: it does not say where the two differ",
    extra=(("unit", "nats"), ("range", (0.0, 0.6931471805599453)), ("larger_is", "more different")),
    default=True,
)
def jsd(
    attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"], *, base: float = math.e
) -> Float[Tensor, "*rows"]:
    """Jensen-Shannon divergence between the two rows.

    (KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2; 0 to ln 2 (in units of `base`: nats by default, bits with base 2).

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows] in units of the base. A row with a NaN gives NaN.
    Raises `ChoiceError` unless the base is above 1.
    """
    if not 1 < base < math.inf:
        raise ChoiceError(
            "The base of the logarithm must be above 1.",
            asked=f"base={base}",
            allowed="2 for bits, math.e for nats",
            do="pass another base",
        )
    p, q = attention.double(), attribution.double()
    middle = (p + q) / 2
    return (relative_entropy(p, middle) + relative_entropy(q, middle)) / 2 / math.log(base)
