"""Jensen-Shannon divergence: how far apart two distributions are."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

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
    """
    p, q = attention.double(), attribution.double()
    middle = (p + q) / 2
    half = lambda x: (torch.xlogy(x, x) - torch.xlogy(x, middle)).sum(-1)  # noqa: E731
    return ((half(p) + half(q)) / 2).clamp(min=0) / math.log(base)
