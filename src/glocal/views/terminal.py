"""A Story on the terminal, and as JSON."""

import math
from typing import Any

import numpy
import xarray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glocal.dims import HEAD, LAYER, SOURCE, SOURCE_LAYER, TARGET, TOKEN_FIELDS, token_coordinate
from glocal.results.schema import grouped
from glocal.views.figures import facts, numbers, outputs
from glocal.views.figures.measures import Measure, measures
from glocal.views.figures.visible import shortened, visible

FEW = 5
_LONG_TEXT = 400


def summary(story: xarray.Dataset, console: Console) -> None:
    """Print the summary of one Story; user texts are never interpreted as markup."""
    say = lambda text, style="": console.print(Text(text, style=style), soft_wrap=True)  # noqa: E731
    say(shortened(facts.title(story), _LONG_TEXT), "bold")
    say(f"{visible(story.attrs['model'])} ({visible(story.attrs['family'])}), {facts.size(story)}")
    for note in facts.notes(story):
        say(f"! {note}", "yellow")
    console.print()
    columns = _columns(story)
    if columns:
        say("Means over heads and targets", "dim")
        console.print(_layers(story, columns))
        console.print()
    for measure in measures(story):
        if f"ladder_{measure.name}" in story:
            say(f"{visible(measure.label)} with the attribution to the input of layer ... (means over heads)", "dim")
            console.print(_ladder(story, measure))
            console.print()
    for line in _extremes(story):
        say(line)
    if outputs.scores(story):
        say(outputs.statement(story) or "Scores of sources", "dim")
        console.print(_scores(story))
        console.print()
    say(_how(story))


Column = tuple[str, str, numpy.ndarray, bool]


def _columns(story: xarray.Dataset) -> list[Column]:
    """(what, of which map or in which unit, one value per layer, whether it is a share)."""
    columns: list[Column] = [
        (f"discrepancy {measure.name}", measure.unit, numbers.mean(numbers.discrepancy(story, measure.name)), False)
        for measure in measures(story)
    ]
    found = numbers.maps(story)
    if not grouped(story):
        columns += [("own-token", name, numbers.mean(numbers.own_share(array)), True) for name, array in found.items()]
    if numbers.has_special(story):
        columns += [("special tokens", name, numbers.mean(numbers.special_share(array, story)), True) for name, array in found.items()]
    return columns


def _layers(story: xarray.Dataset, columns: list[Column]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(Text("layer"), justify="right", vertical="bottom")
    for what, of, _, _ in columns:
        table.add_column(Text(f"{visible(what)}\n{visible(of)}"), justify="right", overflow="fold")
    for i, layer in enumerate(story["layer"].values):
        table.add_row(str(layer), *[_cell(values[i], share=share) for _, _, values, share in columns])
    return table


def _ladder(story: xarray.Dataset, measure: Measure) -> Table:
    """A row per layer; the first column is the global attribution, the last what the layer itself adds."""
    grid = story[f"ladder_{measure.name}"].transpose(LAYER, SOURCE_LAYER, HEAD).values
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("layer", justify="right")
    for source_layer in story[SOURCE_LAYER].values:
        table.add_column(str(source_layer + 1), justify="right")
    for layer, row in zip(story[LAYER].values, numbers.mean(grid), strict=True):
        inside = [value if source_layer < layer else None for source_layer, value in zip(story[SOURCE_LAYER].values, row, strict=True)]
        table.add_row(str(layer), *["" if value is None else _cell(value, share=False) for value in inside])
    return table


def _scores(story: xarray.Dataset) -> Table:
    """A row per source and a column per method that explains an output."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source", justify="right", vertical="bottom")
    table.add_column("token", vertical="bottom", overflow="fold")
    columns = outputs.columns(story)
    for column in columns:
        table.add_column(Text(f"{column['name']}\n{column['unit']}"), justify="right", vertical="bottom", no_wrap=True)
    for place, token in enumerate(story[token_coordinate(SOURCE, "token")].values):
        cells = ["undefined" if column["values"][place] is None else f"{column['values'][place]:.4g}" for column in columns]
        table.add_row(str(story[SOURCE].values[place]), Text(shortened(visible(str(token)), 40)), *cells)
    said = [f"{column['name']}: {column['facts']}" for column in columns if column["facts"]]
    table.caption = Text("\n".join(said)) if said else None
    table.caption_justify = "left"
    return table


def _cell(value: float, *, share: bool) -> str:
    if not numpy.isfinite(value):
        return "undefined"
    return f"{value:.1%}" if share else f"{value:.3f}"


def _extremes(story: xarray.Dataset) -> list[str]:
    if not measures(story):
        return []
    measure = measures(story)[0]
    order = numbers.ranked(numbers.discrepancy(story, measure.name), story["layer"].values, story[HEAD].values)
    few = min(FEW, max(1, len(order) // 2))
    if not order:
        return []
    one = lambda cell: f"{f'L{cell[0]} H{cell[1]}':>7} {cell[2]:.3f}"  # noqa: E731
    said = [_heading(measure), "  largest   " + "  ".join(map(one, order[:few]))]
    return [*said, "  smallest  " + "  ".join(map(one, order[::-1][:few])), ""] if len(order) > 1 else [*said, ""]


def _heading(measure: Measure) -> str:
    unit = f", {measure.unit}" if measure.unit else ""
    return f"Heads (layer L, head H, from 1) by {visible(measure.label)}{unit}; {measure.direction}"


def _how(story: xarray.Dataset) -> str:
    attributes, plan = story.attrs, story.attrs["plan"]
    text = f"{facts.seconds(attributes['seconds'])}, engine {attributes['engine']}"
    if plan:
        text += f", {facts.counted(plan['tangents'], 'tangent')} in {facts.counted(plan['chunks'], 'chunk')}"
        text += f" (planned {facts.seconds(plan['seconds'])}, {plan['bytes'] / 2**20:,.0f} MiB)"
    error = facts.row_error(story)
    if error is None:
        return text + (f", {facts.accuracy(story)}" if facts.accuracy(story) else "")
    shares = f", standard error of a share {numbers.overall(story['attribution_se'].values):.3f}" if "attribution_se" in story else ""
    shares += "".join(
        f", noise moves {name.removeprefix('mean_bias_')} by {value:+.4f}"
        for name, value in attributes["error_estimate"].items()
        if name.startswith("mean_bias_")
    )
    return f"{text}\nSketch: error estimate {error:.3f} (mean total variation of a row){shares}"


def planned(plan: dict[str, Any]) -> str:
    """A plan as a few lines: what would be done, at what price, and what the other ways would cost."""
    what = "exact" if plan["probes"] == 0 else f"sketch, about {plan['probes']} probes a source"
    lines = [
        f"engine   {plan['engine']}, {what}",
        f"work     {facts.counted(plan['tangents'], 'tangent')} in {facts.counted(plan['chunks'], 'chunk')}, {_gflop(plan['flops'])}",
        f"price    {facts.seconds(plan['seconds'])}, {plan['bytes'] / 2**20:,.0f} MiB",
        f"because  {plan['reason']}",
    ]
    for other in plan["others"]:
        price = f"{facts.seconds(other['seconds'])}, {other['bytes'] / 2**20:,.0f} MiB, {other['flops'] / 1e9:,.0f} GFLOP"
        lines.append(f"instead  {other['engine']}: {price}")
    return "\n".join(lines)


def _gflop(operations: float) -> str:
    return f"{operations / 1e9:,.0f} GFLOP" if operations >= 1e9 else f"{operations / 1e9:.1g} GFLOP"


def as_json(story: xarray.Dataset) -> dict[str, Any]:
    """The Story as JSON types; what is not finite is null.

    `schema`, `tokens` (one object per source), `layers`, `heads`, `targets`, `summary` (means by layer and by head), `variables`
    (dimensions, unit and every value) and `attributes`.
    """
    tokens = {field: story[token_coordinate(SOURCE, field)].values.tolist() for field in TOKEN_FIELDS}
    return {
        "schema": story.attrs["glocal_schema"],
        "tokens": [dict(zip(tokens, values, strict=True)) for values in zip(*tokens.values(), strict=True)],
        "layers": story["layer"].values.tolist(),
        "heads": story[HEAD].values.tolist() if HEAD in story.coords else None,
        "targets": story[TARGET].values.tolist(),
        "summary": _summary(story),
        "variables": {
            str(name): {"dimensions": list(array.dims), **array.attrs, "values": finite(array.values)}
            for name, array in story.data_vars.items()
        },
        "attributes": finite(story.attrs),
    }


def _summary(story: xarray.Dataset) -> dict[str, Any]:
    """`by_layer` and `by_head` [layer][head]: the means that the terminal shows, by name."""
    grids = {f"discrepancy_{measure.name}": numbers.discrepancy(story, measure.name) for measure in measures(story)}
    for name, array in numbers.maps(story).items():
        grids[f"special_share_{name}"] = numbers.special_share(array, story)
        if not grouped(story):
            grids[f"own_share_{name}"] = numbers.own_share(array)
    return {
        "by_layer": {name: finite(numbers.mean(grid)) for name, grid in grids.items()},
        "by_head": {name: finite(grid) for name, grid in grids.items()},
    }


def finite(value: Any) -> Any:
    """JSON types with null for what is not finite."""
    if isinstance(value, numpy.ndarray):
        return _numbers(value) if value.ndim == 1 else [finite(each) for each in value]
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(row: numpy.ndarray) -> list[Any]:
    """float32 with nine digits, which read back as the same number; float64 as it is."""
    numbers: list[Any] = [float(f"{each:.9g}") for each in row.tolist()] if row.dtype == numpy.float32 else row.tolist()
    return numbers if numpy.isfinite(row).all() else [each if math.isfinite(each) else None for each in numbers]
