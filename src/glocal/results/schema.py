"""The Story's schema as data, and the check that a Dataset follows it; docs/story.md explains the same tables."""

from dataclasses import dataclass
from typing import Any

import numpy
import xarray

from glocal.dims import HEAD, LAYER, POSITIONS, SOURCE, SOURCE_LAYER, TARGET, TOKEN_FIELDS, token_coordinate
from glocal.errors import StoryError
from glocal.results.plain import check_json, check_text

VERSION = 1

HEAD_MAP = (LAYER, HEAD, TARGET, SOURCE)
LAYER_MAP = (LAYER, TARGET, SOURCE)


@dataclass(frozen=True)
class Rule:
    """What the schema says about a variable, or about all variables of one pattern."""

    shapes: tuple[tuple[str, ...], ...]  # the dimensions it may have
    unit: str  # "" where the measure or method says it
    attributes: tuple[str, ...] = ("long_name", "unit")


# A name in angle brackets stands for any name; an exact name is preferred to a pattern.
VARIABLES = {
    "attention": Rule((HEAD_MAP,), "share"),
    "attribution": Rule((HEAD_MAP, LAYER_MAP), "share"),
    "attribution_norm": Rule((HEAD_MAP, LAYER_MAP), "norm of a Jacobian block"),
    "attribution_se": Rule((HEAD_MAP, LAYER_MAP), "share"),
    "attribution_norm_se": Rule((HEAD_MAP, LAYER_MAP), "norm of a Jacobian block"),
    "discrepancy_<measure>": Rule(((LAYER, HEAD, TARGET),), ""),
    "bias_<measure>": Rule(((LAYER, HEAD, TARGET),), ""),
    "ladder_<measure>": Rule(((LAYER, HEAD, SOURCE_LAYER),), ""),
    "<method>": Rule((HEAD_MAP, LAYER_MAP, (LAYER, TARGET), (SOURCE,)), "", ("long_name", "unit", "method")),
}

DTYPES = {"float": ("float32", "float64"), "int": ("int64",), "str": ("object",)}

# First number an index coordinate may hold.
DIMENSIONS = {LAYER: 1, HEAD: 1, TARGET: 0, SOURCE: 0, SOURCE_LAYER: 0}
ALWAYS = (LAYER, TARGET, SOURCE)

FIELDS = {name: "str" if name in ("token", "raw_token", "category") else "int" for name in TOKEN_FIELDS}

ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "glocal_schema": (int,),
    **dict.fromkeys(("glocal_version", "torch_version", "transformers_version", "python_version"), (str,)),
    **dict.fromkeys(("text", "text_pair", "model", "family", "weights_fingerprint", "dtype", "device"), (str,)),
    "causal": (bool,),
    "truncated": (int,),
    "settings": (dict,),
    "engine": (str,),
    "plan": (dict,),
    "seed": (int,),
    "seconds": (float, int),
    "error_estimate": (dict,),
    "explained": (dict,),
    "not_finite": (list,),
    "masked_rows": (int,),
    "notes": (list,),
}


def pattern(name: str) -> str:
    """The row of `VARIABLES` that a variable called `name` follows."""
    if name in VARIABLES:
        return name
    prefixes = {row.partition("<")[0]: row for row in VARIABLES if "<" in row}
    return next(row for prefix, row in prefixes.items() if name.startswith(prefix) and name != prefix)


def check(story: Any) -> None:
    """Raise `StoryError`, naming what is missing, foreign or ill-shaped, unless `story` follows the schema.

    Names, dimensions, types, numbers of layers, heads and positions, and JSON types of attributes are checked; values of maps are not.
    """
    if not isinstance(story, xarray.Dataset):
        raise StoryError(
            "This is not a Story.", found=f"a {type(story).__name__}", allowed="an xarray.Dataset that follows docs/story.md",
            do="pass what `glocal.analyze` or `glocal.open` returned",
        )  # fmt: skip
    check_version(story.attrs)
    _check_attributes(story.attrs)
    for name, variable in story.data_vars.items():
        _check_variable(_checked_name(name), variable)
    _check_coordinates(story)
    _check_positions(story)


def grouped(story: xarray.Dataset) -> bool:
    """Whether the sources are groups of tokens, so that no target is among them."""
    return story.attrs["settings"].get("groups") is not None


def check_version(attributes: dict[Any, Any]) -> None:
    """Raise `StoryError` unless `attributes` are those of a Story of a version that this glocal reads."""
    version = attributes.get("glocal_schema")
    if type(version) is not int or version < 1:
        raise StoryError(
            "This is not a Story.", found=f"glocal_schema={version!r}", allowed=f"glocal_schema={VERSION}",
            do="pass what `glocal.analyze` or `glocal.open` returned",
        )  # fmt: skip
    if version > VERSION:
        raise StoryError(
            "This Story was written by a newer glocal.",
            found=f"glocal_schema={version}, glocal_version={attributes.get('glocal_version')!r}",
            allowed=f"glocal_schema up to {VERSION}", do="update glocal: pip install -U glocal",
        )  # fmt: skip


def _check_attributes(attributes: dict[Any, Any]) -> None:
    _same_names("attribute", attributes, ATTRIBUTES, "remove it, or say it as a sentence in the list `notes`")
    for name, types in ATTRIBUTES.items():
        if type(attributes[name]) not in types:
            raise StoryError(
                f"Attribute {name!r} has the wrong type.", found=f"{attributes[name]!r} ({type(attributes[name]).__name__})",
                allowed=" or ".join(kind.__name__ for kind in types), do=f"set story.attrs[{name!r}] to one of these types",
            )  # fmt: skip
        check_json(f"Attribute {name!r}", attributes[name])


def _checked_name(name: Any) -> str:
    if type(name) is not str or not name[:1].isalpha() or " " in name:
        raise StoryError(
            f"A variable cannot be called {name!r}.",
            found=repr(name),
            allowed="names that begin with a letter and have no blank",
            do="rename it with story.rename",
        )
    check_text(f"The variable's name {name!r}", name)
    return name


def _check_variable(name: str, variable: xarray.DataArray) -> None:
    rule = VARIABLES[pattern(name)]
    missing = [key for key in rule.attributes if type(variable.attrs.get(key)) is not str]
    if missing:
        raise StoryError(
            f"Variable {name!r} is foreign: the schema has no such name, and it does not say what it is."
            if pattern(name) == "<method>" else f"Variable {name!r} does not say what it is.",
            found=f"attributes {sorted(map(str, variable.attrs))}", allowed=f"attributes {', '.join(rule.attributes)}, each a text",
            do=f"remove it, or set story[{name!r}].attrs[...] for {', '.join(missing)}",
        )  # fmt: skip
    check_json(f"Variable {name!r}, its attributes", dict(variable.attrs))
    if variable.dims not in rule.shapes:
        raise StoryError(
            f"Variable {name!r} has the wrong dimensions.", found=_names(variable.dims), allowed=" or ".join(map(_names, rule.shapes)),
            do="transpose it; select with lists, such as story.sel(layer=[3]), which keep the dimension",
        )  # fmt: skip
    _check_dtype(f"Variable {name!r}", variable, "float")


def _check_coordinates(story: xarray.Dataset) -> None:
    used = {str(dim) for variable in story.data_vars.values() for dim in variable.dims}
    # Without the variables that use it (drop_vars), a dimension's numbers may stay.
    kinds = {dim: ((dim,), "int") for dim in DIMENSIONS if dim in used or dim in ALWAYS or dim in story.coords}
    for position in POSITIONS:
        kinds |= {token_coordinate(position, field): ((position,), kind) for field, kind in FIELDS.items()}
    _same_names("coordinate", story.coords, kinds, "remove it with story.drop_vars")
    for name, (dims, kind) in kinds.items():
        if story[name].dims != dims:
            raise StoryError(
                f"Coordinate {name!r} has the wrong dimensions.", found=_names(story[name].dims), allowed=_names(dims),
                do="select with lists, such as story.sel(layer=[3]), which keep the dimension",
            )  # fmt: skip
        _check_dtype(f"Coordinate {name!r}", story[name], kind)
        check_json(f"Coordinate {name!r}, its attributes", dict(story[name].attrs))


def _check_positions(story: xarray.Dataset) -> None:
    size = story.sizes[SOURCE]
    groups = grouped(story)
    # Sources first: a selection along them makes the targets wrong too.
    for name in (name for name in (SOURCE, *(dim for dim in DIMENSIONS if dim != SOURCE)) if name in story.coords):
        numbers, first = story[name].values, DIMENSIONS[name]
        whole = name != SOURCE or numpy.array_equal(numbers, numpy.arange(size))
        inside = len(numbers) > 0 and numbers[0] >= first and (name != TARGET or groups or numbers[-1] < size)
        if not (whole and inside and (numpy.diff(numbers) > 0).all()):
            allowed = f"0 to {size - 1} without a gap" if name == SOURCE else f"rising numbers from {first}"
            raise StoryError(
                f"Coordinate {name!r} has the wrong numbers.", found=numbers.tolist(), do="select positions along target, not along source",
                allowed=allowed + (f", below {size}" if name == TARGET else ""),
            )  # fmt: skip
    for field in () if groups else FIELDS:
        target, source = token_coordinate(TARGET, field), token_coordinate(SOURCE, field)
        found, allowed = story[target].values.tolist(), story[source].values[story[TARGET].values].tolist()
        if found != allowed:
            raise StoryError(
                f"Coordinates {target!r} and {source!r} disagree.", found=found, allowed=allowed,
                do="both describe the same tokens: change both",
            )  # fmt: skip


def _check_dtype(where: str, variable: xarray.DataArray, kind: str) -> None:
    # Compared as types: numpy takes ">f4" and "float32" for different types, but both are called float32.
    if variable.dtype not in [numpy.dtype(name) for name in DTYPES[kind]]:
        raise StoryError(
            f"{where} has the wrong type.", found=repr(variable.dtype), allowed=" or ".join(DTYPES[kind]), do="convert it with .astype",
        )  # fmt: skip
    if kind == "str":
        for text in variable.values:
            if type(text) is not str:
                raise StoryError(f"{where} has an entry that is not text.", found=repr(text), allowed="str", do="convert it with str()")
            check_text(where, text)


def _same_names(what: str, found: Any, allowed: Any, do: str) -> None:
    for name in allowed:
        if name not in found:
            raise StoryError(
                f"The Story lacks {what} {name!r}.", found=", ".join(map(str, found)) or "none", allowed=", ".join(allowed),
                do="start from what `glocal.analyze` or `glocal.open` returned",
            )  # fmt: skip
    for name in found:
        if name not in allowed:
            raise StoryError(f"The Story has a foreign {what}, {name!r}.", found=repr(name), allowed=", ".join(allowed), do=do)


def _names(dims: Any) -> str:
    return f"({', '.join(map(str, dims))})"
