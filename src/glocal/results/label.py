"""Tensors -> Story: the one place that puts names on results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
import xarray
from torch import Tensor

from glocal import registry
from glocal.dims import HEAD, LAYER, POSITIONS, SOURCE, SOURCE_LAYER, TARGET, token_coordinate
from glocal.errors import StoryError
from glocal.models.tokens import Tokens
from glocal.results.plain import check_text
from glocal.results.schema import FIELDS, VARIABLES, VERSION, check, pattern

_LONG_NAMES = {
    "attention": "attention weight",
    "attribution": "share of the gradient attribution",
    "attribution_norm": "gradient attribution",
    "attribution_se": "standard error of the share of the gradient attribution",
    "attribution_norm_se": "standard error of the gradient attribution",
    "discrepancy_<measure>": "{} between attention and attribution",
    "bias_<measure>": "bias of the {} that a sketch's noise causes",
    "ladder_<measure>": "mean {} between attention and the attribution to the input of layer source_layer + 1",
}


def label(
    variables: Mapping[str, Tensor],
    tokens: Tokens,
    *,
    layers: Sequence[int],
    heads: Sequence[int] | None,
    targets: Sequence[int],
    attributes: Mapping[str, Any],
    sources: Tokens | None = None,
) -> xarray.Dataset:
    """The Story of `variables`, whose axes are those of docs/story.md in that order, for these layers, heads (from 1) and targets (from 0).

    `sources`: what the sources are, if they are groups of tokens.
    float32 and float64 are kept, other floats become float32. Adds `glocal_schema`, `not_finite` and `masked_rows` to the attributes:
    a row of `attention` that is NaN for all sources is masked, and NaN of any variable in it is counted there, not as `not_finite`.
    Raises `StoryError` for a shape that does not fit, and for whatever `check` refuses.
    """
    along = {TARGET: tokens, SOURCE: sources or tokens}
    indices = {LAYER: layers, HEAD: heads, TARGET: targets, SOURCE: range(len(along[SOURCE]))}
    arrays = {name: xarray.Variable(_dims(name, value, indices), _numpy(name, value), _said(name)) for name, value in variables.items()}
    used = {dim for array in arrays.values() for dim in array.dims}
    if SOURCE_LAYER in used:
        indices[SOURCE_LAYER] = range(next(array.sizes[SOURCE_LAYER] for array in arrays.values() if SOURCE_LAYER in array.dims))
    coordinates: dict[str, Any] = {
        dim: (dim, numpy.asarray(numbers, dtype=numpy.int64)) for dim, numbers in indices.items() if dim in used or dim != HEAD
    }
    for position in POSITIONS:
        coordinates |= {
            token_coordinate(position, field): _described(along[position], position, field, indices[position] or ()) for field in FIELDS
        }
    story = xarray.Dataset(arrays, coordinates, dict(attributes))
    masked = _masked(story)
    story.attrs |= {"glocal_schema": VERSION, "not_finite": list(_not_finite(story, masked)), "masked_rows": int(masked.sum())}
    check(story)
    return story


def _dims(name: str, value: Tensor, indices: Mapping[str, Sequence[int] | None]) -> tuple[str, ...]:
    shapes = VARIABLES[pattern(name)].shapes
    sizes = {dim: len(numbers or ()) for dim, numbers in indices.items()}
    for dims in shapes:
        if len(dims) == value.dim() and all(sizes.get(dim, size) == size > 0 for dim, size in zip(dims, value.shape, strict=True)):
            return dims
    raise StoryError(
        f"Variable {name!r} does not fit the text and the model.",
        found=f"shape {tuple(value.shape)}",
        allowed=" or ".join(f"[{', '.join(f'{dim}={sizes[dim]}' if dim in sizes else dim for dim in dims)}]" for dims in shapes),
        do="return one value per layer, head, target and source asked for, in this order",
    )


def _numpy(name: str, value: Tensor) -> numpy.ndarray:
    if not value.is_floating_point():
        raise StoryError(
            f"Variable {name!r} has the wrong type.",
            found=str(value.dtype),
            allowed="a floating-point tensor",
            do="convert it with .float()",
        )
    wide = value if value.dtype in (torch.float32, torch.float64) else value.float()
    return numpy.ascontiguousarray(wide.detach().cpu().numpy())


def _said(name: str) -> dict[str, str]:
    """`long_name`, `unit` and, for variables of further methods, `method`."""
    row = pattern(name)
    if row == "<method>":
        method = max((known for known in registry.names("methods") if name == known or name.startswith(f"{known}_")), key=len, default=name)
        unit = "share" if name.endswith("_mixing_ratio") else _unit("methods", method)
        return {"long_name": name.replace("_", " "), "unit": unit, "method": method}
    measure = name.removeprefix(row.partition("<")[0])
    return {"long_name": _LONG_NAMES[row].format(measure), "unit": VARIABLES[row].unit or _unit("measures", measure)}


def _unit(folder: str, name: str) -> str:
    """What the card of a registered function says; functions that users pass have no card."""
    extra = dict(registry.cards(folder)[name].extra) if name in registry.names(folder) else {}
    return extra.get("unit", f"as {name} defines it")


def _described(tokens: Tokens, position: str, field: str, numbers: Sequence[int]) -> tuple[str, numpy.ndarray]:
    values = getattr(tokens, field)
    if FIELDS[field] == "int":
        return position, numpy.asarray([values[number] for number in numbers], dtype=numpy.int64)
    # numpy's own strings drop trailing NUL characters, so these are Python's.
    array = numpy.empty(len(numbers), dtype=object)
    for place, number in enumerate(numbers):
        check_text(f"The {field} at position {number}", values[number])
        array[place] = values[number]
    return position, array


def _masked(story: xarray.Dataset) -> xarray.DataArray:
    return story["attention"].isnull().all(SOURCE) if "attention" in story else xarray.DataArray(False)


def _not_finite(story: xarray.Dataset, masked: xarray.DataArray) -> Iterator[dict[str, Any]]:
    """One entry per variable, layer and head with a NaN that is not meant, or an infinity; None for a dimension it does not have."""
    for name, variable in story.data_vars.items():
        inner = [dim for dim in variable.dims if dim not in (LAYER, HEAD)]
        nan = (variable.isnull() & ~_meant(variable, masked)).transpose(*variable.dims).sum(inner)
        infinite = xarray.apply_ufunc(numpy.isinf, variable).sum(inner)
        for place in numpy.ndindex(nan.shape):
            found = {"nan": int(nan.values[place]), "infinite": int(infinite.values[place])}
            if any(found.values()):
                numbers = {dim: int(story[dim].values[index]) for dim, index in zip(nan.dims, place, strict=True)}
                yield {"variable": str(name), "layer": numbers.get(LAYER), "head": numbers.get(HEAD), **found}


def _meant(variable: xarray.DataArray, masked: xarray.DataArray) -> xarray.DataArray:
    """Where NaN says "not defined" rather than "something went wrong"."""
    if SOURCE_LAYER in variable.dims:
        return (variable[SOURCE_LAYER] >= variable[LAYER]) | masked.all(set(masked.dims) & {TARGET})
    if TARGET not in variable.dims:
        return xarray.DataArray(False)
    return masked if HEAD in variable.dims else masked.all(set(masked.dims) & {HEAD})
