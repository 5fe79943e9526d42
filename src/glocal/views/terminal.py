"""A Story on the terminal, and as JSON."""

from typing import Any

import numpy
import xarray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glocal.dims import SOURCE, TARGET, TOKEN_FIELDS, token_coordinate
from glocal.views.figures import numbers
from glocal.views.figures.visible import visible

FEW = 5


def summary(story: xarray.Dataset, console: Console) -> None:
    """Print the summary of one Story; user texts are never interpreted as markup."""
    say = lambda text, style="": console.print(Text(text, style=style), soft_wrap=True)  # noqa: E731
    attributes = story.attrs
    say(f"{visible(attributes['text']) or 'ids'}{' | ' + visible(attributes['text_pair']) if attributes['text_pair'] else ''}", "bold")
    heads = f" x {story.sizes['head']} heads" if "head" in story.sizes else ""
    size = f"{story.sizes['source']} tokens, {story.sizes['layer']} layers{heads}"
    say(f"{attributes['model']} ({attributes['family']}), {size}")
    console.print()
    console.print(_layers(story))
    for line in _extremes(story):
        say(line)
    console.print()
    say(_how(story))
    for note in _notes(story):
        say(note, "yellow")


def _layers(story: xarray.Dataset) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("layer", justify="right")
    columns: list[numpy.ndarray] = []
    for measure in numbers.measures(story):
        unit = story[f"discrepancy_{measure}"].attrs["unit"]
        table.add_column(f"mean discrepancy\n{measure}" + (f" ({unit})" if unit != "none" else ""), justify="right")
        columns.append(numbers.by_layer(numbers.discrepancy(story, measure)))
    found = numbers.maps(story)
    for title, grid in (("own-token share", numbers.own_share), ("on special tokens", lambda array: numbers.special_share(array, story))):
        for name, array in found.items():
            table.add_column(f"{title}\n{name}", justify="right")
            columns.append(numbers.by_layer(grid(array)))
    measured = len(numbers.measures(story))
    for i, layer in enumerate(story.layer.values):
        cells = [_cell(column[i], share=place >= measured) for place, column in enumerate(columns)]
        table.add_row(str(layer), *cells)
    return table


def _cell(value: float, *, share: bool) -> str:
    if not numpy.isfinite(value):
        return "undefined"
    return f"{value:.1%}" if share else f"{value:.3f}"


def _extremes(story: xarray.Dataset) -> list[str]:
    if not numbers.measures(story):
        return []
    measure = numbers.measures(story)[0]
    order = numbers.ranked(numbers.discrepancy(story, measure), story["layer"].values, story["head"].values)
    if not order:
        return []
    one = lambda cell: f"{f'{cell[0]}-{cell[1]}':>5} {cell[2]:.3f}"  # noqa: E731
    title = f"{measure}, layer-head"
    return [
        "",
        f"largest  ({title}) " + "  ".join(map(one, order[:FEW])),
        f"smallest ({title}) " + "  ".join(map(one, order[::-1][:FEW])),
    ]


def _how(story: xarray.Dataset) -> str:
    attributes = story.attrs
    plan = attributes["plan"]
    text = f"{attributes['seconds']:.1f} s, engine {attributes['engine']}"
    if plan:
        text += f", {plan['tangents']} tangents in {plan['chunks']} chunk{'s' if plan['chunks'] > 1 else ''}"
        text += f" (planned {plan['seconds']:.1f} s, {plan['bytes'] / 2**20:.0f} MiB)"
    estimate = attributes["error_estimate"].get("mean_total_variation_of_a_row")
    if estimate is not None:
        return text + f", error estimate {estimate:.3f} (mean total variation of a row)"
    return text + (f", exact to {attributes['dtype']} rounding" if plan else "")


def _notes(story: xarray.Dataset) -> list[str]:
    notes = [visible(note) for note in story.attrs["notes"]]
    for entry in story.attrs["not_finite"][:FEW]:
        where = f"layer {entry['layer']}" + (f" head {entry['head']}" if entry["head"] is not None else "")
        notes.append(f"{entry['variable']}, {where}: {entry['nan']} NaN, {entry['infinite']} infinite values, left out of means")
    if len(story.attrs["not_finite"]) > FEW:
        notes.append(f"and {len(story.attrs['not_finite']) - FEW} more such entries in attrs['not_finite']")
    if story.attrs["masked_rows"]:
        notes.append(f"{story.attrs['masked_rows']} fully masked rows are left out of means")
    return notes


def as_json(story: xarray.Dataset) -> dict[str, Any]:
    """The Story as JSON types: `schema`, `tokens`, `layers`, `heads`, `targets`, `variables`, `attributes`; what is not finite is null."""
    tokens = {field: story[token_coordinate(SOURCE, field)].values.tolist() for field in TOKEN_FIELDS}
    return {
        "schema": story.attrs["glocal_schema"],
        "tokens": [dict(zip(tokens, values, strict=True)) for values in zip(*tokens.values(), strict=True)],
        "layers": story.layer.values.tolist(),
        "heads": story["head"].values.tolist() if "head" in story.coords else None,
        "targets": story[TARGET].values.tolist(),
        "variables": {
            str(name): {"dimensions": list(array.dims), **array.attrs, "values": numbers.plain(array.values, digits=8)}
            for name, array in story.data_vars.items()
        },
        "attributes": story.attrs,
    }
