"""Straight forward mode: push tangents from the origin through all layers at once.

Every head output is on the way of one forward pass, so that `vmap(jvp)` over the tangents gives the Jacobian of every head of every
layer in one sweep. The primal pass is not batched: only tangents are.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jvp, vmap

from glocal.jacobian.rules import CheapTangents
from glocal.jacobian.seeds import Seeds

Function = Callable[[Tensor], tuple[Tensor, ...]]
Energy = Callable[[Tensor], Tensor]  # [chunk, target, ...] tangents of one layer's outputs -> squares [chunk, head, target]


@dataclass(frozen=True)
class Squares:
    """Squared norms of Jacobian blocks per layer, in float64, and for a sketch the variance of each estimate."""

    value: tuple[Float[Tensor, "head target source"], ...]
    variance: tuple[Float[Tensor, "head target source"], ...] | None


def push(function: Function, x: Tensor, tangents: Float[Tensor, "chunk source width"]) -> tuple[Tensor, ...]:
    """Directional derivatives of `function` at `x` along every tangent of the chunk."""
    with CheapTangents() if CheapTangents.worth_it(tangents.shape[0] * tangents.shape[1]) else nullcontext():
        return vmap(lambda tangent: jvp(function, (x,), (tangent,))[1])(tangents)


def straight(
    function: Function,
    x: Float[Tensor, "source width"],
    seeds: Seeds,
    energies: Sequence[Energy],
    *,
    chunk: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Squares:
    """Sum over directions c of the energy of J seed_c, per layer, head, target and source; `chunk` tangents at a time.

    With k scaled directions y_c = k * energy_c estimates the square, their mean has variance S^2 / k * (1 - k / width): the last factor is
    exact for orthonormal directions, which are drawn without replacement. Squares are accumulated in float64. Linear in n * directions.
    """
    totals: list[Tensor] = []
    squares: list[Tensor] = []
    with torch.no_grad():
        for start in range(0, seeds.total, chunk):
            stop = min(start + chunk, seeds.total)
            source, tangents = seeds.tangents(start, stop, x)
            for layer, (output, energy) in enumerate(zip(push(function, x, tangents), energies, strict=True)):
                each = energy(output).double().permute(1, 2, 0)
                if layer == len(totals):
                    shape = (*each.shape[:2], seeds.sources)
                    totals.append(torch.zeros(shape, dtype=torch.float64, device=x.device))
                    squares.append(torch.zeros_like(totals[-1]) if not seeds.exact else totals[-1])
                totals[layer].index_add_(2, source, each)
                if not seeds.exact:
                    squares[layer].index_add_(2, source, each.square())
            advance(stop - start)
    if seeds.exact:
        return Squares(tuple(totals), None)
    return Squares(tuple(totals), tuple(_variance(t, s, seeds) for t, s in zip(totals, squares, strict=True)))


def _variance(total: Tensor, square: Tensor, seeds: Seeds) -> Tensor:
    k = seeds.per_source
    sample = (square * k**2 / k - total.square()).clamp(min=0) * k / (k - 1)
    return sample / k * (1 - k / seeds.width)
