"""What all patterns share: which positions the rows explain, and means that leave masked rows out."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glocal.errors import ChoiceError


def positions(maps: Float[Tensor, "*maps target source"], category: Sequence[str], targets: Sequence[int] | None) -> Int[Tensor, " target"]:
    """The positions that the rows explain: `targets`, or all.

    Raises `ChoiceError` unless there is one for every row, among the sources, and one category for every source.
    """
    rows, sources = maps.shape[-2:]
    if len(category) != sources:
        raise ChoiceError(
            "The categories do not fit the map.",
            asked=f"{len(category)} categories",
            found=f"{sources} sources",
            allowed="one category for every source",
            do="pass the categories of all tokens",
        )
    chosen = list(range(sources)) if targets is None else list(targets)
    if len(chosen) != rows or not all(0 <= target < sources for target in chosen):
        raise ChoiceError(
            "The targets do not fit the map.",
            asked="all positions" if targets is None else f"targets {chosen}",
            found=f"{rows} rows over {sources} sources",
            allowed=f"one position for every row, each from 0 to {sources - 1}",
            do="pass the positions that the rows explain as `targets`",
        )
    return torch.tensor(chosen, dtype=torch.long, device=maps.device)


def mean_over_targets(values: Float[Tensor, "*maps target"]) -> Float[Tensor, "*maps"]:
    """Mean over the targets whose value is a number; NaN if there is none."""
    return values.nanmean(-1)
