"""What a study keeps of one text: a few numbers per layer and head."""

from collections.abc import Mapping

import numpy
import xarray
from numpy.typing import NDArray

from glocal.description import describe
from glocal.dims import HEAD, LAYER, MAP, PATTERN, TARGET

Array = NDArray[numpy.float64]


def statistics(story: xarray.Dataset) -> dict[str, Array]:
    """Means over targets [layer, head], by name.

    `<map>_<pattern>` (category masses), `<map>_own_share`, `<map>_entropy` for attention and attribution, `discrepancy_<measure>` and
    `bias_<measure>`; and `dominant_<map>`, the number of the category with the largest mass.
    """
    found: dict[str, Array] = {}
    patterns = describe(story, patterns=("category_mass", "own_share", "entropy"))
    for face in patterns[MAP].values.tolist():
        here = patterns.sel({MAP: face})
        masses = here["category_mass"].transpose(LAYER, HEAD, PATTERN)
        for number, pattern in enumerate(masses[PATTERN].values.tolist()):
            found[f"{face}_{pattern}"] = masses.values[..., number]
        for name in ("own_share", "entropy"):
            found[f"{face}_{name}"] = here[name].transpose(LAYER, HEAD).values
    for name, variable in story.data_vars.items():
        if str(name).startswith(("discrepancy_", "bias_")):
            found[str(name)] = _mean(variable.transpose(LAYER, HEAD, TARGET).values)
    return {name: numpy.asarray(value, dtype=numpy.float64) for name, value in found.items()}


def _mean(values: NDArray) -> Array:
    wide = values.astype(numpy.float64)
    valid = numpy.isfinite(wide)
    count = valid.sum(-1)
    return numpy.where(count > 0, numpy.where(valid, wide, 0).sum(-1) / numpy.maximum(count, 1), numpy.nan)


def stacked(texts: list[Mapping[str, Array]]) -> dict[str, Array]:
    """[text, layer, head] by name, of texts with the same names."""
    return {name: numpy.stack([each[name] for each in texts]) for name in texts[0]} if texts else {}
