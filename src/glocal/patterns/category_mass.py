"""How much of a head's distribution falls on itself, its neighbours, special tokens and punctuation."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glocal.dims import PATTERN
from glocal.patterns._rows import mean_over_targets, positions
from glocal.registry import registered

PATTERNS = ("self", "previous", "next", "first_special", "separator", "punctuation", "other")


@registered(
    summary="mean share on itself, previous, next, first special token, separators, punctuation, other",
    source="Clark et al. 2019 (selectors of the published notebook); punctuation by Unicode category instead of '.' and ','",
    limits="patterns overlap (a separator can be the next token), so masses need not sum to one; exclusive=True makes them",
    extra=(("unit", "share"), ("dimension", PATTERN)),
)
def category_mass(
    maps: Float[Tensor, "layer head target source"],
    category: Sequence[str],
    *,
    targets: Sequence[int] | None = None,
    exclusive: bool = False,
) -> Float[Tensor, "layer head pattern"]:
    """Mean over targets of the share that falls on every pattern, in the order of `PATTERNS` (shares).

    mass_c = mean over targets i of sum over sources j of map_ij S_c,ij, with overlapping selectors S; `other` is what no selector takes.
    `category` has one entry per source; special tokens are told by it, that is by id, never by position. Targets without a previous or
    next token count with 0, as in the source. Masked rows (NaN) are left out. `exclusive` gives a source to the first pattern it fits.
    """
    selectors = _selectors(positions(maps, category, targets), category, exclusive).to(maps.dtype)
    return torch.stack([mean_over_targets((maps * selector).sum(-1)) for selector in selectors], -1)


def _selectors(targets: Int[Tensor, " target"], category: Sequence[str], exclusive: bool) -> Bool[Tensor, "pattern target source"]:
    offset = torch.arange(len(category), device=targets.device) - targets[:, None]
    neighbours = [offset == 0, offset == -1, offset == 1]
    kinds = [[each == kind for each in category] for kind in PATTERNS[3:-1]]
    found = neighbours + [torch.tensor(kind, device=targets.device).expand_as(offset) for kind in kinds]
    taken = torch.zeros_like(offset, dtype=torch.bool)
    chosen = []
    for selector in found:
        chosen.append(selector & ~taken if exclusive else selector)
        taken = taken | selector
    return torch.stack([*chosen, ~taken])
