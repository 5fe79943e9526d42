"""How a Story came about and what its reader must know, as short texts for every view."""

from collections import defaultdict
from typing import Any

import numpy
import xarray

from glocal.choices import REDUCED
from glocal.dims import HEAD, SOURCE
from glocal.results.schema import grouped
from glocal.views.figures.visible import visible

_MANY_TOKENS = 60


def title(story: xarray.Dataset) -> str:
    """The text, or the tokens where only ids were given; pairs are joined by a bar."""
    attributes = story.attrs
    if attributes["text"]:
        return visible(attributes["text"]) + (f" | {visible(attributes['text_pair'])}" if attributes["text_pair"] else "")
    tokens = [visible(str(token)) for token in story["source_token"].values[:_MANY_TOKENS]]
    return " ".join(tokens) + (" …" if story.sizes[SOURCE] > _MANY_TOKENS else "")


def size(story: xarray.Dataset) -> str:
    """Tokens, layers and heads."""
    many = counted(story.sizes[SOURCE], "group") + " of tokens" if grouped(story) else counted(story.sizes[SOURCE], "token")
    parts = [many, counted(story.sizes["layer"], "layer")]
    if story.sizes["target"] != story.sizes[SOURCE]:
        parts.insert(1, counted(story.sizes["target"], "target"))
    return ", ".join(parts) + (f" x {counted(story.sizes[HEAD], 'head')}" if HEAD in story.sizes else "")


def accuracy(story: xarray.Dataset) -> str:
    """Exact or a sketch, and how far off; empty where nothing was attributed."""
    error = row_error(story)
    if error is not None:
        return f"sketch, a row is off by about {error:.3f} (total variation)"
    reduced = story.attrs["settings"].get("precision") in REDUCED
    if reduced and "mean_difference_of_norms_to_straight" in story.attrs["error_estimate"]:
        off = story.attrs["error_estimate"]["mean_difference_of_norms_to_straight"]
        return f"{story.attrs['settings']['precision']}: norms are off by about {off:.1e} of themselves"
    return f"exact to {story.attrs['dtype']} rounding" if story.attrs["plan"] else ""


def row_error(story: xarray.Dataset) -> float | None:
    """The mean total variation of a row of a sketch; None for exact runs."""
    return story.attrs["error_estimate"].get("mean_total_variation_of_a_row")


def notes(story: xarray.Dataset) -> list[str]:
    """The Story's own notes, then truncation, values that are not finite, masked rows and attention sinks."""
    said = [visible(note) for note in story.attrs["notes"]]
    cut = story.attrs["truncated"]
    if cut and not any("cut off" in note for note in said):
        said.append(f"{counted(cut, 'token')} cut off at the end of the text.")
    said += _not_finite(story.attrs["not_finite"])
    masked = story.attrs["masked_rows"]
    if masked:
        said.append(f"{counted(masked, 'fully masked row')} of attention left out of every mean.")
    return said + _sinks(story)


def _not_finite(entries: list[dict[str, Any]]) -> list[str]:
    by_variable = defaultdict(list)
    for entry in entries:
        by_variable[entry["variable"]].append(entry)
    said = []
    for name, group in by_variable.items():
        counts = {"NaN": sum(entry["nan"] for entry in group), "infinite": sum(entry["infinite"] for entry in group)}
        values = " and ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
        where = ", ".join(f"L{entry['layer']}" + (f" H{entry['head']}" if entry["head"] is not None else "") for entry in group[:4])
        more = f" and {len(group) - 4} more" if len(group) > 4 else ""
        where = f" ({where}{more})" if group[0]["layer"] is not None else ""
        said.append(f"{visible(name)}: {values} values{where}, left out of every mean.")
    return said


def _sinks(story: xarray.Dataset) -> list[str]:
    if "attention" not in story:
        return []
    total = story["attention"].values.sum(-1)
    largest = numpy.nanmax(numpy.abs(1 - total), initial=0.0) if numpy.isfinite(total).any() else 0.0
    # Half precision alone leaves rows up to about 0.01 from one.
    return [] if largest < 0.02 else ["Some rows of attention do not sum to one (attention sinks); shares here are divided by their sum."]


def table(story: xarray.Dataset) -> list[tuple[str, str]]:
    """(label, text) of model, engine, plan, settings and versions."""
    attributes, plan = story.attrs, story.attrs["plan"]
    rows: list[tuple[str, Any]] = [
        ("model", f"{attributes['model']} ({attributes['family']}, {attributes['dtype']}, {attributes['device']})"),
        ("weights", attributes["weights_fingerprint"]),
        ("size", size(story)),
        ("direction", "causal: no target draws on later tokens" if attributes["causal"] else "every target may draw on every token"),
        ("engine", f"{attributes['engine']}, {seconds(attributes['seconds'])}"),
    ]
    if plan:
        about = f"{counted(plan['tangents'], 'tangent')}, {plan['chunk']} at a time: {plan['reason']}"
        rows += [("plan", about), ("planned", f"{seconds(plan['seconds'])}, {_bytes(plan['bytes'])}, {plan['flops'] / 1e9:,.0f} GFLOP")]
    rows += [("accuracy", accuracy(story))] if accuracy(story) else []
    rows += [("seed", attributes["seed"])] if row_error(story) is not None else []
    rows += [(key.replace("_", " "), _setting(key, value)) for key, value in attributes["settings"].items()]
    versions = ("glocal", "torch", "transformers", "python")
    rows.append(("versions", ", ".join(f"{name} {attributes[f'{name}_version']}" for name in versions)))
    return [(visible(label), visible(str(value))) for label, value in rows]


def counted(count: int, noun: str) -> str:
    """`1 head`, `12 heads`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def seconds(count: float) -> str:
    """Enough digits to tell one from another."""
    return f"{count:.1f} s" if count >= 1 else f"{count:.2g} s"


def span(values: list[int]) -> str:
    """`1 to 6`, or the numbers one by one where there are gaps."""
    whole = len(values) > 2 and values == list(range(values[0], values[-1] + 1))
    return f"{values[0]} to {values[-1]}" if whole else ", ".join(map(str, values))


def _setting(key: str, value: Any) -> str:
    if key == "memory" and isinstance(value, int):
        return _bytes(value)
    if isinstance(value, list):
        whole = all(type(each) is int for each in value)
        return (span(value) if whole and value else ", ".join(map(str, value))) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _bytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"
