"""Blocks -> the summary of a study, merged in the order of the blocks, so that the same blocks give the same bytes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import xarray
from numpy.typing import NDArray

from glocal.corpus.across import Labelled, head_maps, persistence
from glocal.corpus.blocks import packed, read_block
from glocal.corpus.moments import Bootstrap, Moments, Quantiles, interval, poisson_draws
from glocal.corpus.places import Place, Remote, place_of
from glocal.corpus.tables import table, write_rejected
from glocal.dims import AXIS, HEAD, LAYER, LENGTH, LEVEL, OTHER_HEAD, OTHER_LAYER
from glocal.errors import StudyError
from glocal.results.store import SUFFIX, open_story

SUMMARY, BLOCKS = "summary.block", "blocks"
VERSION = 1
DRAWS = 200
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
# Text lengths in tokens, and the largest of every class but the last.
LENGTHS = ("1-8", "9-16", "17-32", "33-64", "65-128", "129+")
_LARGEST = (8, 16, 32, 64, 128)
OVER_HEADS = "_over_heads"


class Gathered:
    """What the blocks so far say together."""

    def __init__(self, seed: int):
        self.seed = seed
        self.dims: dict[str, tuple[str, ...]] = {}
        self.coordinates: dict[str, list[Any]] = {}
        self.moments: dict[str, Moments] = {}
        self.draws: dict[str, Bootstrap] = {}
        self.quantiles: dict[str, Quantiles] = {}
        self.sums: dict[str, NDArray] = {}
        self.texts = self.tokens = 0
        self.rejected: list[dict[str, Any]] = []

    def add(self, arrays: dict[str, NDArray], facts: dict[str, Any]) -> None:
        """One block more."""
        self.rejected += facts["rejected"]
        if not facts["texts"]:
            return
        self.texts += len(facts["texts"])
        self.tokens += sum(text["tokens"] for text in facts["texts"])
        self.coordinates = facts["coordinates"] | {LENGTH: list(LENGTHS), LEVEL: list(LEVELS)}
        times = poisson_draws([text["number"] for text in facts["texts"]], draws=DRAWS, seed=self.seed)
        dims = {name: tuple(names) for name, names in facts["dims"].items()}
        for name, names, values in _derived(arrays, dims, [text["tokens"] for text in facts["texts"]]):
            self.dims[name] = names
            one, drawn = Moments.of(values), Bootstrap.of(values, times)
            self.moments[name] = self.moments[name].merge(one) if name in self.moments else one
            self.draws[name] = self.draws[name].merge(drawn) if name in self.draws else drawn
            if name.startswith("discrepancy_") and names == (LAYER, HEAD):
                counted = Quantiles.of(values)
                self.quantiles[name] = self.quantiles[name].merge(counted) if name in self.quantiles else counted
        for name, values in arrays.items():
            if name.startswith(("sum:", "count:")):
                self.sums[name] = self.sums[name] + values if name in self.sums else values

    def variables(self) -> tuple[Labelled, dict[str, Any]]:
        """Everything the summary holds, and the facts that are no arrays."""
        found: Labelled = {}
        for name, one in self.moments.items():
            low, high = interval(self.draws[name].means)
            said, unit = described(name)
            whole = {"": one.average, "_se": one.standard_error, "_low": low, "_high": high, "_count": one.count}
            endings = (
                "",
                ", standard error",
                ", lower end of the 95 % interval",
                ", upper end of the 95 % interval",
                ", texts that have it",
            )
            for (suffix, values), ending in zip(whole.items(), endings, strict=True):
                found[name + suffix] = (self.dims[name], values, said + ending, "texts" if suffix == "_count" else unit)
        for name, counted in self.quantiles.items():
            said, unit = described(name)
            found[f"{name}_quantile"] = ((LEVEL, LAYER, HEAD), counted.at(LEVELS), f"{said}, quantiles over texts", unit)
        found |= persistence(self.moments["category_mass"].average, self.draws["category_mass"].means, seed=self.seed)
        facts: dict[str, Any] = {}
        if self.sums:
            count = self.sums["count:head_distance"]
            distance = numpy.where(count > 0, self.sums["sum:head_distance"] / numpy.maximum(count, 1), numpy.nan)
            maps, alike = head_maps(distance, seed=self.seed)
            found |= maps
            facts["mantel"] = alike
        return found, facts


def _derived(
    arrays: dict[str, NDArray], dims: dict[str, tuple[str, ...]], tokens: list[int]
) -> Iterator[tuple[str, tuple[str, ...], NDArray]]:
    """Every statistic, discrepancies by length of the text, and all of them averaged over heads."""
    lengths = numpy.searchsorted(_LARGEST, tokens)
    for name, names in dims.items():
        every = [(name, names, arrays[name])]
        if name.startswith("discrepancy_") and names == (LAYER, HEAD):
            here = lengths[:, None] == numpy.arange(len(LENGTHS))
            every.append((f"{name}_by_length", (LENGTH, *names), numpy.where(here[..., None, None], arrays[name][:, None], numpy.nan)))
        for each, of, values in every:
            yield each, of, values
            if HEAD in of:
                assert of[-1] == HEAD
                yield each + OVER_HEADS, of[:-1], over_heads(values)


def over_heads(values: NDArray) -> NDArray:
    """Mean over the last axis of what is finite; NaN where nothing is."""
    valid = numpy.isfinite(values)
    count = valid.sum(-1)
    return numpy.where(count > 0, numpy.where(valid, values, 0).sum(-1, dtype=numpy.float64) / numpy.maximum(count, 1), numpy.nan)


_UNITS = {
    "category_mass": ("mean share on a kind of token", "share"),
    "own_share": ("mean share on the own token", "share"),
    "entropy": ("mean entropy of a row", "nats"),
    "position_profile": ("mean share by relative position", "share"),
    "hidden_own_share": ("share of a hidden state's attribution on the own token", "share"),
    "hidden_other_largest": ("share of hidden states whose largest source is another token", "share"),
}


def described(name: str) -> tuple[str, str]:
    """Long name and unit of a statistic."""
    base = name.removesuffix(OVER_HEADS)
    ending = ", mean over heads" if base != name else ""
    if base in _UNITS:
        return _UNITS[base][0] + ending, _UNITS[base][1]
    kind, _, measure = base.partition("_")
    for suffix, words in (("_by_category", ", by kind of target"), ("_by_length", ", by length of the text")):
        if measure.endswith(suffix):
            measure, ending = measure.removesuffix(suffix), words + ending
    what = {
        "discrepancy": "{} between attention and attribution",
        "bias": "bias of the {} that a sketch's noise causes",
        "ladder": "{} between attention and the attribution to the input of layer source_layer + 1",
    }[kind]
    return what.format(measure) + ending, _unit(measure)


def _unit(measure: str) -> str:
    from glocal import registry

    extra = dict(registry.cards("measures")[measure].extra) if measure in registry.names("measures") else {}
    return str(extra.get("unit", f"as {measure} defines it"))


def finish(place: Place, settings: dict[str, Any], *, seed: int, blocks: int | None, with_table: bool = True) -> xarray.Dataset:
    """Merge all blocks, write the summary, the table and the rejected rows, and return the summary.

    Raises `StudyError` if one of `blocks` is missing; None takes what is there.
    """
    folder = place / BLOCKS
    names = folder.names(".block")
    if blocks is not None and len(names) != blocks:
        raise StudyError(
            "The study is not complete.", asked=place, found=f"{len(names)} of {blocks} blocks", do="start the same command again"
        )
    gathered = Gathered(seed)
    if with_table:
        with table(place) as rows:
            for name in names:
                arrays, facts = read_block(folder, name)
                gathered.add(arrays, facts)
                if facts["texts"]:
                    rows.add(arrays, facts)
    else:
        for name in names:
            gathered.add(*read_block(folder, name))
    write_rejected(place, gathered.rejected)
    if not gathered.texts:
        raise StudyError(
            "No text of the corpus could be analysed.",
            found="; ".join(f"row {each['number']}: {each['reason']}" for each in gathered.rejected[:5]) or "no rows",
            do="check the corpus and the column names",
        )
    variables, facts = gathered.variables()
    facts |= {
        "study_schema": VERSION,
        "settings": settings,
        "texts": gathered.texts,
        "tokens": gathered.tokens,
        "rejected": gathered.rejected,
        "coordinates": gathered.coordinates,
        "variables": {name: [list(dims), said, unit] for name, (dims, _, said, unit) in variables.items()},
    }
    place.write(SUMMARY, packed({name: values for name, (_, values, _, _) in variables.items()}, facts))
    return open_study(place)


def open_study(place: Place) -> xarray.Dataset:
    """The summary of the study in a place, as docs/study.md describes it."""
    arrays, facts = read_block(place, SUMMARY)
    if facts.get("study_schema") != VERSION:
        raise StudyError(
            "This study was written by another glocal.",
            asked=place,
            found=f"study_schema={facts.get('study_schema')!r}",
            allowed=f"study_schema={VERSION}",
            do="run it anew",
        )
    labels, coordinates = facts.pop("variables"), facts.pop("coordinates")
    variables = {
        name: (tuple(dims), numpy.array(arrays[name]), {"long_name": said, "unit": unit}) for name, (dims, said, unit) in labels.items()
    }
    used = {dim for dims, _, _ in labels.values() for dim in dims}
    coordinates |= {OTHER_LAYER: coordinates[LAYER], OTHER_HEAD: coordinates[HEAD], AXIS: ["x", "y"]}
    return xarray.Dataset(variables, {name: values for name, values in coordinates.items() if name in used}, facts)


def open_result(path: str | os.PathLike[str]) -> xarray.Dataset:
    """The Story in the folder `path` (see `glocal.results.store`), or the summary of the study in it.

    Raises `StoryError` or `StudyError` where there is neither, or where it is damaged.
    """
    place = place_of(path)
    if place.exists(SUMMARY):
        return open_study(place)
    if place.exists("settings.json"):
        raise StudyError("The study in this folder is not finished.", asked=path, found=f"no {SUMMARY}", do="start the same command again")
    if isinstance(place, Remote) or not (Path(path).exists() or Path(path).suffix == SUFFIX):
        raise StudyError("There is no such Story or study.", asked=path, found="nothing", do="check the path")
    return open_story(Path(path))
