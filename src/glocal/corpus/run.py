"""Texts -> Study: blocks of texts are analysed and written once each, and their summaries merged in their order."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
import xarray

import glocal
from glocal.corpus.blocks import read_block, write_block, write_whole
from glocal.corpus.result import finish
from glocal.corpus.statistics import stacked, statistics
from glocal.corpus.texts import Item, items
from glocal.errors import ChoiceError, GlocalError, StudyError
from glocal.models.encode import encode
from glocal.models.load import load, quiet, weights_fingerprint
from glocal.models.observe import body
from glocal.pipeline import analyze
from glocal.progress import Choice, tracker

# Texts that are computed, written and lost together.
BLOCK = 32
SETTINGS, BLOCKS = "settings.json", "blocks"


class Job(NamedTuple):
    """All that a worker needs to know, the same for every block."""

    model: Any
    tokenizer: Any
    folder: Path
    options: dict[str, Any]  # of `analyze`
    max_tokens: int | None
    threads: int


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
    max_tokens: int | None = None,
    measures: Iterable[str] = ("jsd",),
    probes: int | None = 8,
    seed: int = 0,
    memory: str = "4GiB",
    workers: int = 1,
    threads: int = 1,
    shard: str | None = None,
    progress: Choice = None,
) -> xarray.Dataset:
    """Analyse every text of a corpus and summarise, per layer and head, with standard errors and bootstrap intervals over texts.

    `texts`: a file (txt, csv, tsv, jsonl, parquet, .gz), "-" for standard input, or an iterable of texts or pairs. `text`, `pair`, `name`,
    `label`: columns of a table. `limit`: the first so many rows. `max_tokens`: longer texts are rejected, and counted.
    `probes`: directions per source of the sketch; None is exact. `workers`: processes, each with `threads` threads, on which results
    depend to rounding, while they do not depend on `workers`. `shard`: "2/8" computes every eighth block from the second on.

    Results are kept in the folder `out`, block by block: the same call continues where it was stopped, and ends with the same bytes.
    Returns the summary; rejected rows are in its attributes. Raises `StudyError` where the folder holds another study.
    """
    folder = Path(out)
    options = {"measures": tuple(measures), "probes": probes, "seed": seed, "memory": memory, "time": None}
    columns = {"text": text, "pair": pair, "name": name, "label": label}
    mine, shards = _shard(shard)
    job = Job(model, tokenizer, folder, options, max_tokens, threads)
    network, _, called = load(model, tokenizer)
    settings = {
        "glocal_version": glocal.__version__,
        "torch_version": torch.__version__,
        "model": called,
        "weights_fingerprint": weights_fingerprint(body(network)),
        "options": {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()},
        "columns": columns,
        "limit": limit,
        "max_tokens": max_tokens,
        "threads": threads,
        "block": BLOCK,
    }
    (folder / BLOCKS).mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        _same_settings(folder, settings)
        rows = islice(items(texts, **columns), limit)
        blocks = ((number, some) for number, some in enumerate(_blocks(rows)) if number % shards == mine)
        count = _compute(job, blocks, workers, progress)
        return finish(folder / BLOCKS, settings, seed=seed, blocks=count, partial=shards > 1)


def _blocks(rows: Iterator[Item]) -> Iterator[list[Item]]:
    while some := list(islice(rows, BLOCK)):
        yield some


def _shard(shard: str | None) -> tuple[int, int]:
    if shard is None:
        return 0, 1
    first, slash, last = shard.partition("/")
    if not (slash and first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise ChoiceError("The shard cannot be read.", asked=f"shard={shard!r}", allowed='"1/8" to "8/8"', do="pass one of these")
    return int(first) - 1, int(last)


def _compute(job: Job, blocks: Iterator[tuple[int, list[Item]]], workers: int, progress: Choice) -> int:
    """Compute what is not there yet; returns the number of blocks."""
    seen = 0

    def missing() -> Iterator[tuple[int, list[Item]]]:
        nonlocal seen
        for number, some in blocks:
            seen += 1
            if not _done(job.folder, number, some):
                yield number, some

    with tracker(progress, 0, float("inf"), "study") as advance:
        if workers == 1:
            with _threads(job.threads):
                for number, some in missing():
                    _block(job, number, some)
                    advance(len(some))
            return seen
        context = get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_ready, initargs=(job.threads,)) as pool:
            running: set[Future] = set()
            for number, some in missing():
                running.add(pool.submit(_block, job, number, some))
                if len(running) > 2 * workers:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in finished:
                        advance(each.result())
            for each in running:
                advance(each.result())
    return seen


def _ready(threads: int) -> None:
    quiet()
    torch.set_num_threads(threads)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _block(job: Job, number: int, some: list[Item]) -> int:
    """Analyse one block and write it."""
    model, tokenizer, _ = load(job.model, job.tokenizer)
    network = body(model)
    kept: list[Item] = []
    rejected: list[dict[str, Any]] = []
    for item in some:
        try:
            length = len(encode(_text_of(item), network, tokenizer))
        except GlocalError as error:
            rejected.append(_rejection(item, error.problem))
            continue
        if job.max_tokens is not None and length > job.max_tokens:
            rejected.append(_rejection(item, f"{length} tokens, more than max_tokens={job.max_tokens}"))
        else:
            kept.append(item)
    stories = analyze([_text_of(item) for item in kept], model, tokenizer, progress=False, **job.options)
    good = []
    for item, story in zip(kept, stories, strict=True):
        broken = [entry["variable"] for entry in story.attrs["not_finite"]]
        if broken:
            rejected.append(_rejection(item, f"not finite: {', '.join(sorted(set(broken)))}"))
        else:
            good.append((item, story))
    arrays = stacked([statistics(story) for _, story in good])
    facts = {
        "texts": [{"number": item.number, "name": item.name, "label": item.label, "tokens": story.sizes["source"]} for item, story in good],
        "rejected": rejected,
        "digest": _digest(some),
    }
    write_block(_path(job.folder, number), arrays, facts)
    return len(some)


def _text_of(item: Item) -> Any:
    return item.text if item.pair is None else (item.text, item.pair)


def _rejection(item: Item, reason: str) -> dict[str, Any]:
    return {"number": item.number, "name": item.name, "reason": reason}


def _path(folder: Path, number: int) -> Path:
    return folder / BLOCKS / f"{number:07d}.block"


def _digest(some: list[Item]) -> str:
    return hashlib.sha256(repr([tuple(item) for item in some]).encode("utf-8", "surrogatepass")).hexdigest()


def _done(folder: Path, number: int, some: list[Item]) -> bool:
    path = _path(folder, number)
    if not path.exists():
        return False
    if read_block(path)[1]["digest"] != _digest(some):
        raise StudyError(
            "The corpus has changed since this study began.",
            asked=folder,
            found=f"other texts in rows {some[0].number} to {some[-1].number}",
            do="use the same corpus, or another folder",
        )
    return True


def _same_settings(folder: Path, settings: dict[str, Any]) -> None:
    path = folder / SETTINGS
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StudyError("The settings of the study are damaged.", asked=path, found=error, do="use another folder") from error
        changed = [key for key in settings if before.get(key) != settings[key]]
        if changed:
            raise StudyError(
                "This folder holds a study with other settings.",
                asked=", ".join(f"{key}={settings[key]!r}" for key in changed),
                found=", ".join(f"{key}={before.get(key)!r}" for key in changed),
                do="use the same settings, or another folder",
            )
        return
    write_whole(path, json.dumps(settings, indent=1, ensure_ascii=False).encode())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One run per folder and machine; the lock goes with the process, however it ends."""
    import fcntl

    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StudyError(
                "Another run works in this folder.", asked=folder, do="wait for it, or use another folder (shards may be copied together)"
            ) from error
        yield
