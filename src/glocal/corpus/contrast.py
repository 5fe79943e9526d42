"""Two studies -> their differences, with intervals and significance that is corrected for how many were looked at."""

import os
from collections.abc import Iterator
from typing import Any

import numpy
import xarray
from numpy.typing import NDArray
from scipy import stats

from glocal.corpus.blocks import read_block
from glocal.corpus.moments import Moments
from glocal.corpus.places import Place, place_of
from glocal.corpus.result import BLOCKS, OVER_HEADS, SUMMARY, described, over_heads
from glocal.dims import HEAD
from glocal.errors import StudyError

# Statistics that are compared; ladders and profiles by hand.
COMPARED = ("category_mass", "own_share", "entropy", "discrepancy_", "hidden_")
OVERALL = "_overall"
Array = NDArray[numpy.float64]


def compare(first: str | os.PathLike[str], second: str | os.PathLike[str], *, level: float = 0.95) -> xarray.Dataset:
    """Differences of the statistics of two studies, second minus first.

    For every statistic that both have, NAME with NAME_se, NAME_low, NAME_high (normal intervals of `level`), NAME_p (two-sided) and NAME_q
    (p corrected by Benjamini and Hochberg over all values of that statistic): per layer and head where the models have the same numbers of
    both, `NAME_over_heads` where they have as many layers, `NAME_overall` always. Texts that are the same rows in both studies are compared
    pair by pair, which takes out what texts differ in; else the studies count as independent (`attrs["paired"]`).
    Raises `StudyError` where there is no finished study, or nothing in common.
    """
    places = [place_of(first), place_of(second)]
    for place in places:
        if not place.exists(SUMMARY):
            raise StudyError("There is no finished study in this folder.", asked=place, found=f"no {SUMMARY}", do="check the path")
    common = _common(places[0], places[1])
    one, other = places
    found = _paired(one, other, common) if common else _independent(one, other)
    if not found:
        raise StudyError("The studies have no statistic in common.", asked=f"{first} and {second}", do="run them with the same measures")
    facts = [read_block(place, SUMMARY)[1] for place in places]
    coordinates = facts[0]["coordinates"]
    variables: dict[str, Any] = {}
    for name, (dims, mean, error) in found.items():
        half = stats.norm.ppf((1 + level) / 2) * error
        with numpy.errstate(invalid="ignore", divide="ignore"):
            p = 2 * stats.norm.sf(numpy.abs(numpy.where(error > 0, mean / error, numpy.where(mean == 0, 0, numpy.inf))))
        p = numpy.where(numpy.isfinite(mean) & numpy.isfinite(error), p, numpy.nan)
        made = {"": mean, "_se": error, "_low": mean - half, "_high": mean + half, "_p": p, "_q": _corrected(p)}
        said, unit = described(name.removesuffix(OVERALL))
        for suffix, values in made.items():
            attributes = {"long_name": f"difference of: {said}{suffix}", "unit": "probability" if suffix in ("_p", "_q") else unit}
            variables[name + suffix] = (dims, values if dims else values[0], attributes)
    used = {dim for dims, *_ in variables.values() for dim in dims}
    attributes = {
        "first": _about(first, facts[0]),
        "second": _about(second, facts[1]),
        "paired": bool(common),
        "texts": sum(map(len, common.values())) if common else [fact["texts"] for fact in facts],
        "level": level,
    }
    return xarray.Dataset(variables, {dim: coordinates[dim] for dim in coordinates if dim in used}, attributes)


Found = dict[str, tuple[tuple[str, ...], Array, Array]]


def _about(path: Any, facts: dict[str, Any]) -> dict[str, Any]:
    return {"study": str(path), "model": facts["settings"]["model"], "texts": facts["texts"]}


def _corrected(p: Array) -> Array:
    known = numpy.isfinite(p)
    made = numpy.full(p.shape, numpy.nan)
    if known.any():
        made[known] = stats.false_discovery_control(p[known])
    return made


def _digests(place: Place) -> dict[str, tuple[str, list[int]]]:
    """Of every block: what tells its rows from others, and the rows that were analysed."""
    folder = place / BLOCKS
    facts = {name: read_block(folder, name)[1] for name in folder.names(".block")}
    return {name: (fact["digest"], [text["number"] for text in fact["texts"]]) for name, fact in facts.items()}


def _common(first: Place, second: Place) -> dict[str, list[int]]:
    """Rows that both studies analysed, by block; none unless all blocks that both have hold the same rows."""
    one, other = _digests(first), _digests(second)
    shared = [name for name in one if name in other]
    if not shared or any(one[name][0] != other[name][0] for name in shared):
        return {}
    both = {name: sorted(set(one[name][1]) & set(other[name][1])) for name in shared}
    return {name: rows for name, rows in both.items() if rows}


def _levels(arrays: dict[str, NDArray], dims: dict[str, list[str]]) -> Iterator[tuple[str, tuple[str, ...], Array]]:
    """Values per text, with the three degrees of averaging."""
    for name, names in dims.items():
        if not name.startswith(COMPARED):
            continue
        values, of = arrays[name].astype(numpy.float64), tuple(names)
        yield name, of, values
        if HEAD in of:
            values, of = over_heads(values), of[:-1]
            yield name + OVER_HEADS, of, values
        yield name + OVERALL, of[:-1], over_heads(values)


def _rows(place: Place, block: str, rows: list[int] | None) -> tuple[dict[str, NDArray], dict[str, list[str]]]:
    arrays, facts = read_block(place / BLOCKS, block)
    if not facts["texts"]:
        return {}, {}
    numbers = [text["number"] for text in facts["texts"]]
    keep = [numbers.index(row) for row in rows] if rows is not None else slice(None)
    return {name: arrays[name][keep] for name in facts["dims"]}, facts["dims"]


def _paired(first: Place, second: Place, common: dict[str, list[int]]) -> Found:
    moments: dict[str, tuple[tuple[str, ...], Moments]] = {}
    for block, rows in sorted(common.items()):
        one = {name: (dims, values) for name, dims, values in _levels(*_rows(first, block, rows))}
        for name, dims, values in _levels(*_rows(second, block, rows)):
            if name in one and one[name][0] == dims and one[name][1].shape == values.shape:
                _add(moments, name, dims, values - one[name][1])
    return {name: (dims, one.average, one.standard_error) for name, (dims, one) in moments.items()}


def _independent(first: Place, second: Place) -> Found:
    one, other = _moments(first), _moments(second)
    found: Found = {}
    for name, (dims, mine) in one.items():
        if name in other and other[name][0] == dims and other[name][1].mean.shape == mine.mean.shape:
            theirs = other[name][1]
            found[name] = (dims, theirs.average - mine.average, numpy.hypot(mine.standard_error, theirs.standard_error))
    return found


def _moments(place: Place) -> dict[str, tuple[tuple[str, ...], Moments]]:
    moments: dict[str, tuple[tuple[str, ...], Moments]] = {}
    for block in (place / BLOCKS).names(".block"):
        for name, dims, values in _levels(*_rows(place, block, None)):
            _add(moments, name, dims, values)
    return moments


def _add(moments: dict[str, tuple[tuple[str, ...], Moments]], name: str, dims: tuple[str, ...], values: Array) -> None:
    # A single number per text gets a dimension, which goes again when the result is labelled.
    made = Moments.of(values if values.ndim > 1 else values[:, None])
    moments[name] = (dims, moments[name][1].merge(made) if name in moments else made)
