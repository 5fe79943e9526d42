"""How every plot looks: one style, one palette, and the few marks that plots are made of."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Colormap, LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# One column of a two-column paper, in inches; longer figures grow downwards.
WIDTH = 3.4
INK, SOFT, LINE = "#1c212b", "#59606e", "#d9d6cf"
# The colours of the two maps everywhere in glocal; the markers tell them apart without colour.
COLOURS = {"attention": "#1f6fb4", "attribution": "#c2560c"}
MARKERS = {"attention": "o", "attribution": "s"}
# Okabe and Ito 2008, without yellow, which is too light for lines.
KINDS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
KIND_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MANY_POINTS, _MANY_CELLS = 16, 4000

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that every machine writes the same letters
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "axes.labelsize": 7,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "text.parse_math": False,  # names are texts, also with dollar signs
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
    "legend.borderpad": 0,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.2,
    "hatch.linewidth": 0.4,
    "hatch.color": SOFT,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.facecolor": "white",
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # letters that can be searched and edited
    "svg.fonttype": "path",
    "svg.hashsalt": "glocal",
}


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure with its words and its numbers."""

    name: str
    title: str
    caption: str
    figure: Figure
    data: pandas.DataFrame  # one row per plotted value


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's settings for every plot, whatever the user's own are, which come back afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def picture(plot: Plot, kind: str, *, transparent: bool = False) -> bytes:
    """The figure as a file of the format `kind` ("pdf", "svg" or "png"), on white or nothing: the same bytes for the same Study."""
    metadata: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
    buffer = BytesIO()
    with style():
        plot.figure.savefig(buffer, format=kind, metadata=metadata[kind], transparent=transparent)
    return buffer.getvalue()


def panels(count: int, columns: int, height: float, *, above: float = 0.25, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in `columns`, each `height` inches high; cells without a panel stay empty."""
    columns = min(columns, count)
    rows = -(-count // columns)
    # A single row leaves room for the label beside it.
    figure = Figure(figsize=(WIDTH, max(rows * height, 1.6) + above), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for empty in axes[count:]:
        empty.set_axis_off()
    return figure, axes[:count]


def stacked(*heights: float) -> tuple[Figure, list[Axes]]:
    """A figure with one panel above the other, of these heights in inches."""
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    return figure, list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights).flat)


def line(axes: Axes, values: Any, low: Any, high: Any, *, colour: Any, marker: str = "o", label: str = "", x: Any = None) -> None:
    """A line over 0, 1, ... (or `x`) in a band; what has no neighbour gets an error bar instead, for a band needs two points."""
    values, low, high = (numpy.asarray(each, dtype=float) for each in (values, low, high))
    x = numpy.arange(len(values)) if x is None else numpy.asarray(x)
    size = 3.2 if len(values) <= _MANY_POINTS else 1.9
    axes.plot(x, values, color=colour, marker=marker, markersize=size, markeredgewidth=0, label=label)
    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    alone = _alone(values) & numpy.isfinite(low) & numpy.isfinite(high)
    axes.vlines(x[alone], low[alone], high[alone], color=colour, linewidth=1)


def _alone(values: numpy.ndarray) -> numpy.ndarray:
    known = numpy.pad(numpy.isfinite(values), 1)
    return known[1:-1] & ~known[:-2] & ~known[2:]


def heat(axes: Axes, grid: numpy.ndarray, colours: Colormap, limits: tuple[float, float] | None = None) -> ScalarMappable:
    """Cells [layer, head], layers to the right and heads upwards; undefined cells are hatched."""
    cells = numpy.ma.masked_invalid(grid.T)
    low, high = limits or _limits(cells.compressed())
    many = cells.size > _MANY_CELLS
    mesh = axes.pcolormesh(
        numpy.arange(grid.shape[0] + 1) - 0.5, numpy.arange(grid.shape[1] + 1) - 0.5, cells, cmap=colours, norm=Normalize(low, high),
        edgecolor="white", linewidth=0 if many else 0.3, rasterized=many,
    )  # fmt: skip
    for head, layer in numpy.argwhere(cells.mask if cells.mask.shape else numpy.zeros(cells.shape, bool)):
        axes.add_patch(Rectangle((layer - 0.5, head - 0.5), 1, 1, facecolor="#f1efea", edgecolor=SOFT, hatch="////", linewidth=0))
    axes.spines[:].set_visible(False)
    return mesh


def _limits(values: numpy.ndarray) -> tuple[float, float]:
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1))


def colour_bar(figure: Figure, mesh: ScalarMappable, axes: Axes | Sequence[Axes], label: str) -> None:
    """A thin bar above `axes`, so that what stands below them keeps their width."""
    bar = figure.colorbar(mesh, ax=axes, location="top", aspect=45, pad=0.02, fraction=0.08)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(length=2, width=0.6, pad=1.5)
    bar.ax.locator_params(nbins=6)
    bar.set_label(label, loc="left", labelpad=4)


def layer_bar(figure: Figure, axes: Axes | Sequence[Axes], numbers: Sequence[int], label: str, location: str) -> None:
    """Which colour of `layer_colours` is which layer."""
    edges = BoundaryNorm(numpy.arange(len(numbers) + 1) - 0.5, len(numbers))
    colours = ScalarMappable(edges, ListedColormap(layer_colours(len(numbers))))
    fraction = 0.08 if location == "bottom" else 0.05
    bar = figure.colorbar(colours, ax=axes, location=location, aspect=45, pad=0.03, fraction=fraction)  # pyright: ignore[reportArgumentType]
    places = thinned(numbers, 13)
    bar.set_ticks(places, labels=[str(numbers[place]) for place in places])
    bar.minorticks_off()
    bar.set_label(label)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def numbered(axes: Axes, numbers: Sequence[int], label: str, *, vertical: bool = False, most: int = 13) -> None:
    """Ticks at 0, 1, ... that show `numbers`, thinned to what fits."""
    places = thinned(numbers, most)
    axis = axes.yaxis if vertical else axes.xaxis
    axis.set_ticks(places, labels=[str(numbers[place]) for place in places])
    axis.set_label_text(label)
    (axes.set_ylim if vertical else axes.set_xlim)(-0.5, len(numbers) - 0.5)


def thinned(numbers: Sequence[int], most: int) -> list[int]:
    """Places of at most about `most` numbers, at the first one and at round ones."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if len(numbers) <= step * most)
    if step <= 2:
        return list(range(0, len(numbers), step))
    return [0] + [place for place, number in enumerate(numbers) if number % step == 0 and place > step // 2]


def from_zero(axes: Axes) -> None:
    """The value axis begins at zero, unless there are values below it, and has quiet lines to read it by."""
    if axes.get_ylim()[0] >= 0 or axes.dataLim.y0 >= 0:
        axes.set_ylim(0, 1.04 * axes.get_ylim()[1])
    readable(axes)


def readable(axes: Axes) -> None:
    """Few ticks and quiet lines along the value axis."""
    axes.locator_params(axis="y", nbins=5)
    axes.grid(axis="y")


def legend(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """One legend for all panels, above them, of what `axes` shows."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=columns)


def shades() -> Colormap:
    """Light to dark violet, apart from the colours of both maps."""
    return LinearSegmentedColormap.from_list("shades", ["#f4f1f8", "#bfaed9", "#7d5ba6", "#301a4d"])


def layer_colours(count: int) -> list[tuple[float, float, float, float]]:
    """Colours of ordered things, from dark to light: those of viridis without its end, which is too light for lines."""
    return [matplotlib.colormaps["viridis"](place) for place in numpy.linspace(0, 0.8, max(count, 2))[:count].tolist()]
