"""Story <-> Zarr 3 folder: every variable and coordinate an array, tokens as UTF-8, attributes as JSON.

`xarray.open_zarr(path, consolidated=False)` reads such a folder too. Zarr takes a lost file for zeros; the digests of names, dimensions,
types, values and attributes tell.
"""

import hashlib
import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy
import xarray
import zarr

from glocal.dims import LAYER
from glocal.errors import StoryError
from glocal.results.plain import from_strict, to_strict

METADATA = "zarr.json"
_DIGESTS, _ROOT, _COORDINATES = "glocal_digests", "/", "coordinates"
# What zarr, json and numpy raise over files that are damaged in the ways the tests try.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, MemoryError, OverflowError)


def write(story: xarray.Dataset, path: Path) -> None:
    """Make the folder `path` of a Story that follows the schema."""
    group = zarr.create_group(path, zarr_format=3)
    for name, variable in story.variables.items():
        text, values = variable.dtype == object, variable.values
        array = group.create_array(
            _key(name),
            shape=values.shape,
            dtype=str if text else values.dtype,
            chunks=tuple(1 if dim == LAYER else size for dim, size in variable.sizes.items()),
            dimension_names=[str(dim) for dim in variable.dims],
            attributes=to_strict(variable.attrs),
            # A chunk that equals the fill value may hold -0.0, which must be written too.
            config={"write_empty_chunks": True},
        )
        array[...] = values.astype(numpy.dtypes.StringDType()) if text else values
    # xarray's own sign for coordinates that are not an index.
    attributes = to_strict(story.attrs) | {_COORDINATES: " ".join(str(name) for name in story.coords if name not in story.dims)}
    digests = {str(name): _digest(variable) for name, variable in story.variables.items()}
    group.attrs.put(attributes | {_DIGESTS: digests | {_ROOT: _digest_of(attributes)}})


def read(path: Path) -> xarray.Dataset:
    """What `write` wrote, in memory; raises `StoryError` where anything is missing, foreign or changed."""
    try:
        return _read(path)
    except _UNREADABLE as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error


def marked(path: Path) -> dict[str, Any] | None:
    """The attributes in a folder that says it is a Story; None for any other."""
    try:
        attributes = json.loads((path / METADATA).read_bytes())["attributes"]
        return attributes if isinstance(attributes, dict) and "glocal_schema" in attributes else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def holds_only_a_story(path: Path) -> bool:
    """Whether the folder is a Story, damaged or not, and no file in it is anything else."""
    files = [list(file.relative_to(path).parts) for file in path.rglob("*") if not file.is_dir()]
    return marked(path) is not None and all(parts[-1] == METADATA if len(parts) < 3 else parts[1] == "c" for parts in files)


def damaged(path: Path, why: str) -> StoryError:
    """The error for a folder that was a Story once."""
    return StoryError("This Story is damaged.", asked=path, found=why, do="restore it from a copy, or compute it again")


def _read(path: Path) -> xarray.Dataset:
    attributes: dict[str, Any] = dict(zarr.open_group(path, mode="r", zarr_format=3).attrs)
    digests: dict[str, str] = dict(attributes.pop(_DIGESTS))
    if digests.pop(_ROOT) != _digest_of(attributes):
        raise damaged(path, "the attributes are not those that were saved")
    foreign = {entry.name for entry in path.iterdir() if entry.is_dir()} - {_key(name) for name in digests}
    if foreign:
        raise damaged(path, f"a foreign variable in the folder, {min(foreign)!r}")
    arrays = {name: _variable(path, name) for name in digests}
    for name, variable in arrays.items():
        if _digest(variable) != digests[name]:
            raise damaged(path, f"the values of {name!r} are not those that were saved")
    coordinates = {*attributes.pop(_COORDINATES).split(" "), *(dim for variable in arrays.values() for dim in variable.dims)}
    return xarray.Dataset(
        {name: variable for name, variable in arrays.items() if name not in coordinates},
        {name: variable for name, variable in arrays.items() if name in coordinates},
        from_strict(attributes),
    )


def _variable(path: Path, name: str) -> xarray.Variable:
    if not (path / _key(name) / METADATA).is_file():
        raise damaged(path, f"the variable {name!r} is missing")
    array = zarr.open_array(path / _key(name), mode="r", zarr_format=3)
    values = numpy.asarray(array[...])
    text = isinstance(values.dtype, numpy.dtypes.StringDType)
    dims: Any = getattr(array.metadata, "dimension_names", None)
    return xarray.Variable(dims, values.astype(object) if text else values, from_strict(dict(array.attrs)))


def _key(name: Hashable) -> str:
    """The folder of a variable: its name without characters that mean something in paths, as those of `<lambda>` do."""
    key = quote(str(name), safe="")
    # A variable may have the name of the folder's own metadata file.
    return key.replace(".", "%2E") if key == METADATA else key


def _digest(variable: xarray.Variable) -> str:
    values = variable.values
    text = values.dtype == object
    facts = [list(variable.dims), list(variable.shape), values.dtype.str, to_strict(variable.attrs), values.tolist() if text else None]
    return _digest_of(facts, b"" if text else numpy.ascontiguousarray(values))


def _digest_of(facts: Any, values: Any = b"") -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(values)
    return digest.hexdigest()
