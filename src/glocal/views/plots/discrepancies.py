"""Plots of how far attention and attribution are apart: by layer and head, by kind of target, by length of text."""

import numpy
import xarray
from matplotlib.axes import Axes

from glocal.dims import HEAD, LAYER
from glocal.views.figures.measures import PREFIX, Measure, measure_of
from glocal.views.plots.drawing import (
    INK,
    KIND_MARKERS,
    KINDS,
    SOFT,
    Plot,
    colour_bar,
    from_zero,
    heat,
    layer_colours,
    legend,
    line,
    numbered,
    readable,
    shades,
    stacked,
    style,
)
from glocal.views.plots.tidy import INTERVAL, intervals, layers, of, texts, tidy, titled, with_unit, worded


def discrepancy(study: xarray.Dataset, measure: str) -> Plot:
    """One measure for every layer and head, and by layer with its spread over texts."""
    about, name = measure_of(study, measure), PREFIX + measure
    heads = [int(head) for head in study[HEAD].values]
    spread = f"{name}_quantile" in study
    with style():
        figure, (above, below) = stacked(min(0.75 + 0.11 * len(heads), 3.5), 1.9)
        mesh = heat(above, study[name].transpose(LAYER, HEAD).values, shades())
        colour_bar(figure, mesh, above, with_unit(about.label, about.unit))
        numbered(above, layers(study), "")
        numbered(above, heads, "head", vertical=True, most=8)
        if spread:
            _quantiles(below, study[f"{name}_quantile"].mean(HEAD))
        _line(below, study, f"{name}_over_heads")
        below.set_ylabel(_wrapped(about))
        numbered(below, layers(study), "layer")
        _scaled(below, about)
        below.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.3)
    caption = (
        f"{titled(about.label)} of attention and attribution ({about.direction}): every head, mean over targets and "
        f"{texts(study, name)} (above); mean over heads with {INTERVAL} (below)"
        + (", and where the middle of the texts lie, of each head, averaged over heads." if spread else ".")
        + _bias(study, measure, about)
    )
    tables = [of(study, name), of(study, f"{name}_over_heads")]
    if spread:
        tables.append((f"{name}_quantile", study[f"{name}_quantile"].mean(HEAD), None, None))
    return Plot(name, titled(about.label), caption, figure, tidy(*tables))


def discrepancy_by_category(study: xarray.Dataset, measure: str) -> Plot:
    """One measure by layer, for every kind of target."""
    kinds = [str(kind) for kind in study["category"].values]
    styles = {kind: (KINDS[place % len(KINDS)], KIND_MARKERS[place % len(KINDS)], worded(kind)) for place, kind in enumerate(kinds)}
    return _by(study, measure, "category", styles, "kind of target token")


def discrepancy_by_length(study: xarray.Dataset, measure: str) -> Plot:
    """One measure by layer, for texts of every length."""
    lengths = [str(length) for length in study["length"].values]
    counts = study[f"{PREFIX}{measure}_by_length_over_heads_count"].max(LAYER)
    colours = layer_colours(len(lengths))
    styles = {
        length: (colours[place], KIND_MARKERS[place % len(KINDS)], f"{length} tokens (n = {int(counts.sel(length=length)):,})")
        for place, length in enumerate(lengths)
    }
    return _by(study, measure, "length", styles, "length of the text")


def _by(study: xarray.Dataset, measure: str, dimension: str, styles: dict, called: str) -> Plot:
    about, name = measure_of(study, measure), f"{PREFIX}{measure}_by_{dimension}"
    found = intervals(study, f"{name}_over_heads", dimension, LAYER)
    with style():
        figure, (axes,) = stacked(2.5)
        for kind, (colour, marker, label) in styles.items():
            one = found.sel({dimension: kind})
            if one["value"].notnull().any():
                line(axes, one["value"], one["low"], one["high"], colour=colour, marker=marker, label=label)
        axes.set_ylabel(_wrapped(about))
        numbered(axes, layers(study), "layer")
        _scaled(axes, about)
        legend(figure, axes, 2)
    caption = (
        f"{titled(about.label)} of attention and attribution ({about.direction}) by layer and {called}: "
        f"mean over heads and {texts(study, f'{name}_over_heads')}. Bands: {INTERVAL}."
    )
    title = f"{titled(about.label)} by {called}"
    return Plot(name, title, caption, figure, tidy(of(study, f"{name}_over_heads")))


def _line(axes: Axes, study: xarray.Dataset, name: str) -> None:
    found = intervals(study, name, LAYER)
    line(axes, found["value"], found["low"], found["high"], colour="#5b3a8c", label="mean")


def _quantiles(axes: Axes, quantiles: xarray.DataArray) -> None:
    """Shades between the first and the last level, the second and the last but one, and so on; darker inwards."""
    levels = numpy.sort(quantiles["level"].values)
    places, pairs = numpy.arange(quantiles.sizes[LAYER]), len(levels) // 2
    # A single layer has no width of its own.
    wide = numpy.array([-0.05, 0.05]) if len(places) == 1 else places
    by_level = [numpy.broadcast_to(quantiles.sel(level=level).values, wide.shape) for level in levels]
    for pair in range(pairs):
        # Rings, not layers of shades, so that the legend shows the shade that the plot has.
        edges = [(pair, pair + 1), (-pair - 2, -pair - 1)] if pair < pairs - 1 else [(pair, -pair - 1)]
        label = f"middle {100 * (levels[-pair - 1] - levels[pair]):.0f} %"
        for lower, upper in edges:
            axes.fill_between(
                wide, by_level[lower], by_level[upper], color=SOFT, alpha=0.14 * (pair + 1), linewidth=0, label=label if upper < 0 else ""
            )


def _scaled(axes: Axes, about: Measure) -> None:
    if about.low == 0:
        from_zero(axes)
    else:
        readable(axes)
        axes.axhline(0, color=INK, linewidth=0.6)


def _wrapped(about: Measure) -> str:
    """A label for an axis that is shorter than the text is long."""
    words = with_unit(about.label, about.unit).split()
    half = len(" ".join(words)) / 2
    first = [word for place, word in enumerate(words) if len(" ".join(words[: place + 1])) <= half + 4]
    return " ".join(first) + "\n" + " ".join(words[len(first) :]) if len(words) > 2 else " ".join(words)


def _bias(study: xarray.Dataset, measure: str, about: Measure) -> str:
    name = f"bias_{measure}_over_heads"
    if name not in study or not study[name].notnull().any():
        return ""
    amount = f"{float(study[name].mean()):+.1g} {about.unit}".strip()
    return f" The sketch's noise is expected to move this by {amount} on average."
