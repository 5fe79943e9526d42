"""An evaluation as text and as plain data."""

from typing import Any

import numpy
import xarray

from glocal.dims import EXPLANATION, LAYER, METRIC, OTHER_EXPLANATION, TEXT
from glocal.views.figures import facts
from glocal.views.figures.visible import visible
from glocal.views.terminal import finite


def summary(found: xarray.Dataset) -> str:
    """A table per metric, best first: mean with its interval, by layer, and which others it is significantly better than."""
    settings = found.attrs["settings"]
    lines = [f"{visible(settings['model'])}, {facts.counted(found.attrs['texts'], 'text')}, of={settings['of']}: agreement with occlusion"]
    for metric in found[METRIC].values.tolist():
        one = found.sel({METRIC: metric})
        lines += ["", f"{visible(metric)} ({one['better'].item()} is better)"]
        lines.append(f"{'':24} {'mean':>7} {'95 % interval':>18}  {'by layer'}")
        order = numpy.argsort(one["rank"].values, kind="stable")
        for name in one[EXPLANATION].values[order].tolist():
            mine = one.sel({EXPLANATION: name})
            mean, low, high = (float(mine[each]) for each in ("mean", "low", "high"))
            layers = " ".join(f"{value:.2f}" for value in mine["by_layer"].values)
            lines.append(f"{visible(name):24} {mean:7.3f} {f'{low:.3f} to {high:.3f}':>18}  {layers}{_beats(mine)}")
    return "\n".join(lines)


def _beats(mine: xarray.Dataset) -> str:
    """How many others this one is better than, after correction."""
    sure = (mine["difference_q"] < 0.05) & (mine["difference"] > 0)
    return f"  better than {int(sure.sum())} of {mine.sizes[OTHER_EXPLANATION] - 1} (q < 0.05)"


def as_json(found: xarray.Dataset) -> dict[str, Any]:
    """All numbers but those of single texts; what is not finite is null."""
    return {
        "coordinates": {name: found[name].values.tolist() for name in (METRIC, EXPLANATION, LAYER)},
        "better": found["better"].values.tolist(),
        "values": {
            str(name): {"dimensions": list(map(str, array.dims)), "values": finite(array.values)}
            for name, array in found.data_vars.items()
            if TEXT not in array.dims
        },
        "attributes": finite(found.attrs),
    }
