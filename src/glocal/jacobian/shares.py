"""Squared norms -> shares over sources, and how well a sketch knows both."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.jacobian.squares import Squares


class Errors(NamedTuple):
    """Standard errors of the norms and of their shares, of one layer, such that 1.96 of them cover 95 %."""

    of_norm: Float[Tensor, "head target source"]
    of_share: Float[Tensor, "head target source"]


def shares(norm: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows source"]:
    """norm / sum over sources; a row without any dependence gives NaN."""
    return norm / norm.sum(-1, keepdim=True)


def share_errors(norm: Float[Tensor, "*rows source"], variance: Float[Tensor, "*rows source"]) -> tuple[Tensor, Tensor]:
    """Standard errors of the norms and of their shares, to first order, from the variances of the squared norms.

    Var g = Var(g^2) / (4 g^2); Var s_j = ((1 - 2 s_j) Var g_j + s_j^2 sum_k Var g_k) / (sum g)^2, as sources are independent.
    """
    of_norm = torch.where(norm > 0, variance / (4 * norm.square()), torch.zeros_like(norm))
    share, total = shares(norm), norm.sum(-1, keepdim=True)
    of_share = ((1 - 2 * share) * of_norm + share.square() * of_norm.sum(-1, keepdim=True)) / total.square()
    return of_norm.sqrt(), of_share.clamp(min=0).sqrt()


def errors(squares: Squares) -> list[Errors]:
    """Standard errors layer by layer; nothing for exact squares."""
    result = []
    for layer, variance in enumerate(squares.variance or ()):
        of_norm, of_share = share_errors(squares.value[layer].sqrt(), variance)
        if squares.share_variance is not None:
            of_share = squares.share_variance[layer].sqrt()
        result.append(Errors(of_norm * squares.inflation, of_share * squares.inflation))
    return result


def row_error(squares: Squares) -> float:
    """Estimated mean total variation between a row of shares and the exact one; 0 for exact squares.

    E|error| of a normal error is sqrt(2/pi) standard errors; half their sum over sources is the total variation.
    """
    if squares.variance is None:
        return 0.0
    rows = torch.cat([each.of_share.sum(-1).flatten() for each in errors(squares)])
    return (rows[rows.isfinite()].mean() / squares.inflation / 2 * math.sqrt(2 / math.pi)).item()
