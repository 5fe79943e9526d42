"""A method's result -> one score for every source of one output."""

from typing import Any

import numpy
import xarray
from numpy.typing import NDArray

from glocal.dims import HEAD, LAYER, SOURCE, TARGET
from glocal.errors import ChoiceError
from glocal.models.explained import Explained

Row = int | str | None


def importance(story: xarray.Dataset, name: str, explained: Explained, row: Row) -> NDArray[numpy.float64]:
    """Scores [source] of the method called `name`.

    Methods to an output have them. Of a map it is the last layer's row at the target that the output is read at, the mean over heads: the
    position of a token that is predicted; of a class the first token, or the last one in causal models; of a similarity the mean over
    targets. `row`: another target (negative ones count from the end), or "mean". Raises `ChoiceError` where no target is known.
    """
    if name not in story or SOURCE not in story[name].dims:
        found = ", ".join(f"{key} ({', '.join(map(str, array.dims))})" for key, array in story.data_vars.items())
        raise ChoiceError(
            f"{name} gives no scores of source tokens.", asked=f"methods with {name!r}", found=found,
            allowed="methods to an output, and maps with the dimensions layer, target, source", do="choose one of these",
        )  # fmt: skip
    array = story[name]
    if TARGET in array.dims:
        chosen = _row(story, explained, row)
        array = array.mean(TARGET) if chosen == "mean" else array.sel({TARGET: _known(array, int(chosen), story)})
    if LAYER in array.dims:
        array = array.isel({LAYER: -1})
    if HEAD in array.dims:
        array = array.mean(HEAD)
    return array.transpose(SOURCE).values.astype(numpy.float64)


def _row(story: xarray.Dataset, explained: Explained, row: Row) -> int | str:
    if row is not None:
        return row
    if explained.place is not None:
        return explained.place
    known: dict[str, Any] = {"class": -1 if story.attrs["causal"] else 0, "similarity": "mean"}
    if explained.kind not in known:
        raise ChoiceError(
            "Which row of a map belongs to this output is not known.",
            asked=f"explain={explained.name!r}",
            allowed="row=POSITION or row='mean', or methods to an output only",
            do="pass row=...",
        )
    return known[explained.kind]


def _known(array: xarray.DataArray, row: int, story: xarray.Dataset) -> int:
    place = row + story.sizes[SOURCE] if row < 0 else row
    if place not in array[TARGET].values:
        raise ChoiceError(
            "The map has no such row.", asked=f"row={row}", found=f"targets {array[TARGET].values.tolist()[:8]}",
            allowed="a target that was computed", do="pass row=..., or leave targets out of the options",
        )  # fmt: skip
    return place
