"""Means over targets that leave masked rows out."""

from jaxtyping import Float
from torch import Tensor


def mean_over_targets(values: Float[Tensor, "*maps target"]) -> Float[Tensor, "*maps"]:
    """Mean over the targets whose value is a number; NaN if there is none."""
    return values.nanmean(-1)
