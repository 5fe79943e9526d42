"""The output that a Story explains and the scores of its tokens, for every view."""

from typing import Any

import numpy
import xarray

from glocal.dims import SOURCE
from glocal.views.figures.visible import shortened, visible


def scores(story: xarray.Dataset) -> dict[str, numpy.ndarray]:
    """[source] of every method that explains an output, by name."""
    return {str(name): array.values for name, array in story.data_vars.items() if array.dims == (SOURCE,)}


def statement(story: xarray.Dataset) -> str:
    """One sentence: which output is explained, its value and its probability; empty where none is."""
    explained = story.attrs["explained"]
    if "name" not in explained:
        return ""
    probability = f", probability {explained['probability']:.3f}" if "probability" in explained else ""
    return f"The output “{shortened(visible(explained['name']), 80)}” is {explained['value']:.4g}{probability}."


def columns(story: xarray.Dataset) -> list[dict[str, Any]]:
    """Name, unit, values and the sum of every method's scores, with what its facts say (a completeness gap, a sum's error)."""
    made = []
    for name, values in scores(story).items():
        facts = {key: value for key, value in story.attrs["explained"].get(name, {}).items() if key != "value"}
        finite = values[numpy.isfinite(values)]
        made.append(
            {
                "name": visible(name),
                "unit": visible(story[name].attrs["unit"]),
                "values": [float(each) if numpy.isfinite(each) else None for each in values],
                "largest": float(numpy.abs(finite).max()) if finite.size else 0.0,
                "facts": ", ".join(f"{visible(key.replace('_', ' '))} {_short(value)}" for key, value in facts.items()),
            }
        )
    return made


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else shortened(visible(str(value)), 60)
