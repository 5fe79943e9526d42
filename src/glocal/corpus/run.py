"""Texts -> Study: blocks of texts are analysed and written once each, and their summaries merged in their order."""

import json
import os
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import xarray

import glocal
from glocal.corpus.block import BLOCK, LONG, Job, digest
from glocal.corpus.blocks import read_block
from glocal.corpus.engines import Block, computed
from glocal.corpus.places import Place, place_of, read_json
from glocal.corpus.result import BLOCKS, finish
from glocal.corpus.texts import Columns, Item, items, rows_of
from glocal.corpus.watch import Watch, watching
from glocal.errors import ChoiceError, StudyError
from glocal.models.load import load, weights_fingerprint
from glocal.models.observe import body
from glocal.progress import Choice
from glocal.results.store import save

SETTINGS, CORPUS, STORIES = "settings.json", "corpus.json", "stories"


def study(
    texts: Any,
    model: Any = "minilm",
    tokenizer: Any = None,
    *,
    out: str | os.PathLike[str],
    text: str = "text",
    pair: str | None = None,
    name: str | None = None,
    label: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
    max_tokens: int | None = None,
    long: str = "skip",
    measures: Iterable[str] = ("jsd", "spearman"),
    probes: int | None = 8,
    ladder: bool = False,
    hidden: bool = False,
    heads: bool = True,
    table: bool = True,
    stories: Iterable[int] = (),
    of: str = "head",
    norm: str = "frobenius",
    seed: int = 0,
    memory: str = "4GiB",
    engine: str = "local",
    workers: int = 1,
    threads: int = 1,
    shard: str | None = None,
    progress: Choice = None,
) -> xarray.Dataset:
    """Analyse every text of a corpus and summarise, per layer and head, with standard errors and bootstrap intervals over texts.

    `texts`: a file (txt, csv, tsv, jsonl, parquet; also .gz, .zst), "-" for standard input, "hf:NAME" for a Hugging Face dataset, or an
    iterable of texts or pairs. `text`, `pair`, `name`, `label`: columns of a table. `limit`: the first so many rows; `sample`: so many of
    these, drawn by `seed`. `max_tokens`: what is done with longer texts says `long`: "skip" (rejected, and counted), "truncate" or "window"
    (parts of that length, averaged).
    `probes`: directions per source of the sketch; None is exact. `ladder` and `hidden` add what they say, at the price of an analysis for
    every layer, and of one more; `heads` are the distances between heads. `table`: the per-text table; `stories`: rows whose
    whole Story is kept.
    `engine`: "local" or "ray" (a running cluster); `workers`: processes, each with `threads` threads, on which results depend to rounding,
    while they do not depend on `workers`. `shard`: "2/8" computes every eighth block from the second on; see `merge`.

    Results are kept in the folder `out`, block by block: the same call continues where it was stopped, and ends with the same bytes.
    Returns the Study (docs/study.md). Raises `StudyError` where the folder holds another study, `ChoiceError`, `TextError`, `ModelError`.
    """
    mine, shards = _shard(shard)
    options = {"measures": tuple(measures), "probes": probes, "seed": seed, "memory": memory, "of": of, "norm": norm, "time": None}
    # Not chosen by the clock: a study continued on a busy machine ends with the same bytes.
    options |= {"engine": "collapsed" if probes is None else "straight"}
    if of == "hidden" or long not in LONG:
        asked, allowed = ("of='hidden'", "head, head_output") if of == "hidden" else (f"long={long!r}", ", ".join(LONG))
        raise ChoiceError("A study cannot do that.", asked=asked, allowed=allowed, do="choose one of these; hidden=True adds hidden states")
    columns = Columns(text, pair, name, label)
    job = Job(model, tokenizer, options, ladder, hidden, heads, max_tokens, long, threads, frozenset(stories))
    settings = _settings(job, columns, limit, sample)
    place = place_of(out)
    with place.alone():
        _same_settings(place, settings)
        rows = items(texts, columns, limit=limit, sample=sample, seed=seed)
        total = sample or limit if shards == 1 else None
        with watching(progress, place, total or (rows_of(texts) if shards == 1 else None)) as watch:
            blocks = _compute(job, place, _blocks(rows), (mine, shards), watch, engine, workers)
        place.write(CORPUS, json.dumps({"blocks": blocks}).encode())
        return finish(place, settings, seed=seed, blocks=blocks if shards == 1 else None, with_table=table)


def merge(out: str | os.PathLike[str], *folders: str | os.PathLike[str]) -> xarray.Dataset:
    """Put the blocks of several folders, the shards of one study, together in `out`, and summarise them.

    Blocks are copied where they are missing; `out` may be one of the folders, and alone it is summarised anew. Returns the Study. Raises
    `StudyError` if a folder holds another study, or if blocks are missing.
    """
    place = place_of(out)
    sources = [place_of(each) for each in folders or (out,)]
    for source in sources:
        if not source.exists(SETTINGS):
            raise StudyError("There is no study in this folder.", asked=source, found=f"no {SETTINGS}", do="check the path")
    with place.alone():
        counts = set()
        for source in sources:
            _same_settings(place, read_json(source, SETTINGS))
            if source.exists(CORPUS):
                counts.add(read_json(source, CORPUS)["blocks"])
            present = set((place / BLOCKS).names(".block"))
            for name in (source / BLOCKS).names(".block"):
                read_block(source / BLOCKS, name)
                if name not in present:
                    (place / BLOCKS).write(name, (source / BLOCKS).read(name))
        if len(counts) != 1:
            raise StudyError(
                "The shards do not belong together." if counts else "No shard has come to its end.",
                asked=", ".join(map(str, sources)),
                found=f"{' and '.join(map(str, sorted(counts))) or 'no number of'} blocks",
                do="finish each shard, with the same corpus",
            )
        settings = read_json(place, SETTINGS)
        blocks = counts.pop()
        place.write(CORPUS, json.dumps({"blocks": blocks}).encode())
        return finish(place, settings, seed=settings["options"]["seed"], blocks=blocks)


def _settings(job: Job, columns: Columns, limit: int | None, sample: int | None) -> dict[str, Any]:
    """Everything that results depend on."""
    network, _, called = load(job.model, job.tokenizer)
    network = body(network)
    return {
        "glocal_version": glocal.__version__,
        "torch_version": torch.__version__,
        "transformers_version": version("transformers"),
        "model": called,
        "family": network.config.model_type,
        "weights_fingerprint": weights_fingerprint(network),
        "options": {key: list(value) if isinstance(value, tuple) else value for key, value in job.options.items()},
        "ladder": job.ladder,
        "hidden": job.hidden,
        "heads": job.heads,
        "columns": columns._asdict(),
        "limit": limit,
        "sample": sample,
        "max_tokens": job.max_tokens,
        "long": job.long,
        "threads": job.threads,
        "block": BLOCK,
    }


def _blocks(rows: Iterator[Item]) -> Iterator[Block]:
    number = 0
    while some := list(islice(rows, BLOCK)):
        yield number, some
        number += 1


def _shard(shard: str | None) -> tuple[int, int]:
    if shard is None:
        return 0, 1
    first, slash, last = str(shard).partition("/")
    if not (slash and first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise ChoiceError("The shard cannot be read.", asked=f"shard={shard!r}", allowed='"1/8" to "8/8"', do="pass one of these")
    return int(first) - 1, int(last)


def _compute(job: Job, place: Place, blocks: Iterator[Block], shard: tuple[int, int], watch: Watch, engine: str, workers: int) -> int:
    """Compute what is not there yet; returns the number of blocks of the whole corpus."""
    seen = 0

    def missing() -> Iterator[Block]:
        nonlocal seen
        for number, rows in blocks:
            seen += 1
            if number % shard[1] != shard[0]:
                continue
            if _done(place, number, rows):
                watch.skipped(len(rows))
            else:
                yield number, rows

    for done in computed(job, missing(), engine=engine, workers=workers):
        for number, story in done.stories.items():
            _keep(place, number, story)
        (place / BLOCKS).write(_name(done.number), done.contents)
        watch.finished(done)
    return seen


def _keep(place: Place, number: int, story: xarray.Dataset) -> None:
    if "://" in str(place):
        raise StudyError(
            "Stories are kept in folders only.", asked=f"stories with out={str(place)!r}", do="leave stories out, or use a folder"
        )
    folder = Path(str(place)) / STORIES
    folder.mkdir(exist_ok=True)
    save(story, folder / f"{number}.zarr", overwrite=True)


def _name(number: int) -> str:
    return f"{number:07d}.block"


def _done(place: Place, number: int, rows: list[Item]) -> bool:
    folder = place / BLOCKS
    if not folder.exists(_name(number)):
        return False
    if read_block(folder, _name(number))[1]["digest"] != digest(rows):
        raise StudyError(
            "The corpus has changed since this study began.",
            asked=place,
            found=f"other texts in rows {rows[0].number} to {rows[-1].number}",
            do="use the same corpus, or another folder",
        )
    return True


def _same_settings(place: Place, settings: dict[str, Any]) -> None:
    if not place.exists(SETTINGS):
        place.write(SETTINGS, json.dumps(settings, indent=1, ensure_ascii=False).encode())
        return
    before = read_json(place, SETTINGS)
    changed = [key for key in settings if before.get(key) != settings[key]]
    if changed:
        raise StudyError(
            "This folder holds a study with other settings.",
            asked=", ".join(f"{key}={settings[key]!r}" for key in changed),
            found=", ".join(f"{key}={before.get(key)!r}" for key in changed),
            do="use the same settings, or another folder",
        )
