"""Plot of how both maps depend on relative position."""

import numpy
import xarray

from glocal.dims import LAYER, MAP, OFFSET
from glocal.views.plots.drawing import COLOURS, LINE, MARKERS, Plot, from_zero, legend, line, panels, readable, style
from glocal.views.plots.tidy import INTERVAL, intervals, layers, of, texts, tidy

_MOST_PANELS = 12


def position_profile(study: xarray.Dataset) -> Plot:
    """The mean share at every relative position, a panel per layer (twelve of them where there are more)."""
    name = "position_profile_over_heads"
    shown = _chosen(layers(study))
    found = intervals(study, name, MAP, LAYER, OFFSET)
    offsets = [int(offset) for offset in study[OFFSET].values]
    with style():
        figure, axes = panels(len(shown), 3, 1.1, sharey=True)
        for panel, layer in zip(axes, shown, strict=True):
            panel.axvline(0, color=LINE, linewidth=0.8, zorder=0)
            for face in study[MAP].values.tolist():
                one = found.sel({LAYER: layer, MAP: face})
                line(panel, one["value"], one["low"], one["high"], x=offsets, colour=COLOURS[face], marker=MARKERS[face], label=face)
            panel.set_title(f"layer {layer}")
            panel.set_xticks([offset for offset in offsets if offset % 5 == 0])
            readable(panel)
        from_zero(axes[0])  # all share its axis
        figure.supxlabel("position of the source, relative to the target (tokens)", fontsize=7)
        figure.supylabel("share of a row", fontsize=7)
        legend(figure, axes[0])
    some = "" if len(shown) == study.sizes[LAYER] else f" {len(shown)} of {study.sizes[LAYER]} layers are shown."
    caption = (
        "Share of attention and of attribution by position relative to the target (0 is the own token, -1 the one before): mean over heads "
        f"and {texts(study, name)}. Bands: {INTERVAL}.{some}"
    )
    chosen = study.sel({LAYER: shown})
    return Plot("position_profile", "Near and far", caption, figure, tidy(of(chosen, name)))


def _chosen(numbers: list[int]) -> list[int]:
    if len(numbers) <= _MOST_PANELS:
        return numbers
    return [numbers[place] for place in numpy.linspace(0, len(numbers) - 1, _MOST_PANELS).round().astype(int)]
