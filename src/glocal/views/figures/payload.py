"""Story -> everything the page shows, as JSON-ready data; the page computes nothing but colours."""

import base64
import zlib
from typing import Any

import numpy
import xarray

from glocal.dims import TARGET, TOKEN_FIELDS, token_coordinate
from glocal.views.figures import numbers
from glocal.views.figures.visible import visible
from glocal.views.words import paragraph

VERSION = 1

# Up to this many cells per map shares are kept in 16 bits; above, in 8 bits of their square root, which keeps small shares apart.
FINE_CELLS = 1_000_000
_RANGES = {"jsd": (0.0, 0.6931), "total_variation": (0.0, 1.0), "js_distance": (0.0, 0.8326), "hellinger": (0.0, 1.0)}


def payload(story: xarray.Dataset) -> dict[str, Any]:
    """Tokens, quantised maps, grids by layer and head, ladder, settings and notes of one Story.

    Maps are [layer, head, target, source] shares, deflated, base64: `bits` 16 holds 65534 share, 8 holds 254 sqrt(share); the value
    after the last one means that the share is undefined. `error` is the largest error of a share.
    """
    found = numbers.maps(story)
    return {
        "version": VERSION,
        "text": visible(story.attrs["text"]),
        "pair": visible(story.attrs["text_pair"]),
        "words": paragraph(story),
        "tokens": _tokens(story),
        "layers": story["layer"].values.tolist(),
        "heads": story["head"].values.tolist() if "head" in story.dims else [],
        "targets": story[TARGET].values.tolist(),
        "maps": {name: _packed(array) for name, array in found.items()},
        "statistics": _statistics(story, found),
        "targetwise": {
            name: {"values": numbers.plain(story[f"discrepancy_{name}"].values, 4)}
            for name in numbers.measures(story)[:1]
            if story[f"discrepancy_{name}"].size <= FINE_CELLS // 20
        },
        "ladders": {
            str(name).removeprefix("ladder_"): numbers.plain(array.values, 4)
            for name, array in story.data_vars.items()
            if str(name).startswith("ladder_")
        },
        "facts": _facts(story),
        "notes": _notes(story),
    }


def _tokens(story: xarray.Dataset) -> list[dict[str, Any]]:
    columns = {field: story[token_coordinate("source", field)].values.tolist() for field in TOKEN_FIELDS}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [
        {
            "shown": visible(row["token"]) or "∅",
            "raw": visible(row["raw_token"]),
            **{k: row[k] for k in ("token_id", "word", "segment", "category")},
        }
        for row in rows
    ]


def _packed(array: xarray.DataArray) -> dict[str, Any]:
    values = array.values
    fine = values.size <= FINE_CELLS
    top = 65534 if fine else 254
    scaled = values if fine else numpy.sqrt(values)
    whole = numpy.where(numpy.isfinite(values), numpy.rint(numpy.nan_to_num(scaled) * top), top + 1)
    data = zlib.compress(whole.astype("<u2" if fine else "u1").tobytes(), 9)
    error = 0.5 / top if fine else (1 - (1 - 0.5 / top) ** 2)
    return {"bits": 16 if fine else 8, "data": base64.b64encode(data).decode("ascii"), "error": error, "shape": list(values.shape)}


def _statistics(story: xarray.Dataset, found: dict[str, xarray.DataArray]) -> list[dict[str, Any]]:
    """What the grid can be coloured by, in this order."""
    made = []
    for name in numbers.measures(story):
        attributes = story[f"discrepancy_{name}"].attrs
        grid = numbers.discrepancy(story, name)
        made.append(_statistic(f"discrepancy_{name}", attributes["long_name"], attributes["unit"], grid, _RANGES.get(name)))
    for face, array in found.items():
        label = {"attention": "local", "attribution": "global"}[face]
        made.append(_statistic(f"own_{face}", f"own-token share of {face} ({label})", "share", numbers.own_share(array), (0.0, 1.0)))
        special = numbers.special_share(array, story)
        made.append(_statistic(f"special_{face}", f"{face} on special tokens ({label})", "share", special, (0.0, 1.0)))
        limit = float(numpy.log(max(2, story.sizes["source"])))
        made.append(_statistic(f"entropy_{face}", f"entropy of {face} ({label})", "nats", numbers.entropy(array), (0.0, limit)))
    return made


def _statistic(name: str, label: str, unit: str, grid: numpy.ndarray, limits: tuple[float, float] | None) -> dict[str, Any]:
    finite = grid[numpy.isfinite(grid)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    # The scale begins at the measure's own zero where it has one, and ends at the largest value shown.
    low = limits[0] if limits else min(low, 0.0)
    unit = "" if unit == "none" else unit
    return {"name": name, "label": label, "unit": unit, "grid": numbers.plain(grid, 5), "low": low, "high": high if high > low else low + 1}


def _facts(story: xarray.Dataset) -> list[list[str]]:
    attributes, plan = story.attrs, story.attrs["plan"]
    rows = [
        ["model", f"{attributes['model']} ({attributes['family']}, {attributes['dtype']}, {attributes['device']})"],
        ["weights", attributes["weights_fingerprint"]],
        ["size", f"{story.sizes['source']} tokens, layers {_span(story['layer'].values)}, {story.sizes.get('head', 0)} heads"],
        ["engine", f"{attributes['engine']}, {attributes['seconds']:.2f} s"],
    ]
    if plan:
        about = f"{plan['tangents']} tangents, {plan['chunk']} at a time ({plan['reason']})"
        rows.append(["plan", f"{about}, planned {plan['seconds']:.1f} s, {plan['bytes'] / 2**20:.0f} MiB, {plan['flops'] / 1e9:.0f} GFLOP"])
    estimate = attributes["error_estimate"].get("mean_total_variation_of_a_row")
    if estimate is not None:
        rows.append(["error estimate", f"{estimate:.4f} mean total variation of a row, seed {attributes['seed']}"])
    rows += [[f"setting {key}", _said(value)] for key, value in attributes["settings"].items()]
    versions = ("glocal", "torch", "transformers", "python")
    rows.append(["versions", ", ".join(f"{name} {attributes[f'{name}_version']}" for name in versions)])
    return [[label, visible(str(value))] for label, value in rows]


def _span(values: numpy.ndarray) -> str:
    whole = len(values) > 2 and bool((numpy.diff(values) == 1).all())
    return f"{values[0]} to {values[-1]}" if whole else ", ".join(map(str, values))


def _said(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _notes(story: xarray.Dataset) -> list[str]:
    notes = [visible(note) for note in story.attrs["notes"]]
    for entry in story.attrs["not_finite"][:20]:
        where = f"layer {entry['layer']}" + (f", head {entry['head']}" if entry["head"] is not None else "")
        notes.append(f"{entry['variable']}, {where}: {entry['nan']} NaN and {entry['infinite']} infinite values, left out of every mean.")
    if story.attrs["masked_rows"]:
        notes.append(f"{story.attrs['masked_rows']} fully masked rows are left out of every mean.")
    return notes
