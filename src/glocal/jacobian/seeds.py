"""What is pushed through the network: every basis direction of every source (exact), or a few random ones (sketch)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glocal.errors import ChoiceError


@dataclass(frozen=True)
class Seeds:
    """`per_source` directions for each of `sources` tokens.

    Exact seeds are the unit vectors. A sketch has k orthonormal directions per source, drawn independently for every source and scaled
    by sqrt(width / k), so that the sum of squares over directions estimates ||J||_F^2 without bias.
    """

    sources: int
    width: int
    per_source: int
    directions: Float[Tensor, "source direction width"] | None  # None: unit vectors
    scale: Float[Tensor, "source width"] | None  # times_input: J diag(x)

    @property
    def total(self) -> int:
        """Number of tangents."""
        return self.sources * self.per_source

    @property
    def exact(self) -> bool:
        """Whether nothing is estimated."""
        return self.directions is None

    def tangents(self, start: int, stop: int, like: Tensor) -> tuple[Int[Tensor, " chunk"], Float[Tensor, "chunk source width"]]:
        """Tangents number `start` to `stop`: the source of each, and the vectors, zero at every other token."""
        number = torch.arange(start, stop, device=like.device)
        source, direction = number // self.per_source, number % self.per_source
        rows = torch.zeros(len(number), self.width, dtype=like.dtype, device=like.device)
        if self.directions is None:
            rows[torch.arange(len(number), device=like.device), direction] = 1
        else:
            rows = self.directions[source, direction].to(like.dtype)
        if self.scale is not None:
            rows = rows * self.scale[source]
        tangents = torch.zeros(len(number), self.sources, self.width, dtype=like.dtype, device=like.device)
        tangents[torch.arange(len(number), device=like.device), source] = rows
        return source, tangents


def make_seeds(x: Float[Tensor, "source width"], *, probes: int | None, seed: int, times_input: bool) -> Seeds:
    """Exact seeds (`probes=None`) or a sketch of `probes` directions per source at the point `x`.

    The same `seed` gives the same directions on every device. Raises `ChoiceError` unless 2 <= probes <= width.
    """
    sources, width = x.shape
    directions = None
    if probes is not None:
        if not 2 <= probes <= width:
            raise ChoiceError(
                "The number of probes is out of range.",
                asked=f"probes={probes}",
                allowed=f"2 (one leaves the error unknown) to {width} (the width of the model: exact)",
                do="choose 16 to 64 for a mean total variation of about 0.03 to 0.01 a row, or None for exact results",
            )
        generator = torch.Generator().manual_seed(seed)
        gaussian = torch.randn(sources, width, probes, generator=generator, dtype=torch.float64)
        orthonormal = torch.linalg.qr(gaussian)[0].transpose(1, 2)
        directions = (orthonormal * math.sqrt(width / probes)).to(device=x.device, dtype=x.dtype).contiguous()
    return Seeds(sources, width, probes or width, directions, x if times_input else None)
