"""One block of texts: analysed, summarised, packed; the same bytes wherever it is done."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import xarray
from numpy.typing import NDArray

from glocal.corpus.blocks import packed
from glocal.corpus.statistics import Statistic, averaged, coordinates, distances, statistics
from glocal.corpus.texts import Item
from glocal.errors import GlocalError
from glocal.models.encode import encode, limit
from glocal.models.load import load
from glocal.models.observe import body
from glocal.models.windows import first_part, windows
from glocal.pipeline import analyze

# Texts that are computed, written and lost together.
BLOCK = 32
# What is done with texts of more tokens than allowed.
LONG = ("skip", "truncate", "window")


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know, the same for every block."""

    model: Any
    tokenizer: Any
    options: dict[str, Any]  # of `analyze`
    ladder: bool
    hidden: bool
    heads: bool
    max_tokens: int | None
    long: str
    threads: int
    stories: frozenset[int] = frozenset()  # rows whose whole Story is kept


@dataclass
class Done:
    """A finished block: its bytes, and what a watcher wants to know."""

    number: int
    contents: bytes
    rows: int
    texts: int
    tokens: int
    rejected: int
    stories: dict[int, xarray.Dataset] = field(default_factory=dict)


@dataclass
class _Text:
    """A row and the parts of it that are analysed."""

    item: Item
    parts: list[Any]
    tokens: int
    stories: list[xarray.Dataset] = field(default_factory=list)
    hidden: list[xarray.Dataset | None] = field(default_factory=list)


def compute(job: Job, number: int, rows: list[Item]) -> Done:
    """Analyse the texts of one block; bad ones are noted with their reason."""
    model, tokenizer, _ = load(job.model, job.tokenizer)
    texts, rejected = [], []
    for item in rows:
        try:
            texts.append(_read(job, item, model, tokenizer))
        except GlocalError as error:
            rejected.append(_rejection(item, error.problem))
    _analyse(job, texts, model, tokenizer)
    good = []
    for text in texts:
        # A correlation may be undefined (for the first token of a causal model it is) where the maps are what they should be.
        entries = [entry["variable"] for story in text.stories for entry in story.attrs["not_finite"]]
        broken = {name for name in entries if name.startswith(("attention", "attribution"))}
        if broken:
            rejected.append(_rejection(text.item, f"not finite: {', '.join(sorted(broken))}"))
        else:
            good.append(text)
    facts: dict[str, Any] = {"texts": [_about(text) for text in good], "rejected": rejected, "digest": digest(rows)}
    arrays: dict[str, NDArray] = {}
    if good:
        made = [averaged([statistics(*pair) for pair in zip(text.stories, text.hidden, strict=True)]) for text in good]
        facts |= {"dims": {name: list(dims) for name, (dims, _) in made[0].items()}, "coordinates": coordinates(good[0].stories[0])}
        arrays = _stacked(made) | (_summed_distances(good) if job.heads else {})
    kept = {text.item.number: text.stories[0] for text in good if text.item.number in job.stories and len(text.stories) == 1}
    tokens = sum(text.tokens for text in good)
    return Done(number, packed(arrays, facts), len(rows), len(good), tokens, len(rejected), kept)


def digest(rows: list[Item]) -> str:
    """What tells these rows from others."""
    return hashlib.sha256(repr([tuple(item) for item in rows]).encode("utf-8", "surrogatepass")).hexdigest()


def _read(job: Job, item: Item, model: Any, tokenizer: Any) -> _Text:
    """The row as it will be analysed; raises `GlocalError` for one that cannot be."""
    network, text = body(model), item.text if item.pair is None else (item.text, item.pair)
    own = limit(network, tokenizer)
    allowed = min((each for each in (job.max_tokens, own) if each is not None), default=None)
    seen = encode(text, network, tokenizer, truncation=True)
    tokens = len(seen) + seen.truncated
    if allowed is None or tokens <= allowed:
        return _Text(item, [text], tokens)
    if job.long == "skip":
        raise GlocalError(f"{tokens} tokens, more than {'max_tokens=' if allowed != own else 'the model has, '}{allowed}")
    parts = [first_part(text, tokenizer, allowed)] if job.long == "truncate" else windows(text, tokenizer, allowed)
    return _Text(item, parts, sum(len(part["input_ids"]) for part in parts))


def _analyse(job: Job, texts: list[_Text], model: Any, tokenizer: Any) -> None:
    """All parts of all texts in one call, so that those of one length share their work."""
    parts = [part for text in texts for part in text.parts]
    options = {**job.options, "progress": False}
    found = iter(analyze(parts, model, tokenizer, ladder=job.ladder, **options))
    hidden: Iterator[xarray.Dataset | None] = iter([None] * len(parts))
    if job.hidden:
        hidden = iter(analyze(parts, model, tokenizer, **{**options, "of": "hidden", "methods": ("attribution",), "measures": ()}))
    for text in texts:
        text.stories = [next(found) for _ in text.parts]
        text.hidden = [next(hidden) for _ in text.parts]


def _stacked(texts: list[dict[str, Statistic]]) -> dict[str, NDArray]:
    return {name: numpy.stack([text[name].values for text in texts]) for name in texts[0]}


def _summed_distances(texts: list[_Text]) -> dict[str, NDArray]:
    """Sums over texts and how many there were, for every two heads: one text's alone would fill the disk."""
    total: NDArray = numpy.zeros(())
    count: NDArray = numpy.zeros(())
    for text in texts:
        each = numpy.stack([distances(story) for story in text.stories]).mean(0)
        valid = numpy.isfinite(each)
        total, count = total + numpy.where(valid, each, 0), count + valid
    return {"sum:head_distance": total, "count:head_distance": count}


def _about(text: _Text) -> dict[str, Any]:
    item = text.item
    return {"number": item.number, "name": item.name, "label": item.label, "tokens": text.tokens, "windows": len(text.parts)}


def _rejection(item: Item, reason: str) -> dict[str, Any]:
    return {"number": item.number, "name": item.name, "reason": reason}
