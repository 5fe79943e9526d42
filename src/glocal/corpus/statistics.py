"""What a study keeps of one text: a few numbers per layer and head, with the names of their dimensions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import xarray
from numpy.typing import NDArray

from glocal.corpus.heads import head_distances
from glocal.description import MAPS, describe
from glocal.dims import CATEGORY, HEAD, LAYER, MAP, OFFSET, PATTERN, SOURCE_LAYER, TARGET

# Kinds of tokens, and relative positions, that a study tells apart.
CATEGORIES = ("first_special", "separator", "special", "punctuation", "word")
REACH = 8
OFFSETS = tuple(range(-REACH, REACH + 1))


class Statistic(NamedTuple):
    """Values with the names of their dimensions."""

    dims: tuple[str, ...]
    values: NDArray[numpy.float32]


def statistics(story: xarray.Dataset, hidden: xarray.Dataset | None = None) -> dict[str, Statistic]:
    """Means over targets, by name (see docs/study.md); `hidden` is the Story of the same text with `of="hidden"`."""
    patterns = describe(story, patterns=("category_mass", "entropy", "position_profile"))
    found = {
        "category_mass": _ordered(patterns["category_mass"], (MAP, PATTERN, LAYER, HEAD)),
        "own_share": _ordered(patterns["category_mass"].sel({PATTERN: "self"}), (MAP, LAYER, HEAD)),
        "entropy": _ordered(patterns["entropy"], (MAP, LAYER, HEAD)),
        "position_profile": _ordered(patterns["position_profile"].reindex({OFFSET: list(OFFSETS)}), (MAP, OFFSET, LAYER, HEAD)),
    }
    for name, variable in story.data_vars.items():
        name = str(name)
        if name.startswith(("discrepancy_", "bias_")):
            found[name] = _ordered(variable.where(numpy.isfinite(variable)).mean(TARGET), (LAYER, HEAD))
        if name.startswith("discrepancy_"):
            found[f"{name}_by_category"] = _by_category(variable)
        if name.startswith("ladder_"):
            found[name] = _ordered(variable, (SOURCE_LAYER, LAYER, HEAD))
    return found | ({} if hidden is None else _of_hidden(hidden))


def coordinates(story: xarray.Dataset) -> dict[str, list[Any]]:
    """The values along every dimension of the statistics; the same for all texts of a model."""
    layers = story[LAYER].values.tolist()
    patterns = describe(story, patterns=("category_mass",))[PATTERN].values.tolist()
    return {
        MAP: list(MAPS),
        PATTERN: patterns,
        OFFSET: list(OFFSETS),
        CATEGORY: list(CATEGORIES),
        SOURCE_LAYER: list(range(len(layers))),
        LAYER: layers,
        HEAD: story[HEAD].values.tolist(),
    }


def distances(story: xarray.Dataset) -> NDArray[numpy.float64]:
    """Distances between the heads of all layers [map, layer, head, layer, head] (nats)."""
    layers, heads = story.sizes[LAYER], story.sizes[HEAD]
    found = [head_distances(story[name].values.reshape(layers * heads, *story[name].shape[2:])) for name in MAPS]
    return numpy.stack(found).reshape(len(MAPS), layers, heads, layers, heads)


def averaged(parts: Sequence[dict[str, Statistic]]) -> dict[str, Statistic]:
    """Of the windows of one text: the mean of those that have a value."""
    if len(parts) == 1:
        return parts[0]
    return {name: Statistic(dims, _mean(numpy.stack([part[name].values for part in parts]))) for name, (dims, _) in parts[0].items()}


def _ordered(array: xarray.DataArray, dims: tuple[str, ...]) -> Statistic:
    return Statistic(dims, array.transpose(*dims).values.astype(numpy.float32))


def _by_category(variable: xarray.DataArray) -> Statistic:
    """Means over the targets of each kind; NaN where the text has none."""
    values = variable.transpose(TARGET, LAYER, HEAD)
    kinds = values[f"{TARGET}_category"].values
    return Statistic((CATEGORY, LAYER, HEAD), numpy.stack([_mean(values.values[kinds == kind]) for kind in CATEGORIES]))


def _of_hidden(story: xarray.Dataset) -> dict[str, Statistic]:
    """How much of a hidden state is its own token's, and how often another token's part is larger [layer]."""
    values = story["attribution"].values
    own = values[:, numpy.arange(values.shape[1]), story[TARGET].values]
    other = (values.argmax(-1) != story[TARGET].values).astype(numpy.float32)
    other[~numpy.isfinite(values).all(-1)] = numpy.nan
    return {
        "hidden_own_share": Statistic((LAYER,), _mean(own.T)),
        "hidden_other_largest": Statistic((LAYER,), _mean(other.T)),
    }


def _mean(values: NDArray) -> NDArray[numpy.float32]:
    """Over the first axis, of what is finite; NaN where nothing is."""
    valid = numpy.isfinite(values)
    count = valid.sum(0)
    total = numpy.where(valid, values, 0).sum(0, dtype=numpy.float64)
    return numpy.where(count > 0, total / numpy.maximum(count, 1), numpy.nan).astype(numpy.float32)
