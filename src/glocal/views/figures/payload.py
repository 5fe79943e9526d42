"""Story -> everything the page shows, as JSON-ready data; the page computes nothing but colours and orders."""

from pathlib import Path
from typing import Any

import numpy
import xarray

from glocal.dims import HEAD, SOURCE, TARGET, TOKEN_FIELDS, token_coordinate
from glocal.views.figures import facts, numbers, outputs
from glocal.views.figures.measures import PREFIX, measure_of, measures
from glocal.views.figures.packed import FINE_CELLS, packed
from glocal.views.figures.visible import right_to_left, visible
from glocal.views.words import paragraph, verdict

VERSION = 1

# Discrepancies row by row are text in the page, so only this many are kept.
_MOST_ROWS = 40_000


def payload(story: xarray.Dataset) -> dict[str, Any]:
    """Tokens, packed maps, grids by layer and head, ladders, words, settings and notes of one Story; see `packed` for the maps."""
    found = numbers.maps(story)
    maps = {name: packed(array.values) for name, array in found.items()}
    return {
        "version": VERSION,
        "title": facts.title(story),
        "about": _about(story),
        "verdict": verdict(story),
        "words": paragraph(story),
        "notes": facts.notes(story),
        "figures": _figures(story, found),
        "facts": [*facts.table(story), ("precision", _precision(maps))],
        "right_to_left": right_to_left(story.attrs["text"]),
        "tokens": _tokens(story),
        "layers": story["layer"].values.tolist(),
        "heads": story[HEAD].values.tolist() if HEAD in story.dims else [],
        "targets": story[TARGET].values.tolist(),
        "faces": _faces(story),
        "maps": maps,
        "errors": _standard_errors(story),
        "statistics": _statistics(story, found),
        "rows": _rows(story),
        "ladders": _ladders(story),
        "outputs": {"statement": outputs.statement(story), "columns": outputs.columns(story)},
    }


def _about(story: xarray.Dataset) -> list[str]:
    attributes = story.attrs
    engine = f"{attributes['engine']} engine, {attributes['seconds']:.1f} s" if attributes["plan"] else f"{attributes['seconds']:.1f} s"
    # A path to a model is long; the facts below hold it whole.
    model = attributes["model"] if attributes["model"].count("/") < 2 else Path(attributes["model"]).name
    parts = [f"{model} ({attributes['family']})", facts.size(story), facts.accuracy(story), engine]
    return [visible(part) for part in parts if part]


def _precision(maps: dict[str, Any]) -> str:
    said = ", ".join(f"{name} within {100 * made['error']:.1g} percentage points" for name, made in maps.items())
    return f"shares on this page: {said or 'none'}; the Story itself holds them in full"


def _figures(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[dict[str, Any]]:
    """The few means over everything that head the page: a label and, by face or measure, (name, value, unit)."""
    made = []
    if measures(story):
        measure = measures(story)[0]
        value = numbers.overall(numbers.discrepancy(story, measure.name))
        made.append({"label": "mean discrepancy", "values": [(measure.label, numbers.plain(value), measure.unit)]})
    shares = {name: numbers.own_share(array) for name, array in found.items()}
    made.append({"label": "stays on the own token", "values": _shares(shares)})
    if numbers.has_special(story):
        special = {name: numbers.special_share(array, story) for name, array in found.items()}
        made.append({"label": "goes to special tokens", "values": _shares(special)})
    return [figure for figure in made if figure["values"]]


def _shares(grids: dict[str, numpy.ndarray]) -> list[tuple[str, float | None, str]]:
    return [(name, numbers.plain(numbers.overall(grid)), "share") for name, grid in grids.items()]


def _tokens(story: xarray.Dataset) -> list[dict[str, Any]]:
    columns = {field: story[token_coordinate(SOURCE, field)].values.tolist() for field in TOKEN_FIELDS}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    kept = ("token_id", "word", "segment", "category")
    return [{"shown": visible(row["token"]) or "∅", "raw": visible(row["raw_token"]), **{key: row[key] for key in kept}} for row in rows]


def _faces(story: xarray.Dataset) -> list[dict[str, Any]]:
    """What the maps are called, and whether they have heads."""
    of = {"head": "head", "head_output": "head"}.get(story.attrs["settings"].get("of", "head"), "layer")
    said = {
        "attention": ("Attention", "local", "what this head reads from its layer's input"),
        "attribution": ("Attribution", "global", f"what this {of}'s output depends on among the input tokens"),
    }
    return [
        {"name": name, "title": title, "kind": kind, "what": what, "heads": HEAD in story[name].dims}
        for name, (title, kind, what) in said.items()
        if name in story
    ]


def _standard_errors(story: xarray.Dataset) -> dict[str, Any]:
    if "attribution_se" not in story or story["attribution_se"].size > FINE_CELLS:
        return {}
    values = numbers.with_heads(story["attribution_se"]).values
    return {"attribution": packed(values, float(numpy.nanmax(values, initial=0.0)) or 1.0)}


def _statistics(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[dict[str, Any]]:
    """What the grid can be coloured by, in this order; the first is what a reader sees."""
    made = []
    for measure in measures(story):
        grid = numbers.discrepancy(story, measure.name)
        made.append(_statistic(PREFIX + measure.name, measure.label, measure.unit, grid, measure.low, note=measure.direction))
        made[-1]["measure"] = measure.name
    kinds = [("own", "own-token share", "share", numbers.own_share)]
    if numbers.has_special(story):
        kinds.append(("special", "share on special tokens", "share", lambda array: numbers.special_share(array, story)))
    kinds.append(("entropy", "entropy", "nats", numbers.entropy))
    for kind, label, unit, grid in kinds:
        for face, array in found.items():
            made.append(_statistic(f"{kind}_{face}", f"{label}, {face}", unit, grid(array), 0.0) | {"kind": label, "face": face})
    return made


def _statistic(name: str, label: str, unit: str, grid: numpy.ndarray, low: float | None, note: str = "") -> dict[str, Any]:
    finite = grid[numpy.isfinite(grid)]
    # The scale begins where the measure does and ends at the largest value shown.
    smallest, largest = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    low = smallest if low is None else low
    high = largest if largest > low else low + 1
    return {"name": name, "label": label, "unit": unit, "note": note, "grid": numbers.plain(grid, 5), "low": low, "high": high}


def _rows(story: xarray.Dataset) -> dict[str, Any]:
    """Discrepancy of every row [layer][head][target], where the page can afford it."""
    held = [PREFIX + measure.name for measure in measures(story)]
    few = [name for i, name in enumerate(held) if (i + 1) * story[name].size <= _MOST_ROWS]
    return {name: numbers.plain(story[name].values, 4) for name in few}


def _ladders(story: xarray.Dataset) -> list[dict[str, Any]]:
    made = []
    for name, array in story.data_vars.items():
        if str(name).startswith("ladder_"):
            measure = measure_of(story, str(name).removeprefix("ladder_"))
            grid = numbers.plain(array.values, 4)
            made.append({"name": measure.name, "label": measure.label, "unit": measure.unit, "note": measure.direction, "grid": grid})
    return made
