"""How a head's distribution depends on relative position."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glocal.dims import OFFSET
from glocal.patterns._rows import positions
from glocal.registry import registered


@registered(
    summary="mean share by relative position, from n - 1 tokens before to n - 1 after",
    source="Brunner et al. 2020 (1908.04211) look at neighbours this way; definition of glocal",
    limits="far positions exist for few targets; `pairs` says for how many",
    extra=(("unit", "share"), ("dimension", OFFSET)),
)
def position_profile(
    maps: Float[Tensor, "layer head target source"], category: Sequence[str], *, targets: Sequence[int] | None = None
) -> Float[Tensor, "layer head offset"]:
    """Mean share at source - target = -(n - 1) .. n - 1 over the targets for which that position exists (shares).

    An offset that no target has is NaN. Masked rows (NaN) are left out. In a causal model later positions exist, with share 0.
    """
    sources = maps.shape[-1]
    place = _places(positions(maps, category, targets), sources).reshape(-1).expand(*maps.shape[:-2], -1)
    empty = maps.new_zeros(*maps.shape[:-2], 2 * sources - 1)
    total = empty.scatter_add(-1, place, maps.nan_to_num().flatten(-2))
    return total / empty.scatter_add(-1, place, (~maps.isnan()).to(maps.dtype).flatten(-2))


def pairs(sources: int, targets: Sequence[int] | None = None) -> list[int]:
    """Number of targets for which each offset exists, in the order of the profile."""
    chosen = torch.tensor(range(sources) if targets is None else targets, dtype=torch.long)
    return torch.bincount(_places(chosen, sources).reshape(-1), minlength=2 * sources - 1).tolist()


def _places(targets: Int[Tensor, " target"], sources: int) -> Int[Tensor, "target source"]:
    """Where the offset of every pair stands in the profile."""
    return torch.arange(sources, device=targets.device) - targets[:, None] + sources - 1
