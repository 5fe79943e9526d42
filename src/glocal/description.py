"""Story -> patterns of both faces, labelled."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
import xarray

from glocal import registry
from glocal.dims import HEAD, LAYER, MAP, OFFSET, PATTERN, SOURCE, TARGET, token_coordinate
from glocal.errors import StoryError
from glocal.measures._rows import normalise_rows
from glocal.patterns.category_mass import PATTERNS
from glocal.patterns.position_profile import pairs
from glocal.results.schema import check, grouped

MAPS = ("attention", "attribution")


def describe(story: xarray.Dataset, *, patterns: Sequence[str | Callable] | None = None) -> xarray.Dataset:
    """Every pattern of attention and of attribution, side by side along the dimension `map`.

    Returns `category_mass` (map, layer, head, pattern), `own_share`, `entropy` (map, layer, head) and `position_profile` (map, layer,
    head, offset), whose coordinate `targets` counts the targets that have an offset. Rows are normalised first, masked ones are left out
    of every mean. With `of="hidden"` attribution has no heads: its patterns are then called `hidden_<pattern>`, without `map` and `head`.
    Raises `StoryError` if the Story has neither map or does not follow the schema.
    """
    check(story)
    if grouped(story):
        raise StoryError(
            "Patterns are about tokens, and here sources are groups of them.",
            asked=f"a Story with groups={story.attrs['settings']['groups']!r}",
            allowed="Stories whose sources are tokens",
            do="analyse without groups",
        )
    present = [name for name in MAPS if name in story]
    if not present:
        raise StoryError(
            "There is nothing to describe.",
            found=f"variables: {', '.join(map(str, story.data_vars)) or 'none'}",
            allowed="a Story with attention or attribution",
            do="analyse the text with one of these methods",
        )
    with_heads = [name for name in present if HEAD in story[name].dims]
    variables: dict[str, xarray.DataArray] = {}
    for pattern in registry.names("patterns") if patterns is None else patterns:
        name = registry.name_of(pattern)
        if with_heads:
            parts = [_described(story, face, pattern) for face in with_heads]
            variables[name] = xarray.concat(parts, xarray.Variable(MAP, with_heads), coords="minimal", compat="override")
        if "attribution" in present and "attribution" not in with_heads:
            variables[f"hidden_{name}"] = _described(story, "attribution", pattern).isel({HEAD: 0}, drop=True)
    return xarray.Dataset(variables)


def _described(story: xarray.Dataset, face: str, pattern: str | Callable) -> xarray.DataArray:
    values = story[face] if HEAD in story[face].dims else story[face].expand_dims({HEAD: [0]}, axis=1)
    maps = normalise_rows(torch.from_numpy(numpy.asarray(values.values, dtype=numpy.float64)))
    category = [str(each) for each in story[token_coordinate(SOURCE, "category")].values]
    targets = story[TARGET].values.tolist()
    function = registry.get("patterns", pattern)
    made = function(maps, category, targets=targets).numpy()
    card = getattr(function, "card", registry.Card(summary=registry.name_of(pattern), source=""))
    said = dict(card.extra)
    coordinates = {LAYER: story[LAYER].values, HEAD: values[HEAD].values}
    dimensions = [LAYER, HEAD]
    if "dimension" in said:
        dimensions.append(said["dimension"])
        coordinates |= _labels(said["dimension"], len(category), targets)
    attributes = {"long_name": card.summary, "unit": said.get("unit", f"as {registry.name_of(pattern)} defines it")}
    return xarray.DataArray(made, coordinates, dimensions, attrs=attributes)


def _labels(dimension: str, sources: int, targets: list[int]) -> dict[str, Any]:
    """Coordinates along the dimension that a pattern adds to layer and head; a new one has none."""
    if dimension == PATTERN:
        return {dimension: list(PATTERNS)}
    if dimension == OFFSET:
        return {dimension: numpy.arange(1 - sources, sources), "targets": (dimension, pairs(sources, targets))}
    return {}
