"""How much of a head's distribution falls on itself, its neighbours, special tokens and punctuation."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glocal.patterns._rows import mean_over_targets
from glocal.registry import registered

PATTERNS = ("self", "previous", "next", "first_special", "separator", "punctuation", "other")


@registered(
    summary="mean share on itself, previous, next, first special token, separators, punctuation, other",
    source="Clark et al. 2019 (selectors of the published notebook); punctuation by Unicode category instead of '.' and ','",
    limits="patterns overlap (a separator can be the next token), so masses need not sum to one; exclusive=True makes them",
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
    selectors = select(category, targets, exclusive).to(maps.device)
    return torch.stack([mean_over_targets((maps * selector).sum(-1)) for selector in selectors.to(maps.dtype)], -1)


def select(category: Sequence[str], targets: Sequence[int] | None, exclusive: bool) -> Bool[Tensor, "pattern target source"]:
    """The selectors of all patterns."""
    sources = torch.arange(len(category))
    rows = sources if targets is None else torch.tensor(list(targets))
    offset = sources[None, :] - rows[:, None]
    of = lambda name: torch.tensor([each == name for each in category]).expand(len(rows), -1)  # noqa: E731
    found = [offset == 0, offset == -1, offset == 1, of("first_special"), of("separator"), of("punctuation")]
    taken = torch.zeros_like(offset, dtype=torch.bool)
    chosen = []
    for selector in found:
        chosen.append(selector & ~taken if exclusive else selector)
        taken = taken | selector
    return torch.stack([*chosen, ~taken])
