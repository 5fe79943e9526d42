"""Plot of the ladder: how the discrepancy grows with the number of layers that attribution looks through."""

import numpy
import xarray

from glocal.dims import LAYER, SOURCE_LAYER
from glocal.views.figures.measures import measure_of
from glocal.views.plots.drawing import (
    KIND_MARKERS,
    Plot,
    from_zero,
    layer_bar,
    layer_colours,
    legend,
    line,
    readable,
    stacked,
    style,
    thinned,
)
from glocal.views.plots.tidy import INTERVAL, intervals, layers, of, texts, tidy, titled, with_unit

# More lines than this get a scale of colours instead of names, and no bands.
_FEW = 6


def ladder(study: xarray.Dataset, measure: str) -> Plot:
    """One measure against the number of layers between a head and what its output is attributed to, a line per layer."""
    about, name = measure_of(study, measure), f"ladder_{measure}_over_heads"
    found, numbers = intervals(study, name, LAYER, SOURCE_LAYER), layers(study)
    few = len(numbers) <= _FEW
    colours = layer_colours(len(numbers))
    with style():
        figure, (axes,) = stacked(2.4)
        for place, layer in enumerate(numbers):
            one = found.sel({LAYER: layer}).where(found[SOURCE_LAYER] < layer, drop=True).sortby(SOURCE_LAYER, ascending=False)
            low, high = (one[bound] if few else numpy.full(one.sizes[SOURCE_LAYER], numpy.nan) for bound in ("low", "high"))
            line(
                axes, one["value"], low, high, x=layer - one[SOURCE_LAYER].values, colour=colours[place],
                marker=KIND_MARKERS[place] if few else "o", label=f"layer {layer}",
            )  # fmt: skip
        depth = range(1, max(numbers) - int(found[SOURCE_LAYER].min()) + 1)
        axes.set_xticks([depth[place] for place in thinned(depth, 13)])
        axes.set_xlim(0.5, len(depth) + 0.5)
        axes.set_xlabel("layers looked through (1: to the head's own input)")
        axes.set_ylabel(with_unit(about.label, about.unit))
        from_zero(axes) if about.low == 0 else readable(axes)
        if few:
            legend(figure, axes)
        else:
            layer_bar(figure, axes, numbers, "layer of the head", "right")
    bands = f"Bands: {INTERVAL}." if few else f"The {INTERVAL}, are in its table."
    caption = (
        f"{titled(about.label)} between a head's attention and the attribution of its output to the input of its own "
        f"layer (1), of the layer below (2), and so on: mean over heads and {texts(study, name)}, a line per layer. {bands}"
    )
    table = tidy(of(study, name))
    table.insert(list(table.columns).index("value"), "depth", table[LAYER] - table[SOURCE_LAYER])
    return Plot(f"ladder_{measure}", f"{titled(about.label)} down the ladder", caption, figure, table)
