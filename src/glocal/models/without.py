"""The same text without some of its tokens: left out, or replaced by another id."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

# What positions mean is counted anew by the model, as if the shorter text had been written.
_COUNTED = ("position_ids",)


def only(inputs: Mapping[str, Tensor], kept: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """A batch of the same text with only these positions (ascending, equally many in every row)."""
    places = torch.tensor([list(row) for row in kept], device=next(iter(inputs.values())).device, dtype=torch.long)
    return {name: value[0][places] for name, value in inputs.items() if name not in _COUNTED}


def replaced(inputs: Mapping[str, Tensor], gone: Sequence[Sequence[int]], number: int) -> dict[str, Tensor]:
    """A batch of the same text with the id `number` at these positions."""
    made = {name: value.expand(len(gone), *value.shape[1:]) for name, value in inputs.items()}
    ids = made["input_ids"].clone()
    for row, places in enumerate(gone):
        ids[row, list(places)] = number
    return {**made, "input_ids": ids}
