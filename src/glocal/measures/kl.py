"""Kullback-Leibler divergence of attention from attribution."""

from jaxtyping import Float
from torch import Tensor

from glocal.measures._rows import relative_entropy
from glocal.registry import registered


@registered(
    summary="Kullback-Leibler divergence KL(attention || attribution)",
    source="Kullback and Leibler 1951",
    limits="infinite where attribution is zero and attention is not; not symmetric",
    extra=(("unit", "nats"), ("range", (0.0, float("inf"))), ("larger_is", "more different")),
)
def kl(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """KL(attention || attribution) = sum over sources of p ln(p / q), p = attention, q = attribution; 0 to infinity.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows] in nats. A row with a NaN gives NaN. Infinite where
    attribution is zero and attention is not.
    """
    return relative_entropy(attention.double(), attribution.double())
