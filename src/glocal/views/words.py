"""What a Story shows, in sentences that say no more than its numbers."""

import numpy
import xarray

from glocal.dims import SOURCE, TARGET
from glocal.views.figures import numbers, outputs
from glocal.views.figures.facts import counted, row_error
from glocal.views.figures.measures import Measure, measures
from glocal.views.figures.visible import shortened, visible

READS = "what heads read and what their outputs depend on"
_ONE_TOKEN = "The text has one token: every share is 1, and there is nothing to tell apart."


def verdict(story: xarray.Dataset) -> str:
    """One sentence: in which layers the two are furthest apart and closest, or why nothing is compared."""
    if story.sizes[SOURCE] == 1:
        return _ONE_TOKEN
    if not measures(story):
        return _not_compared(story)
    measure = measures(story)[0]
    order = _layers_by_distance(story, measure)
    if not order:
        return f"The {measure.label} is undefined for every head of this text."
    (far, largest), (near, smallest) = order[0], order[-1]
    if len(order) == 1:
        return f"{READS.capitalize()}: {measure.label} {_value(largest, measure)} on average in layer {far}."
    values = f"{measure.label} {_value(largest, measure)} and {_value(smallest, measure)} on average"
    return f"{READS.capitalize()} are furthest apart in layer {far} and closest in layer {near} ({values})."


def paragraph(story: xarray.Dataset) -> str:
    """Discrepancy by depth, the two extreme heads, own-token shares, special tokens and accuracy, in this order.

    Says nothing that the verdict says alone: with one token, or without any map, it is empty.
    """
    if story.sizes[SOURCE] == 1:
        return ""
    found = numbers.maps(story)
    compared = [*_depth(story), *_extremes(story, found)] if measures(story) else []
    return " ".join([*compared, *_own(story, found), *_special(story, found), *_sketch(story), *_lost(story)])


def _not_compared(story: xarray.Dataset) -> str:
    present = [name for name in numbers.MAPS if name in story]
    if len(present) == 2 and "head" not in story["attribution"].dims:
        return (
            "Attribution here explains the outputs of whole layers, not of heads, so the two are shown side by side without a discrepancy."
        )
    if not present and outputs.scores(story):
        return outputs.statement(story) or "This Story holds scores of tokens alone."
    if not present:
        return "This Story holds neither attention nor attribution."
    return "No discrepancy was computed." if len(present) == 2 else f"This Story holds {present[0]} alone, so there is nothing to compare."


def _layers_by_distance(story: xarray.Dataset, measure: Measure) -> list[tuple[int, float]]:
    """(layer, mean over heads) of what is defined, from furthest apart to closest."""
    means = numbers.mean(numbers.discrepancy(story, measure.name))
    known = [(int(layer), float(value)) for layer, value in zip(story["layer"].values, means, strict=True) if numpy.isfinite(value)]
    return sorted(known, key=lambda pair: pair[1] if measure.alike else -pair[1])


def _depth(story: xarray.Dataset) -> list[str]:
    measure = measures(story)[0]
    order = _layers_by_distance(story, measure)
    if not order:
        return [f"The {measure.label} is undefined for every head of this text."]
    (first, low), (last, high) = min(order), max(order)
    subset = story.sizes[TARGET] < story.sizes[SOURCE]
    over = (
        f"Averaged over heads and the {counted(story.sizes[TARGET], 'target')} asked for" if subset else "Averaged over heads and targets"
    )
    text = f"{over}, the {measure.label} between {READS} is {_value(low, measure)} in layer {first}"
    if len(order) > 1:
        text += f" and {_value(high, measure)} in layer {last}"
    if order[0][0] not in (first, last):
        text += f"; the two are furthest apart in layer {order[0][0]} ({_value(order[0][1], measure)})"
    return [text + (" (larger means more alike)." if measure.alike else ".")]


def _extremes(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[str]:
    measure = measures(story)[0]
    order = numbers.ranked(numbers.discrepancy(story, measure.name), story["layer"].values, story["head"].values)
    if len(order) < 2:
        return []
    furthest_first = order[::-1] if measure.alike else order
    said = []
    for word, (layer, head, value) in (("Furthest apart", furthest_first[0]), ("Closest", furthest_first[-1])):
        opening = f"{word} is head {head} of layer {layer} ({_value(value, measure)})"
        favourites = [_favourite(story, found[name].sel(layer=layer, head=head)) for name in numbers.MAPS if name in found]
        said.append(f"{opening}{_largest_sources(favourites)}.")
    return said


def _largest_sources(favourites: list[tuple[str, str] | None]) -> str:
    if len(favourites) < 2 or None in favourites:
        return ""
    (read, attention), (used, attribution) = [each for each in favourites if each]
    if read == used:
        return f": averaged over targets, its largest source is {read} for both ({attention} of attention, {attribution} of attribution)"
    return (
        f": averaged over targets, it reads {read} most ({attention} of attention), and its output depends most on {used} ({attribution})"
    )


def _favourite(story: xarray.Dataset, rows: xarray.DataArray) -> tuple[str, str] | None:
    mean = numbers.mean(rows.values.T)
    if not numpy.isfinite(mean).any():
        return None
    place = int(numpy.nanargmax(mean))
    tokens = story["source_token"].values
    again = f" at position {place}" if (tokens == tokens[place]).sum() > 1 else ""
    return f"“{shortened(visible(str(tokens[place])), 40)}”{again}", _percent(mean[place])


def _own(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[str]:
    shares = {name: numbers.overall(numbers.own_share(array)) for name, array in found.items()}
    if not shares:
        return []
    stay = "stays" if len(shares) == 1 else "stay"
    return [f"On average, {' and '.join(f'{_percent(value)} of {name}' for name, value in shares.items())} {stay} on the own token."]


def _special(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[str]:
    if not (numbers.has_special(story) and found):
        return []
    shares = {name: numbers.overall(numbers.special_share(array, story)) for name, array in found.items()}
    return [f"Special tokens receive {' and '.join(f'{_percent(value)} of {name}' for name, value in shares.items())}."]


def _sketch(story: xarray.Dataset) -> list[str]:
    error = row_error(story)
    if error is None:
        return []
    errors = (
        f"a share has a standard error of {numbers.overall(story['attribution_se'].values):.3f} on average, "
        if "attribution_se" in story
        else ""
    )
    bias = ", and such noise tends to make the two look further apart than they are" if measures(story) else ""
    return [f"Attribution is a sketch: {errors}a row is off by about {error:.3f} in total variation{bias}."]


def _lost(story: xarray.Dataset) -> list[str]:
    return ["Some values are not finite and are left out of every mean."] if story.attrs["not_finite"] or story.attrs["masked_rows"] else []


def _value(value: float, measure: Measure) -> str:
    return f"{value:.3f} {measure.unit}".strip()


def _percent(share: float) -> str:
    return "an undefined part" if not numpy.isfinite(share) else f"{share:.0%}" if share >= 0.095 or share == 0 else f"{share:.1%}"
