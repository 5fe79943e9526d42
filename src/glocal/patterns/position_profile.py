"""How a head's distribution depends on relative position."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.registry import registered


@registered(
    summary="mean share by relative position, from n - 1 tokens before to n - 1 after",
    source="Brunner et al. 2020 (1908.04211) look at neighbours this way; definition of glocal",
    limits="far positions exist for few targets; `pairs` says for how many",
)
def position_profile(
    maps: Float[Tensor, "layer head target source"], category: Sequence[str], *, targets: Sequence[int] | None = None
) -> Float[Tensor, "layer head offset"]:
    """Mean share at source - target = -(n - 1) .. n - 1 over the targets for which that position exists (shares).

    An offset that no target has is NaN. Masked rows (NaN) are left out.
    """
    place = _offsets(len(category), targets).to(maps.device)
    valid = ~maps.isnan()
    size = (*maps.shape[:-2], 2 * len(category) - 1)
    flat = place.reshape(-1).expand(*maps.shape[:-2], -1)
    total = torch.zeros(size, dtype=maps.dtype, device=maps.device).scatter_add_(-1, flat, maps.nan_to_num().flatten(-2))
    count = torch.zeros_like(total).scatter_add_(-1, flat, valid.to(maps.dtype).flatten(-2))
    return total / count


def pairs(sources: int, targets: Sequence[int] | None = None) -> list[int]:
    """Number of targets for which each offset exists, in the order of the profile."""
    return torch.bincount(_offsets(sources, targets).reshape(-1), minlength=2 * sources - 1).tolist()


def _offsets(sources: int, targets: Sequence[int] | None) -> Tensor:
    rows = torch.arange(sources) if targets is None else torch.tensor(list(targets))
    return torch.arange(sources)[None, :] - rows[:, None] + sources - 1
