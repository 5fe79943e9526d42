"""What a Study shows, in sentences that say no more than its numbers."""

from typing import NamedTuple

import numpy
import xarray

from glocal.dims import LAYER, MAP, PATTERN, SOURCE_LAYER
from glocal.views.figures.facts import counted
from glocal.views.figures.measures import Measure
from glocal.views.plots.tidy import measures
from glocal.views.words import READS


class Estimate(NamedTuple):
    """A mean over texts with its 95 % interval (NaN where there is none), and the layer that it is of."""

    layer: int
    value: float
    low: float
    high: float

    def said(self, unit: str) -> str:
        """`0.252 nats (0.240 to 0.264)`; shares as percentages."""
        value, low, high = (in_words(each, unit) for each in (self.value, self.low, self.high))
        tail = "" if unit == "share" or not unit else f" {unit}"
        return f"{value}{tail} ({low} to {high})" if numpy.isfinite([self.low, self.high]).all() else f"{value}{tail}"


def in_words(value: float, unit: str) -> str:
    """A number without its unit; shares as percentages."""
    if not numpy.isfinite(value):
        return "undefined"
    return f"{value:.1%}" if unit == "share" else f"{value:.3f}"


def by_layer(study: xarray.Dataset, name: str, **where: str | int) -> list[Estimate]:
    """The defined values of a variable that has one number per layer (after the choice `where`), in the order of layers."""
    if name not in study or any(value not in study[dimension].values for dimension, value in where.items()):
        return []
    columns = []
    for each in (name, f"{name}_low", f"{name}_high"):
        found = study[each].sel(where).values if each in study else numpy.full(study.sizes[LAYER], numpy.nan)
        columns.append(found.astype(float).tolist())
    rows = zip(study[LAYER].values.tolist(), *columns, strict=True)
    return [Estimate(layer, value, low, high) for layer, value, low, high in rows if numpy.isfinite(value)]


def average(estimates: list[Estimate]) -> float:
    """Mean over layers; NaN of none."""
    return float(numpy.mean([each.value for each in estimates])) if estimates else float("nan")


def verdict(study: xarray.Dataset) -> str:
    """One sentence: in which layers the two maps are furthest apart and closest, with intervals."""
    if not study.attrs["texts"]:
        return "No text of this corpus could be analysed."
    if not measures(study):
        return "This Study compares nothing."
    measure = measures(study)[0]
    found = by_layer(study, f"discrepancy_{measure.name}_over_heads")
    if not found:
        return f"The {measure.label} is undefined in every layer."
    near, far = _ends(found, measure)
    if near.layer == far.layer:
        return f"{READS.capitalize()}: {measure.label} {far.said(measure.unit)} on average over heads in layer {far.layer}."
    overlap = "; these intervals overlap" if far.low <= near.high and near.low <= far.high else ""
    return (
        f"{READS.capitalize()} are furthest apart in layer {far.layer}, {measure.label} {far.said(measure.unit)}, and closest in layer "
        f"{near.layer}, {near.said(measure.unit)}{overlap}."
    )


def sentences(study: xarray.Dataset) -> str:
    """Own-token share, separators, dominant patterns, ladder, map of heads and hidden vectors, as far as the Study has them."""
    said = [_own(study), _separators(study), _agreement(study), _ladder(study), _mantel(study), _hidden(study)]
    return " ".join(each for each in said if each)


def _ends(found: list[Estimate], measure: Measure) -> tuple[Estimate, Estimate]:
    """Where the two are closest, and where they are furthest apart."""
    order = sorted(found, key=lambda each: each.value)
    return (order[-1], order[0]) if measure.alike else (order[0], order[-1])


def _faces(study: xarray.Dataset, name: str, **where: str) -> dict[str, list[Estimate]]:
    faces = study[MAP].values.tolist() if MAP in study.coords else []
    found = {face: by_layer(study, name, **{MAP: face}, **where) for face in faces}
    return {face: estimates for face, estimates in found.items() if estimates}


def _own(study: xarray.Dataset) -> str:
    found = _faces(study, "own_share_over_heads")
    if not found:
        return ""
    shares = " and ".join(f"{in_words(average(estimates), 'share')} of {face}" for face, estimates in found.items())
    course, steps = "", found.get("attribution", [])
    if len(steps) > 1:
        first, last = steps[0], steps[-1]
        course = f", of attribution from {first.said('share')} in layer {first.layer} to {last.said('share')} in layer {last.layer}"
    return f"On average over layers and heads, {shares} stay on the own token{course}."


def _separators(study: xarray.Dataset) -> str:
    found = _faces(study, "category_mass_over_heads", **{PATTERN: "separator"})
    if len(found) != 2:
        return ""
    attention, attribution = found["attention"], found["attribution"]
    most = max(attention, key=lambda each: each.value)
    same = next((each for each in attribution if each.layer == most.layer), None)
    against = f", where {same.said('share')} of attribution do" if same else ""
    return (
        f"Separators receive {in_words(average(attention), 'share')} of attention and {in_words(average(attribution), 'share')} of "
        f"attribution; most attention falls on them in layer {most.layer}, {most.said('share')}{against}."
    )


def _agreement(study: xarray.Dataset) -> str:
    found = by_layer(study, "dominant_agreement")
    if not found:
        return ""
    least, most = min(found, key=lambda each: each.value), max(found, key=lambda each: each.value)
    if least.value == most.value:
        where = f"{most.said('share')} of heads" + ("" if len(found) == 1 else " in every layer")
    else:
        where = f"{most.said('share')} of heads in layer {most.layer} but {least.said('share')} in layer {least.layer}"
    return f"The pattern with the largest mass is the same in attention and attribution for {where}."


def _ladder(study: xarray.Dataset) -> str:
    for measure in measures(study):
        name = f"ladder_{measure.name}_over_heads"
        if name in study and study.sizes[LAYER] > 1:
            layer = int(study[LAYER].values.max())
            steps = {source: by_layer(study.sel({LAYER: [layer]}), name, **{SOURCE_LAYER: source}) for source in (layer - 1, 0)}
            if all(steps.values()):
                (own,), (tokens,) = steps.values()
                return (
                    f"For heads of layer {layer}, the {measure.label} is {own.said(measure.unit)} when their outputs are attributed to "
                    f"that layer's own input, and {tokens.said(measure.unit)} when to the input of the first layer."
                )
    return ""


def _mantel(study: xarray.Dataset) -> str:
    found = study.attrs.get("mantel")
    if not found or not numpy.isfinite(found["correlation"]):
        return ""
    return (
        f"How far apart heads are in attention and in attribution correlates by {found['correlation']:.2f} "
        f"(Mantel test, p = {found['p']:.2g}, {counted(int(found['permutations']), 'permutation')})."
    )


def _hidden(study: xarray.Dataset) -> str:
    found = by_layer(study, "hidden_own_share")
    if not found:
        return ""
    last = found[-1]
    return f"The own token keeps {last.said('share')} of what the output of layer {last.layer} depends on."
