"""The same text without some of its tokens: left out, or replaced by another id."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.models.explained import Explained

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


def deleted(explained: Explained, inputs: Mapping[str, Tensor], gone: Sequence[Collection[int]]) -> tuple[dict[str, Tensor], Tensor]:
    """A batch of the same text without these positions (equally many in every row), and where the output is read in each."""
    kept = [[place for place in range(inputs["input_ids"].shape[1]) if place not in some] for some in gone]
    made = only(inputs, kept)
    if explained.place is None:
        return made, explained.places(made)
    return made, torch.tensor([row.index(explained.place) for row in kept], device=made["input_ids"].device)


def masked(explained: Explained, inputs: Mapping[str, Tensor], gone: Sequence[Collection[int]]) -> dict[str, Tensor]:
    """A batch of the same text with the mask token at these positions; raises `ChoiceError` where the tokenizer has none."""
    number = explained.special.get("mask")
    if number is None:
        raise ChoiceError(
            "There is no mask token to put in.", asked="replace='mask'", found="mask_token_id=None",
            allowed="a tokenizer with a mask token", do="take tokens away in another way, such as replace='delete'",
        )  # fmt: skip
    return replaced(inputs, [sorted(some) for some in gone], number)
