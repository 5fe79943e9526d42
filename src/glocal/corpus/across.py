"""What only the whole corpus shows: which patterns of heads persist from attention to attribution, and how alike heads are."""

from typing import Any

import numpy
from numpy.typing import NDArray

from glocal.corpus.heads import clusters, mantel, places
from glocal.corpus.moments import interval
from glocal.dims import AXIS, HEAD, LAYER, MAP, OTHER_HEAD, OTHER_LAYER, PATTERN

Array = NDArray[numpy.float64]
Labelled = dict[str, tuple[tuple[str, ...], NDArray, str, str]]  # name -> dimensions, values, long name, unit

SHUFFLES = 2000


def persistence(masses: Array, draws: Array, *, seed: int) -> Labelled:
    """Persistence of category masses [map, pattern, layer, head], whose maps are attention and attribution, and of their bootstrap draws.

    `persistence`: Pearson's correlation over patterns of a head's mean masses, attention with attribution. `mass_correlation`: over the
    heads of a layer, of their mean masses on one pattern. `dominant_pattern`: the pattern with the largest mass. `dominant_agreement`: the
    share of a layer's heads whose dominant pattern is the same in both. `survival`: mean attribution mass on a pattern of the heads whose
    dominant attention pattern it is, beside what mixing alone predicts, which knows nothing of which head attends to what: the same after
    the layer's heads have been shuffled.
    """
    one, other = draws[:, 0], draws[:, 1]
    found: Labelled = {"dominant_pattern": ((MAP, LAYER, HEAD), _dominant(masses, 1), "number of the pattern with the largest mass", "")}
    for name, dims, value, drawn, said, unit in (
        (
            "persistence",
            (LAYER, HEAD),
            _correlation(masses[0], masses[1], axis=0),
            _correlation(one, other, axis=1),
            "correlation over patterns of attention's with attribution's masses",
            "",
        ),
        (
            "mass_correlation",
            (PATTERN, LAYER),
            _correlation(masses[0], masses[1], axis=-1),
            _correlation(one, other, axis=-1),
            "correlation over heads of attention's with attribution's masses",
            "",
        ),
        (
            "dominant_agreement",
            (LAYER,),
            _agreement(masses[None, 0], masses[None, 1])[0],
            _agreement(one, other),
            "share of heads with the same dominant pattern in both",
            "share",
        ),
    ):
        low, high = interval(drawn)
        found[name] = (dims, value, said, unit)
        found |= {f"{name}_low": (dims, low, f"{said}, lower end", unit), f"{name}_high": (dims, high, f"{said}, upper end", unit)}
    return found | _survival(masses, seed)


def _correlation(one: Array, other: Array, axis: int) -> Array:
    one, other = (each - each.mean(axis, keepdims=True) for each in (one, other))
    scale = numpy.sqrt((one**2).sum(axis) * (other**2).sum(axis))
    return numpy.where(scale > 0, (one * other).sum(axis) / numpy.where(scale > 0, scale, 1), numpy.nan)


def _dominant(masses: Array, axis: int) -> NDArray[numpy.int64]:
    """Number of the largest along `axis`, which goes; -1 where any is undefined."""
    undefined = numpy.isnan(masses).any(axis)
    return numpy.where(undefined, -1, numpy.nan_to_num(masses).argmax(axis))


def _agreement(attention: Array, attribution: Array) -> Array:
    """[draw, pattern, layer, head] -> [draw, layer]."""
    one, other = _dominant(attention, 1), _dominant(attribution, 1)
    valid = (one >= 0) & (other >= 0)
    return numpy.where(valid.any(-1), (valid & (one == other)).sum(-1) / numpy.maximum(valid.sum(-1), 1), numpy.nan)


def _survival(masses: Array, seed: int) -> Labelled:
    """Per pattern and layer; NaN where no head of the layer has the pattern as its dominant one."""
    attribution, dominant = masses[1], _dominant(masses[0], 0)
    patterns, layers, heads = attribution.shape
    generator = numpy.random.default_rng(seed)
    orders = generator.permuted(numpy.tile(numpy.arange(heads), (SHUFFLES, 1)), axis=1)
    found = {name: numpy.full((patterns, layers), numpy.nan) for name in ("", "_expected", "_expected_high", "_p")}
    counts = numpy.zeros((patterns, layers), dtype=numpy.int64)
    for pattern in range(patterns):
        for layer in range(layers):
            mine, mass = dominant[layer] == pattern, attribution[pattern, layer]
            counts[pattern, layer] = mine.sum()
            if not mine.any() or not numpy.isfinite(mass).all():
                continue
            observed, shuffled = mass[mine].mean(), mass[orders][:, mine].mean(1)
            larger = (shuffled >= observed - 1e-12).sum()
            values = (observed, mass.mean(), numpy.quantile(shuffled, 0.95), (1 + larger) / (1 + SHUFFLES))
            for name, value in zip(found, values, strict=True):
                found[name][pattern, layer] = value
    here, what = (PATTERN, LAYER), "attribution mass on the pattern of the heads whose dominant attention pattern it is"
    return {
        "survival": (here, found[""], what, "share"),
        "survival_expected": (here, found["_expected"], f"{what}, were heads shuffled", "share"),
        "survival_expected_high": (here, found["_expected_high"], f"{what}, 95th percentile over shuffles", "share"),
        "survival_p": (here, found["_p"], "share of shuffles with as large a mass", "probability"),
        "survival_heads": (here, counts, "heads whose dominant attention pattern it is", "heads"),
    }


def head_maps(distance: Array, *, seed: int) -> tuple[Labelled, dict[str, Any] | None]:
    """Mean distances [map, layer, head, other_layer, other_head] with their maps and clusters; and whether the two maps agree (Mantel)."""
    faces, layers, heads = distance.shape[:3]
    square = distance.reshape(faces, layers * heads, layers * heads)
    square = (square + square.transpose(0, 2, 1)) / 2
    here = (MAP, LAYER, HEAD)
    found: Labelled = {
        "head_distance": ((*here, OTHER_LAYER, OTHER_HEAD), distance, "mean Jensen-Shannon divergence of two heads' rows", "nats"),
        "head_place": (
            (*here, AXIS),
            numpy.stack([places(each) for each in square]).reshape(faces, layers, heads, 2),
            "classical scaling of the square roots of the distances between heads",
            "square root of nats",
        ),
        "head_cluster": (
            here,
            numpy.stack([clusters(each) for each in square]).reshape(faces, layers, heads),
            "cluster of the head (average linkage)",
            "",
        ),
    }
    return found, mantel(square[0], square[1], seed=seed)
