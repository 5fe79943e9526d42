"""Blocks -> the summary of a study, merged in the order of the blocks, so that the same blocks give the same bytes."""

import json
import os
from pathlib import Path
from typing import Any

import numpy
import xarray

from glocal.corpus.blocks import read_block, write_block
from glocal.corpus.moments import Bootstrap, Moments
from glocal.dims import HEAD, LAYER
from glocal.errors import StudyError
from glocal.results.store import open_story

SUMMARY = "summary.block"
DRAWS = 200


def finish(folder: Path, settings: dict[str, Any], *, seed: int, blocks: int, partial: bool) -> xarray.Dataset:
    """Merge all blocks in `folder`, write the summary beside it, and return it.

    Raises `StudyError` if a block is missing, unless `partial`: then the summary is of what is there.
    """
    paths = sorted(folder.glob("*.block"))
    if not partial and len(paths) != blocks:
        raise StudyError("The study is not complete.", found=f"{len(paths)} of {blocks} blocks", do="start the same command again")
    moments: dict[str, Moments] = {}
    draws: dict[str, Bootstrap] = {}
    texts: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    for path in paths:
        arrays, facts = read_block(path)
        texts += facts["texts"]
        rejected += facts["rejected"]
        numbers = [each["number"] for each in facts["texts"]]
        for name, values in arrays.items():
            one, drawn = Moments.of(values), Bootstrap.of(values, numbers, draws=DRAWS, seed=seed)
            moments[name] = moments[name].merge(one) if name in moments else one
            draws[name] = draws[name].merge(drawn) if name in draws else drawn
    if not texts:
        raise StudyError(
            "No text of the corpus could be analysed.",
            found="; ".join(f"row {each['number']}: {each['reason']}" for each in rejected[:5]) or "no rows",
            do="check the corpus and the column names",
        )
    summary: dict[str, Any] = {}
    for name, one in moments.items():
        low, high = draws[name].interval()
        summary |= {name: one.mean, f"{name}_se": one.standard_error, f"{name}_low": low, f"{name}_high": high, f"{name}_count": one.count}
    counts = {"texts": len(texts), "tokens": sum(each["tokens"] for each in texts), "rejected": rejected}
    write_block(folder.parent / SUMMARY, summary, {"settings": settings, **counts})
    return open_study(folder.parent)


def open_study(folder: Path) -> xarray.Dataset:
    """The summary in a folder: for every statistic its mean over texts, `_se`, `_low`, `_high` (95 %) and `_count` [layer, head]."""
    arrays, facts = read_block(folder / SUMMARY)
    some = next(iter(arrays.values()))
    coordinates = {LAYER: numpy.arange(1, some.shape[0] + 1), HEAD: numpy.arange(1, some.shape[1] + 1)}
    variables = {name: ((LAYER, HEAD), numpy.array(value)) for name, value in sorted(arrays.items())}
    return xarray.Dataset(variables, coordinates, {**facts, "settings": json.loads(json.dumps(facts["settings"]))})


def open_result(path: str | os.PathLike[str]) -> xarray.Dataset:
    """The Story in the folder `path` (see `glocal.results.store`), or the summary of the study in it.

    Raises `StoryError` or `StudyError` where there is neither, or where it is damaged.
    """
    folder = Path(path)
    return open_study(folder) if (folder / SUMMARY).is_file() else open_story(folder)
