"""Plots of both maps by layer: category masses, own-token share, entropy; and of whole layers' outputs."""

import numpy
import xarray
from matplotlib.axes import Axes

from glocal.dims import HEAD, LAYER, MAP, PATTERN
from glocal.views.plots.drawing import COLOURS, INK, MARKERS, Plot, from_zero, legend, line, numbered, panels, stacked, style
from glocal.views.plots.tidy import INTERVAL, intervals, layers, of, texts, tidy, titled, with_unit, worded

_BESIDE = {"attention": -0.16, "attribution": 0.16}


def category_mass(study: xarray.Dataset) -> Plot:
    """The mass of both maps on every pattern, by layer."""
    name = "category_mass_over_heads"
    found, numbers = intervals(study, name, PATTERN, MAP, LAYER), layers(study)
    patterns = [str(pattern) for pattern in study[PATTERN].values]
    with style():
        figure, axes = panels(len(patterns), 2, 1.15)
        for panel, pattern in zip(axes, patterns, strict=True):
            _both(panel, found.sel({PATTERN: pattern}))
            panel.set_title(worded(pattern))
            numbered(panel, numbers, "", most=7)
            from_zero(panel)
        figure.supxlabel("layer", fontsize=7)
        figure.supylabel("share of a row", fontsize=7)
        legend(figure, axes[0])
    caption = (
        "Share of attention and of attribution that falls on every kind of source, by layer: mean over heads and "
        f"{texts(study, name)}. Bands: {INTERVAL}. Kinds overlap (the next token can be a separator); vertical axes differ."
    )
    return Plot("category_mass", "What heads read, and what they depend on", caption, figure, tidy(of(study, name)))


def own_share(study: xarray.Dataset) -> Plot:
    """The share of both maps on the own token, by layer."""
    return _both_by_layer(study, "own_share", "Share of the own token", "share of the own token")


def entropy(study: xarray.Dataset) -> Plot:
    """The entropy of both maps' rows, by layer."""
    return _both_by_layer(study, "entropy", "How widely heads spread", "entropy of a row")


def hidden(study: xarray.Dataset) -> Plot:
    """What whole layers' outputs depend on, by layer."""
    names = [name for name in ("hidden_own_share", "hidden_other_largest") if name in study]
    titles = {"hidden_own_share": "share of the own token", "hidden_other_largest": "another token has the largest share"}
    with style():
        figure, axes = stacked(*[1.35] * len(names))
        for panel, name in zip(axes, names, strict=True):
            found = intervals(study, name, LAYER)
            line(panel, found["value"], found["low"], found["high"], colour=COLOURS["attribution"], marker=MARKERS["attribution"])
            panel.set_title(titles[name])
            panel.set_ylabel(study[name].attrs["unit"])
            numbered(panel, layers(study), "layer" if name == names[-1] else "")
            from_zero(panel)
    caption = (
        "What a whole layer's output at a token depends on: how much on that token itself, and how often more on another one. "
        f"Mean over {texts(study, names[0])}. Bands: {INTERVAL}."
    )
    return Plot("hidden", "How much of a token is left in its vector", caption, figure, tidy(*(of(study, name) for name in names)))


def _both(axes: Axes, found: xarray.Dataset) -> None:
    for face in found[MAP].values.tolist():
        one = found.sel({MAP: face})
        # Error bars of a single layer would hide each other.
        x = numpy.arange(one.sizes[LAYER]) + (_BESIDE[face] / 4 if one.sizes[LAYER] == 1 else 0)
        line(axes, one["value"], one["low"], one["high"], x=x, colour=COLOURS[face], marker=MARKERS[face], label=face)


def _both_by_layer(study: xarray.Dataset, name: str, title: str, label: str) -> Plot:
    heads = study[name].transpose(MAP, LAYER, HEAD)
    with style():
        figure, (axes,) = stacked(2.1)
        for face in study[MAP].values.tolist():
            values = heads.sel({MAP: face}).values
            places = numpy.repeat(numpy.arange(len(values)) + _BESIDE[face], values.shape[1])
            axes.scatter(places, values.reshape(-1), s=5, color=COLOURS[face], marker=MARKERS[face], alpha=0.3, linewidths=0)
        _both(axes, intervals(study, f"{name}_over_heads", MAP, LAYER))
        axes.plot([], [], color=INK, alpha=0.4, marker=".", markersize=4, linestyle="", label="one head")
        axes.set_ylabel(with_unit(label, study[name].attrs["unit"]))
        numbered(axes, layers(study), "layer")
        from_zero(axes)
        legend(figure, axes)
    caption = (
        f"{titled(label)}, in attention and in attribution, by layer: mean over heads and {texts(study, name)} with {INTERVAL} (bands); "
        "dots are single heads."
    )
    return Plot(name, title, caption, figure, tidy(of(study, f"{name}_over_heads"), of(study, name)))
