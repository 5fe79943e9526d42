"""Story -> patterns of both faces, labelled."""

from collections.abc import Sequence

import numpy
import torch
import xarray

from glocal import registry
from glocal.dims import HEAD, LAYER, SOURCE, TARGET, token_coordinate
from glocal.errors import StoryError
from glocal.measures._rows import normalise_rows
from glocal.patterns.category_mass import PATTERNS
from glocal.patterns.position_profile import pairs

MAPS = ("attention", "attribution")

# The dimension that a pattern adds to layer and head, if any.
_ADDS = {"category_mass": "pattern", "position_profile": "offset"}


def describe(story: xarray.Dataset, *, patterns: Sequence[str] | None = None) -> xarray.Dataset:
    """Every pattern of attention and of attribution, side by side along the dimension `map`.

    Returns `category_mass` (map, layer, head, pattern), `own_share`, `entropy` (map, layer, head) and `position_profile` (map, layer,
    head, offset); rows are normalised first, masked ones are left out of every mean. With `of="hidden"` attribution has no heads: its
    patterns are then called `hidden_<pattern>`, without `map` and `head`. Raises `StoryError` if the Story has neither map.
    """
    names = registry.names("patterns") if patterns is None else tuple(patterns)
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
    for pattern in names:
        if with_heads:
            parts = [_described(story, name, pattern) for name in with_heads]
            variables[pattern] = xarray.concat(parts, xarray.Variable("map", with_heads), coords="minimal", compat="override")
        for name in set(present) - set(with_heads):
            variables[f"hidden_{pattern}"] = _described(story, name, pattern).isel({HEAD: 0}, drop=True)
    return xarray.Dataset(variables)


def _described(story: xarray.Dataset, name: str, pattern: str) -> xarray.DataArray:
    values = story[name] if HEAD in story[name].dims else story[name].expand_dims({HEAD: [0]}, axis=1)
    maps = normalise_rows(torch.from_numpy(numpy.asarray(values.values, dtype=numpy.float64)))
    category = [str(each) for each in story[token_coordinate(SOURCE, "category")].values]
    targets = story[TARGET].values.tolist()
    made = registry.get("patterns", pattern)(maps, category, targets=targets).numpy()
    coordinates = {LAYER: story[LAYER].values, HEAD: values[HEAD].values}
    added = _ADDS.get(pattern)
    if added == "pattern":
        coordinates["pattern"] = list(PATTERNS)
    elif added == "offset":
        coordinates["offset"] = numpy.arange(1 - len(category), len(category))
    array = xarray.DataArray(made, coordinates, [LAYER, HEAD] + ([added] if added else []), name=pattern)
    if added == "offset":
        array = array.assign_coords(targets=("offset", pairs(len(category), targets)))
    return array
