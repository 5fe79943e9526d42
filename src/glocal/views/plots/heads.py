"""Plots of single heads: the map of all of them, and whether what they read persists in what they depend on."""

import numpy
import xarray
from matplotlib import colormaps
from matplotlib.axes import Axes

from glocal.dims import HEAD, LAYER, MAP, PATTERN
from glocal.views.plots.drawing import (
    COLOURS,
    INK,
    KIND_MARKERS,
    KINDS,
    LINE,
    SOFT,
    Plot,
    colour_bar,
    from_zero,
    heat,
    layer_bar,
    layer_colours,
    legend,
    line,
    numbered,
    panels,
    readable,
    stacked,
    style,
)
from glocal.views.plots.tidy import INTERVAL, intervals, layers, of, texts, tidy, worded

_SIGNIFICANT = 0.05


def head_map(study: xarray.Dataset) -> Plot:
    """All heads, near to each other where their rows are alike, for both maps."""
    places = study["head_place"].transpose(MAP, LAYER, HEAD, "axis")
    numbers, unit = layers(study), study["head_place"].attrs["unit"]
    colours = numpy.repeat(layer_colours(len(numbers)), places.sizes[HEAD], axis=0)
    with style():
        figure, axes = panels(places.sizes[MAP], 2, 1.75, above=0.35, sharex=True, sharey=True)
        for panel, face in zip(axes, places[MAP].values.tolist(), strict=True):
            flat = places.sel({MAP: face}).values.reshape(-1, 2)
            panel.scatter(*flat.T, s=11, c=colours, linewidths=0.3, edgecolors="white")
            panel.set_title(face, color=COLOURS[face])
            panel.set_aspect("equal")
            panel.spines[:].set_visible(True)
            panel.spines[:].set_color(LINE)
            panel.locator_params(nbins=4)
            panel.set_xlabel(unit)
        axes[0].set_ylabel(unit)
        low, high = _square(places)
        axes[0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        layer_bar(figure, axes, numbers, "layer", "bottom")
    caption = (
        f"Every head as a point, near to others where their rows are alike: multidimensional scaling of the mean Jensen-Shannon divergence "
        f"(nats) between two heads' rows over {texts(study, 'head_distance')}. Directions have no meaning.{_mantel(study)}"
    )
    return Plot("head_map", "Which heads are alike", caption, figure, tidy(of(study, "head_place")))


def persistence(study: xarray.Dataset) -> Plot:
    """Whether heads that read a pattern also depend on it: by head, and as the share of heads of a layer."""
    heads = [int(head) for head in study[HEAD].values]
    with style():
        figure, (above, below) = stacked(min(0.75 + 0.11 * len(heads), 3.5), 1.5)
        mesh = heat(above, study["persistence"].transpose(LAYER, HEAD).values, colormaps["RdBu"], (-1, 1))
        colour_bar(figure, mesh, above, "correlation over patterns, attention with attribution")
        numbered(above, layers(study), "")
        numbered(above, heads, "head", vertical=True, most=8)
        found = intervals(study, "dominant_agreement", LAYER)
        line(below, found["value"], found["low"], found["high"], colour=COLOURS["attribution"], marker="s")
        below.set_ylabel("heads with the same\ndominant pattern (share)")
        numbered(below, layers(study), "layer")
        below.set_ylim(-0.03, 1.03)
        below.grid(axis="y")
    caption = (
        "Correlation over patterns of a head's mean masses in attention and in attribution (above), and the share of a layer's heads whose "
        f"dominant pattern is the same in both (below; band: {INTERVAL}). Means over {texts(study, 'persistence')}."
    )
    tables = tidy(of(study, "persistence"), of(study, "dominant_agreement"))
    return Plot("persistence", "Do heads depend on what they read?", caption, figure, tables)


def mass_correlation(study: xarray.Dataset) -> Plot:
    """Whether the heads of a layer that read a pattern more also depend on it more, a line per pattern."""
    found = intervals(study, "mass_correlation", PATTERN, LAYER)
    patterns = [str(pattern) for pattern in study[PATTERN].values]
    with style():
        figure, (axes,) = stacked(2.7)
        for place, pattern in enumerate(patterns):
            one = found.sel({PATTERN: pattern})
            if one["value"].notnull().any():
                colour, marker = KINDS[place % len(KINDS)], KIND_MARKERS[place % len(KINDS)]
                line(axes, one["value"], one["low"], one["high"], colour=colour, marker=marker, label=worded(pattern))
        axes.axhline(0, color=INK, linewidth=0.6)
        axes.set_ylim(-1.05, 1.05)
        axes.set_ylabel("correlation over heads,\nattention with attribution")
        numbered(axes, layers(study), "layer")
        readable(axes)
        legend(figure, axes, 2)
    caption = (
        "Correlation over the heads of a layer between their mean mass on a pattern in attention and in attribution: 1 where the heads "
        f"that read it more also depend on it more. Means over {texts(study, 'mass_correlation')}. Bands: {INTERVAL}."
    )
    return Plot(
        "mass_correlation", "Do the heads that read it more depend on it more?", caption, figure, tidy(of(study, "mass_correlation"))
    )


def survival(study: xarray.Dataset) -> Plot:
    """How much attribution the heads of a pattern keep on it, against heads of the same layer at random."""
    kept, expected, high, probability = (
        study[f"survival{suffix}"].transpose(PATTERN, LAYER) for suffix in ("", "_expected", "_expected_high", "_p")
    )
    patterns = [str(pattern) for pattern in study[PATTERN].values if kept.sel({PATTERN: pattern}).notnull().any()]
    with style():
        figure, axes = panels(len(patterns), 2, 1.15, above=0.4)
        for panel, pattern in zip(axes, patterns, strict=True):
            one = {PATTERN: pattern}
            _chance(panel, expected.sel(one).values, high.sel(one).values)
            _survivors(panel, kept.sel(one).values, probability.sel(one).values)
            panel.set_title(worded(pattern))
            numbered(panel, layers(study), "", most=7)
            from_zero(panel)
        figure.supxlabel("layer", fontsize=7)
        figure.supylabel("share of attribution", fontsize=7)
        legend(figure, axes[0], 2)
    caption = (
        "Mean attribution on a pattern of the heads that read it most, against heads of the same layer at random (mean, and up to the 95th "
        f"percentile of shuffles). Filled: p < {_SIGNIFICANT}. Means over {texts(study, 'survival')}."
    )
    names = ("survival", "survival_expected", "survival_expected_high", "survival_p", "survival_heads")
    tables = tidy(*((name, study[name], None, None) for name in names))
    return Plot("survival", "Does a head's pattern survive in attribution?", caption, figure, tables)


def _chance(axes: Axes, expected: numpy.ndarray, high: numpy.ndarray) -> None:
    """Short strokes and bars, for a layer without such heads leaves a gap."""
    places = numpy.arange(len(expected))
    axes.scatter(places, expected, s=16, marker="_", color=SOFT, linewidths=1, label="by chance: mean")
    width = 3.5 if len(places) <= 16 else 1.8
    axes.vlines(places, expected, high, color=SOFT, alpha=0.3, linewidth=width, label="by chance: to 95th percentile")


def _survivors(axes: Axes, kept: numpy.ndarray, probability: numpy.ndarray) -> None:
    places, colour = numpy.arange(len(kept)), COLOURS["attribution"]
    sure = probability < _SIGNIFICANT
    for chosen, face, label in ((sure, colour, f"observed, p < {_SIGNIFICANT}"), (~sure, "white", "observed")):
        axes.scatter(places[chosen], kept[chosen], s=11, marker="s", facecolor=face, edgecolor=colour, linewidths=0.8, label=label)


def _square(places: xarray.DataArray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Lower and upper ends of both axes, equally long, around all points."""
    flat = places.values.reshape(-1, 2)
    low, high = numpy.nanmin(flat, 0), numpy.nanmax(flat, 0)
    half = 0.55 * (float((high - low).max()) or 1.0)
    return (low + high) / 2 - half, (low + high) / 2 + half


def _mantel(study: xarray.Dataset) -> str:
    found = study.attrs.get("mantel")
    if not found:
        return ""
    return (
        f" The two sets of distances correlate by {found['correlation']:.2f} "
        f"(Mantel test, p = {found['p']:.3g}, {found['permutations']:,} permutations)."
    )
