"""Plots of an evaluation: who is ranked how, and what happens as tokens are taken away."""

from functools import partial
from typing import Any

import numpy
import xarray

from glocal.dims import EXPLANATION, FRACTION, LAYER, METRIC
from glocal.views.figures.facts import counted
from glocal.views.figures.visible import visible
from glocal.views.plots.drawing import INK, KIND_MARKERS, KINDS, SOFT, Plot, legend, line, panels, readable, stacked, style
from glocal.views.plots.tidy import INTERVAL, tidy

_DASHES = ("-", "--", ":")


def evaluation_plots(found: xarray.Dataset) -> dict[str, dict[str, Any]]:
    """By kind and name, what draws each plot that the evaluation has numbers for."""
    drawn: dict[str, Any] = {"ranking": ranking}
    if "fall_removed" in found:
        drawn |= {"tokens_removed": partial(falls, which="removed"), "tokens_kept": partial(falls, which="kept")}
    if "by_layer" in found:
        drawn["agreement_by_layer"] = by_layer
    return {name: {name: partial(draw, found)} for name, draw in drawn.items()}


def ranking(found: xarray.Dataset) -> Plot:
    """Means with intervals of every explanation, a panel for each metric, best on top; hollow: the same scores inverted."""
    metrics, count = found[METRIC].values.tolist(), found.sizes[EXPLANATION]
    with style():
        figure, axes = panels(len(metrics), 1, 0.45 + 0.13 * count)
        for panel, metric in zip(axes, metrics, strict=True):
            one = found.sel({METRIC: metric})
            # Last is best, for the axis points upwards; what has no rank comes first.
            one = one.isel({EXPLANATION: numpy.argsort(-numpy.nan_to_num(one["rank"].values, nan=count + 1), kind="stable")})
            places = numpy.arange(count)
            panel.hlines(places, one["low"], one["high"], color=INK, linewidth=1)
            panel.plot(one["mean"], places, color=INK, marker="o", linestyle="", label="mean")
            if "inverse_mean" in found:
                panel.plot(
                    one["inverse_mean"], places, color=SOFT, marker="o", markerfacecolor="white", linestyle="", label="scores inverted"
                )
            panel.set_yticks(places, labels=[visible(name) for name in one[EXPLANATION].values.tolist()])
            panel.set_ylim(-0.7, count - 0.3)
            panel.set_title(f"{visible(metric)} ({one['better'].item()} is better)")
            panel.grid(axis="x")
        legend(figure, axes[0])
    caption = f"Mean over {counted(found.attrs['texts'], 'text')} of every metric, best explanation on top. Lines: {INTERVAL}."
    if "inverse_mean" in found:
        caption += " Hollow: the same with all scores negated, so that what is least important goes first."
    table = tidy(*((name, found[name], found.get(low), found.get(high)) for name, low, high in (
        ("mean", "low", "high"), ("inverse_mean", "inverse_low", "inverse_high")) if name in found))  # fmt: skip
    return Plot("ranking", "Which explanations to trust", caption, figure, table)


def falls(found: xarray.Dataset, *, which: str) -> Plot:
    """How far the output falls without the tokens that count most ("removed"), or with these alone ("kept")."""
    name = f"fall_{which}"
    values = found[name]
    with style():
        figure, (axes,) = stacked(3.0)
        shares = found[FRACTION].values
        for number, explanation in enumerate(found[EXPLANATION].values.tolist()):
            mine = found.sel({EXPLANATION: explanation})
            drawn = len(axes.lines)
            line(
                axes,
                mine[name],
                mine[f"{name}_low"],
                mine[f"{name}_high"],
                **_look(number),
                label=visible(explanation),
                x=shares,
            )
            axes.lines[drawn].set_linestyle(_DASHES[number // len(KINDS) % len(_DASHES)])
        axes.set_xlabel("share of the tokens that are taken away" if which == "removed" else "share of the tokens that are left")
        axes.set_ylabel("fall of the output")
        axes.set_xlim(0, 1)
        readable(axes)
        legend(figure, axes, columns=2)
    order = "taken away first" if which == "removed" else "the only ones left"
    settings = found.attrs["settings"]
    caption = (
        f"How far the output falls ({settings['scale']}) when the tokens with the highest scores are {order} ({settings['replace']}). "
        f"Mean over {counted(found.attrs['texts'], 'text')}; bands: {INTERVAL}."
    )
    title = "Without the tokens that count" if which == "removed" else "With the tokens that count alone"
    return Plot(f"tokens_{which}", title, caption, figure, tidy((name, values, found[f"{name}_low"], found[f"{name}_high"])))


def by_layer(found: xarray.Dataset) -> Plot:
    """Agreement with occlusion by layer, a panel for each measure."""
    metrics = found[METRIC].values.tolist()
    with style():
        figure, axes = panels(len(metrics), 1, 1.7)
        for panel, metric in zip(axes, metrics, strict=True):
            for number, explanation in enumerate(found[EXPLANATION].values.tolist()):
                mine = found["by_layer"].sel({METRIC: metric, EXPLANATION: explanation}).values
                undefined = numpy.full(len(mine), numpy.nan)
                line(panel, mine, undefined, undefined, **_look(number), label=visible(explanation), x=found[LAYER].values)
            panel.set_title(f"{visible(metric)} ({found['better'].sel({METRIC: metric}).item()} is better)")
            panel.set_xlabel("layer")
            panel.set_xticks(found[LAYER].values)
            readable(panel)
        legend(figure, axes[0], columns=2)
    caption = f"Agreement of every map's rows with occlusion, by layer: mean over {counted(found.attrs['texts'], 'text')}."
    return Plot("agreement_by_layer", "Agreement by layer", caption, figure, tidy(("by_layer", found["by_layer"], None, None)))


def _look(number: int) -> dict[str, str]:
    """Colour and marker of the explanation with this number."""
    return {"colour": KINDS[number % len(KINDS)], "marker": KIND_MARKERS[number % len(KIND_MARKERS)]}
