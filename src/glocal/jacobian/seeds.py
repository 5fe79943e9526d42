"""What is pushed through the network: every basis direction of every source (exact), or a few random ones (sketch)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glocal.errors import ChoiceError


@dataclass(frozen=True)
class Seeds:
    """`per_source` directions for each of `sources` tokens, numbered source by source.

    Exact seeds are the unit vectors. A sketch has k orthonormal directions per source, drawn independently for every source: the sum of
    squares over them, times width / k, estimates ||J||_F^2 without bias. A source may be a group of tokens: its directions then span the
    whole block, and have one part for every token of it.
    """

    sources: int
    width: int
    per_source: int
    directions: Float[Tensor, "token direction width"] | None  # None: unit vectors
    scale: Float[Tensor, "token width"] | None  # times_input: J diag(x)
    groups: Int[Tensor, " token"] | None = None  # the source of every token; None: each is one

    @property
    def total(self) -> int:
        """Number of tangents."""
        return self.sources * self.per_source

    @property
    def exact(self) -> bool:
        """Whether nothing is estimated."""
        return self.directions is None

    def since(self, start: int) -> "Seeds":
        """Without the first `start` directions of every source."""
        if start == 0 or self.directions is None:
            return self
        return replace(self, per_source=self.per_source - start, directions=self.directions[:, start:])

    def chunks(self, size: int) -> list[tuple[int, int]]:
        """First and last number (exclusive) of chunks of at most `size` directions: whole sources, or equal parts of one."""
        if size >= self.per_source:
            together = size // self.per_source * self.per_source
            return [(start, min(start + together, self.total)) for start in range(0, self.total, together)]
        pieces = -(-self.per_source // size)
        bounds = [piece * self.per_source // pieces for piece in range(pieces + 1)]
        return [
            (source * self.per_source + start, source * self.per_source + stop)
            for source in range(self.sources)
            for start, stop in pairwise(bounds)
        ]

    def segments(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """The same chunk source by source: (source, first column, last column exclusive)."""
        first, last = start // self.per_source, (stop - 1) // self.per_source
        cut = lambda number: min(max(number, start), stop) - start  # noqa: E731
        return [(source, cut(source * self.per_source), cut((source + 1) * self.per_source)) for source in range(first, last + 1)]

    def rows(self, start: int, stop: int, like: Tensor) -> Float[Tensor, "chunk width"]:
        """The directions number `start` to `stop`, in the type of `like`."""
        number = torch.arange(start, stop, device=like.device)
        source, direction = number // self.per_source, number % self.per_source
        if self.directions is None:
            rows = torch.zeros(len(number), self.width, dtype=like.dtype, device=like.device)
            rows.scatter_(1, direction[:, None], 1)
        else:
            rows = self.directions[source, direction].to(like.dtype)
        return rows if self.scale is None else rows * self.scale[source].to(like.dtype)

    def tangents(self, start: int, stop: int, like: Tensor) -> Float[Tensor, "chunk source width"]:
        """The same directions, each at its own token and zero at every other one."""
        number = torch.arange(start, stop, device=like.device)
        if self.groups is not None:
            assert self.directions is not None
            parts = self.directions[:, number % self.per_source].transpose(0, 1).to(like.dtype)
            parts = parts if self.scale is None else parts * self.scale.to(like.dtype)
            return parts * (self.groups == (number // self.per_source)[:, None]).unsqueeze(-1)
        tangents = torch.zeros(len(number), self.sources, self.width, dtype=like.dtype, device=like.device)
        tangents[torch.arange(len(number), device=like.device), number // self.per_source] = self.rows(start, stop, like)
        return tangents


def make_seeds(
    x: Float[Tensor, "token width"], *, probes: int | None, seed: int, times_input: bool, groups: Sequence[int] | None = None
) -> Seeds:
    """Exact seeds (`probes=None`) or a sketch of `probes` directions per source at the point `x`.

    `groups` gives the source of every token, for a sketch; without it every token is a source. The same `seed` gives the same directions
    on every device, and more probes only add directions to those of fewer. Raises `ChoiceError` unless 2 <= probes <= width.
    """
    tokens, width = x.shape
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
        gaussian = torch.stack([torch.randn(tokens, width, generator=generator, dtype=torch.float64) for _ in range(probes)], -1)
        directions = _orthonormal(gaussian, groups).transpose(1, 2).to(device=x.device, dtype=x.dtype).contiguous()
    of = None if groups is None else torch.tensor(groups, device=x.device)
    return Seeds(tokens if groups is None else max(groups) + 1, width, probes or width, directions, x if times_input else None, of)


def _orthonormal(gaussian: Float[Tensor, "token width direction"], groups: Sequence[int] | None) -> Float[Tensor, "token width direction"]:
    if groups is None:
        return torch.linalg.qr(gaussian)[0]
    result = torch.empty_like(gaussian)
    of = torch.tensor(groups)
    for group in range(max(groups) + 1):
        inside = of == group
        result[inside] = torch.linalg.qr(gaussian[inside].flatten(0, 1))[0].view_as(gaussian[inside])
    return result
