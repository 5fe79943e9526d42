"""What a Story shows, in sentences that say no more than its numbers."""

import numpy
import xarray

from glocal.views.figures import numbers
from glocal.views.figures.visible import visible


def paragraph(story: xarray.Dataset) -> str:
    """One paragraph: discrepancy by depth, the two extreme heads, own-token shares, special tokens, accuracy."""
    found = numbers.maps(story)
    sentences = [*_discrepancy(story), *_extremes(story, found), *_own(story, found), *_special(story, found), *_accuracy(story)]
    return " ".join(sentences) or "This Story holds neither attention nor attribution."


def _discrepancy(story: xarray.Dataset) -> list[str]:
    if not numbers.measures(story):
        return []
    measure = numbers.measures(story)[0]
    unit = story[f"discrepancy_{measure}"].attrs["unit"]
    grid = numbers.by_layer(numbers.discrepancy(story, measure))
    layers = story["layer"].values
    known = [i for i in range(len(layers)) if numpy.isfinite(grid[i])]
    if not known:
        return [f"The discrepancy ({measure}) is undefined for every head of this text."]
    of = f"{measure}, {unit}" if unit != "none" else measure
    what = "what heads read and what their outputs depend on differ by"
    if len(known) == 1:
        return [f"In layer {layers[known[0]]} {what} {grid[known[0]]:.3f} on average ({of})."]
    first, last = known[0], known[-1]
    top = max(known, key=lambda i: grid[i])
    text = f"In layer {layers[first]} {what} {grid[first]:.3f} on average ({of}), in layer {layers[last]} by {grid[last]:.3f}"
    return [f"{text}; the largest layer mean is {grid[top]:.3f}, in layer {layers[top]}."]


def _extremes(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[str]:
    if not numbers.measures(story):
        return []
    order = numbers.ranked(numbers.discrepancy(story, numbers.measures(story)[0]), story["layer"].values, story["head"].values)
    if len(order) < 2:
        return []
    said = []
    for word, (layer, head, value) in (("largest", order[0]), ("smallest", order[-1])):
        sources = {name: _favourite(story, array.sel(layer=layer, head=head)) for name, array in found.items()}
        said.append(
            f"The {word} value has head {head} of layer {layer} ({value:.3f}): averaged over targets it reads {sources['attention']} most, "
            f"and its output depends most on {sources['attribution']}."
        )
    return said


def _favourite(story: xarray.Dataset, rows: xarray.DataArray) -> str:
    mean = numbers.mean_over_targets(rows.values.T)
    if not numpy.isfinite(mean).any():
        return "nothing that is defined"
    place = int(numpy.nanargmax(mean))
    return f"“{visible(str(story.source_token.values[place]))}” ({mean[place]:.0%})"


def _own(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[str]:
    said = {name: float(numbers.mean_over_targets(numbers.own_share(array).reshape(-1))) for name, array in found.items()}
    shares = " and ".join(f"{value:.0%} of {name}" for name, value in said.items())
    return [f"On average over all heads, {shares} {'stays' if len(said) == 1 else 'stay'} on the own token."]


def _special(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[str]:
    if not numpy.isin(story["source_category"].values.astype(str), numbers.SPECIAL).any():
        return []
    said = {name: float(numbers.mean_over_targets(numbers.special_share(array, story).reshape(-1))) for name, array in found.items()}
    return ["Special tokens receive " + " and ".join(f"{value:.0%} of {name}" for name, value in said.items()) + "."]


def _accuracy(story: xarray.Dataset) -> list[str]:
    said = []
    estimate = story.attrs["error_estimate"].get("mean_total_variation_of_a_row")
    if estimate is not None:
        said.append(f"Attribution is a sketch, off by about {estimate:.3f} in total variation a row; its noise raises discrepancies.")
    if story.attrs["not_finite"]:
        count = len(story.attrs["not_finite"])
        said.append(f"In {count} combinations of variable, layer and head some values are not finite; means leave them out.")
    return said
