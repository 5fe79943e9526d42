"""Straight forward mode: push tangents from the origin through all layers at once.

Every head output is on the way of one forward pass, so that `vmap(jvp)` over the tangents gives the Jacobian of every head of every
layer in one sweep. The primal pass is not batched: only tangents are.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

from jaxtyping import Float
from torch import Tensor
from torch.func import jvp, vmap

from glocal.jacobian.rules import CheapTangents
from glocal.jacobian.seeds import Seeds
from glocal.jacobian.squares import Push

Function = Callable[[Tensor], tuple[Tensor, ...]]


def push(function: Function, x: Tensor, tangents: Float[Tensor, "chunk source *width"]) -> tuple[Tensor, ...]:
    """Directional derivatives of `function` at `x` along every tangent of the chunk."""
    with CheapTangents() if CheapTangents.worth_it(tangents.shape[0] * tangents.shape[1]) else nullcontext():
        return vmap(lambda tangent: jvp(function, (x,), (tangent,))[1])(tangents)


def straight(function: Function, x: Float[Tensor, "source width"], seeds: Seeds) -> Push:
    """The push of directions through the network's own code; linear in tokens times directions."""

    def run(start: int, stop: int) -> Iterator[tuple[int, Tensor]]:
        for output in push(function, x, seeds.tangents(start, stop, x)):
            yield 0, output.movedim(0, -1)

    return run
