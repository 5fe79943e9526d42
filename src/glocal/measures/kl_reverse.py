"""Kullback-Leibler divergence of attribution from attention."""

from jaxtyping import Float
from torch import Tensor

from glocal.measures._rows import relative_entropy
from glocal.registry import registered


@registered(
    summary="Kullback-Leibler divergence KL(attribution || attention)",
    source="Kullback and Leibler 1951",
    limits="infinite where attention is zero and attribution is not; not symmetric",
    extra=(("unit", "nats"), ("range", (0.0, float("inf"))), ("larger_is", "more different")),
)
def kl_reverse(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """KL(attribution || attention) = sum over sources of p ln(p / q), p = attribution, q = attention; 0 to infinity.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows] in nats. A row with a NaN gives NaN. Infinite where
    attention is zero and attribution is not.
    """
    return relative_entropy(attribution.double(), attention.double())
