"""An evaluation as text and as plain data."""

from typing import Any

import numpy
import xarray

from glocal.dims import EXPLANATION, FRACTION, LAYER, METRIC, OTHER_EXPLANATION, TEXT
from glocal.views.figures import facts
from glocal.views.figures.visible import visible
from glocal.views.terminal import finite

# Texts from which on a bootstrap over them can be relied on.
FEW = 30


def summary(found: xarray.Dataset) -> str:
    """A table per metric, best first: mean with its interval, and which others it is significantly better than.

    Maps: by layer; outputs: beside the mean of inverted scores, and texts without a value.
    """
    lines = _head(found)
    if found.attrs["texts"] < FEW:
        lines.append(f"! Fewer than {FEW} texts: intervals of a bootstrap over so few are too narrow, and q too small.")
    for metric in found[METRIC].values.tolist():
        one = found.sel({METRIC: metric})
        more = f"{'inverse':>9}" if "inverse_mean" in found else "  by layer"
        lines += ["", f"{visible(metric)} ({one['better'].item()} is better)", f"{'':24} {'mean':>7} {'95 % interval':>18}{more}"]
        order = numpy.argsort(one["rank"].values, kind="stable")
        for name in one[EXPLANATION].values[order].tolist():
            mine = one.sel({EXPLANATION: name})
            mean, low, high = (float(mine[each]) for each in ("mean", "low", "high"))
            lines.append(f"{visible(name):24} {mean:7.3f} {f'{low:.3f} to {high:.3f}':>18}{_more(mine)}{_beats(mine)}{_undefined(mine)}")
    return "\n".join(lines)


def _head(found: xarray.Dataset) -> list[str]:
    settings = found.attrs["settings"]
    first = f"{visible(settings['model'])}, {facts.counted(found.attrs['texts'], 'text')}"
    if found.attrs["reference"] != "output":
        return [f"{first}, of={settings['of']}: agreement with occlusion"]
    tokens = "special tokens may go" if settings["special"] else "special tokens stay"
    bins, fractions = (", ".join(f"{each:.3g}" for each in settings[name]) for name in ("bins", "fractions"))
    return [
        f"{first}, explain={visible(settings['explain'])}: what happens without the tokens that count",
        f"replace={settings['replace']}, scale={settings['scale']}, rounding={settings['rounding']}, {tokens}",
        f"bins {bins}; fractions {fractions}",
    ]


def _more(mine: xarray.Dataset) -> str:
    if "inverse_mean" not in mine:
        return "  " + " ".join(f"{value:.2f}" for value in mine["by_layer"].values)
    inverse = mine["inverse_mean"].item()
    return f"{inverse:9.3f}" if numpy.isfinite(inverse) else f"{'-':>9}"


def _beats(mine: xarray.Dataset) -> str:
    """How many others this one is better than, after correction."""
    sure = (mine["difference_q"] < 0.05) & (mine["difference"] > 0)
    return f"  better than {int(sure.sum())} of {mine.sizes[OTHER_EXPLANATION] - 1} (q < 0.05)"


def _undefined(mine: xarray.Dataset) -> str:
    missing = mine.sizes[TEXT] - int(mine["count"])
    return f"  undefined in {facts.counted(missing, 'text')}" if missing else ""


def as_json(found: xarray.Dataset) -> dict[str, Any]:
    """All numbers but those of single texts; what is not finite is null."""
    return {
        "coordinates": {name: found[name].values.tolist() for name in (METRIC, EXPLANATION, LAYER, FRACTION) if name in found.coords},
        "better": found["better"].values.tolist(),
        "values": {
            str(name): {"dimensions": list(map(str, array.dims)), "values": finite(array.values)}
            for name, array in found.data_vars.items()
            if TEXT not in array.dims
        },
        "attributes": finite(found.attrs),
    }
