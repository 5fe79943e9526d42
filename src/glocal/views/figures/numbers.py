"""The few numbers that every view of a Story shows, by layer and head, on labelled arrays alone."""

from typing import Any

import numpy
import xarray

from glocal.dims import HEAD, SOURCE, TARGET

MAPS = ("attention", "attribution")
SPECIAL = ("first_special", "separator", "special")

Array = numpy.ndarray


def maps(story: xarray.Dataset) -> dict[str, xarray.DataArray]:
    """Attention and attribution with a head dimension (of size one where there is none), rows divided by their sum."""
    found = {}
    for name in MAPS:
        if name in story:
            array = with_heads(story[name])
            total = array.sum(SOURCE, skipna=False)
            found[name] = array / total.where(total != 0)
    return found


def with_heads(array: xarray.DataArray) -> xarray.DataArray:
    """The same map with a head dimension, of size one where there was none."""
    return array if HEAD in array.dims else array.expand_dims({HEAD: [0]}, axis=1)


def mean(values: Array) -> Array:
    """Mean over the last axis of what is a finite number; NaN if nothing is."""
    valid = numpy.isfinite(values)
    count = valid.sum(-1)
    total = numpy.where(valid, values, 0).sum(-1)
    return numpy.where(count > 0, total / numpy.maximum(count, 1), numpy.nan)


def overall(values: Array) -> float:
    """Mean over everything that is a finite number."""
    return float(mean(values.reshape(-1)))


def own_share(array: xarray.DataArray) -> Array:
    """Mean share on the own token [layer, head]."""
    targets = array[TARGET].values
    return mean(array.values[..., numpy.arange(len(targets)), targets])


def has_special(story: xarray.Dataset) -> bool:
    """Whether the text holds special tokens."""
    return bool(_special(story).any())


def special_share(array: xarray.DataArray, story: xarray.Dataset) -> Array:
    """Mean share on special tokens [layer, head]."""
    # A row that is undefined anywhere is undefined as a whole.
    return mean(numpy.where(_special(story), array.values, 0).sum(-1) + 0 * array.values.sum(-1))


def entropy(array: xarray.DataArray) -> Array:
    """Mean entropy of a row in nats [layer, head]."""
    values = array.values
    safe = numpy.where(values > 0, values, 1)
    return mean(-(safe * numpy.log(safe)).sum(-1) + 0 * values.sum(-1))


def discrepancy(story: xarray.Dataset, measure: str) -> Array:
    """Mean discrepancy over targets [layer, head]."""
    return mean(story[f"discrepancy_{measure}"].values)


def ranked(grid: Array, layers: Array, heads: Array) -> list[tuple[int, int, float]]:
    """(layer, head, value) from the largest value to the smallest; undefined ones are left out."""
    cells = [
        (int(layer), int(head), float(grid[i, j]))
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
        if numpy.isfinite(grid[i, j])
    ]
    return sorted(cells, key=lambda cell: (-cell[2], cell[0], cell[1]))


def _special(story: xarray.Dataset) -> Array:
    return numpy.isin(story["source_category"].values.astype(str), SPECIAL)


def plain(values: Any, digits: int = 6) -> Any:
    """Nested lists of floats with `digits` decimals; what is not finite becomes None."""
    if isinstance(values, numpy.ndarray) and values.ndim:
        return [plain(value, digits) for value in values]
    number = float(values)
    return round(number, digits) if numpy.isfinite(number) else None
