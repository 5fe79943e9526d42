"""Texts of a corpus, one after the other: lines, tables, a Hugging Face dataset, or an iterable; compressed or not."""

import csv
import gzip
import heapq
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from glocal.errors import ChoiceError, TextError

KINDS = ("txt", "csv", "tsv", "jsonl", "parquet")
HUB = "hf:"


class Item(NamedTuple):
    """One row: its number in the corpus (from 1), and what it says."""

    number: int
    text: Any
    pair: Any
    name: str  # the id column, or the number
    label: str
    cue: str = ""


class Columns(NamedTuple):
    """Which columns of a table hold what."""

    text: str = "text"
    pair: str | None = None
    name: str | None = None
    label: str | None = None
    cue: str | None = None


_PLAIN = Columns()


def items(texts: Any, columns: Columns = _PLAIN, *, limit: int | None = None, sample: int | None = None, seed: int = 0) -> Iterator[Item]:
    """The rows of a file (txt, csv, tsv, jsonl, parquet; also .gz and .zst), of "-" (lines of standard input), of a Hugging Face dataset
    ("hf:NAME", "hf:NAME:SPLIT", "hf:NAME:CONFIGURATION:SPLIT", or a folder), or of an iterable of texts, pairs or rows with columns.

    `limit`: the first so many rows; `sample`: so many of these, drawn by `seed`, in their order. Raises `TextError` and `ChoiceError`.
    """
    for argument, value in (("limit", limit), ("sample", sample)):
        if value is not None and (type(value) is not int or value < 1):
            raise ChoiceError(f"{argument} is no number of rows.", asked=f"{argument}={value!r}", allowed="1 or more", do="choose one")
    rows = islice(_items(texts, columns), limit)
    return rows if sample is None else _sample(rows, sample, seed)


def rows_of(texts: Any) -> int | None:
    """How many rows there are, where that is known without reading a table."""
    if isinstance(texts, str | Path):
        path = Path(texts)
        if path.suffix == ".txt" and path.is_file():
            with path.open("rb") as file:
                return sum(1 for _ in file)
        return None
    return len(texts) if isinstance(texts, Sized) else None


def _sample(rows: Iterator[Item], size: int, seed: int) -> Iterator[Item]:
    """Those with the smallest random number, which depends on the row's number and the seed alone."""
    draw = lambda item: numpy.random.Generator(numpy.random.Philox(key=[seed, item.number])).random()  # noqa: E731
    return iter(sorted(heapq.nsmallest(size, rows, key=draw), key=lambda item: item.number))


def _items(texts: Any, columns: Columns) -> Iterator[Item]:
    if isinstance(texts, str | Path):
        for number, row in enumerate(_rows(texts, columns.text), start=1):
            yield _item(number, row, columns, str(texts))
        return
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise TextError(
            "This is no corpus.", found=type(texts).__name__, allowed="a file, - or an iterable of texts", do="pass one of these"
        )
    for number, each in enumerate(texts, start=1):
        if isinstance(each, Mapping) and "input_ids" not in each:
            yield _item(number, dict(each), columns, "the corpus")
            continue
        both = each if isinstance(each, tuple) and len(each) == 2 else (each, None)
        yield Item(number, *both, str(number), "")


def _item(number: int, row: dict[str, Any], columns: Columns, place: str) -> Item:
    missing = [column for column in columns if column is not None and column not in row]
    if missing:
        raise ChoiceError(
            f"The corpus has no column {missing[0]!r}.",
            asked=f"row {number} of {place}",
            found=", ".join(map(str, row)) or "no columns",
            do="name the columns that hold text, pair, id and label",
        )
    value = lambda column, otherwise: otherwise if column is None else row[column]  # noqa: E731
    name, label, cue = (str(value(*each)) for each in ((columns.name, number), (columns.label, ""), (columns.cue, "")))
    return Item(number, row[columns.text], value(columns.pair, None), name, label, cue)


def _rows(place: str | Path, text: str) -> Iterator[dict[str, Any]]:
    if str(place) == "-":
        yield from ({text: line.rstrip("\n")} for line in sys.stdin)
        return
    path = Path(place)
    if str(place).startswith(HUB) or path.is_dir():
        yield from _dataset(str(place))
        return
    if not path.is_file():
        raise TextError(
            "There is no such corpus.", asked=path, found="nothing", allowed=f"a file, a folder, {HUB}NAME or -", do="check the path"
        )
    packed = path.suffix if path.suffix in (".gz", ".zst") else ""
    kind = (Path(path.stem) if packed else path).suffix.lstrip(".").lower()
    if kind not in KINDS:
        raise TextError("The kind of this corpus is unknown.", asked=path, allowed=", ".join(f".{each}" for each in KINDS), do="rename it")
    if kind == "parquet":
        yield from _parquet(path)
        return
    with _opened(path, packed, newline="" if kind in ("csv", "tsv") else None) as lines:
        if kind == "txt":
            yield from ({text: line.rstrip("\n")} for line in lines)
        elif kind == "jsonl":
            yield from (_json(line, path, number) for number, line in enumerate(lines, start=1) if line.strip())
        else:
            yield from csv.DictReader(lines, delimiter="," if kind == "csv" else "\t")


def _opened(path: Path, packed: str, newline: str | None) -> Any:
    # Bytes that are no text become lone surrogates, so that the row is rejected and not the corpus.
    how: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "newline": newline}
    if packed == ".gz":
        return gzip.open(path, "rt", **how)
    if packed == ".zst":
        import pyarrow

        return io.TextIOWrapper(io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd")), **how)
    return path.open("rt", **how)


def _dataset(place: str) -> Iterator[dict[str, Any]]:
    """Rows of a dataset, streamed."""
    try:
        import datasets
    except ImportError as error:
        raise TextError(
            "Hugging Face datasets need a package that is not installed.", asked=place, do='pip install "glocal[datasets]"'
        ) from error
    name, *rest = place.removeprefix(HUB).split(":") if place.startswith(HUB) else [place]
    configuration, split = (None, None) if not rest else (None, rest[0]) if len(rest) == 1 else (rest[0], rest[1])
    try:
        found: Any = datasets.load_dataset(name, configuration, split=split, streaming=True)
        parts = list(found.values()) if split is None else [found]
    except (OSError, ValueError, RuntimeError) as error:
        raise TextError("The dataset cannot be loaded.", asked=place, found=_first_line(error), do="check the name") from error
    if len(parts) > 1:
        raise TextError(
            "The dataset has several splits.",
            asked=place,
            found=", ".join(map(str, found)),
            do=f"choose one: {HUB}{name}:{next(iter(found))}",
        )
    yield from parts[0]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _json(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise TextError("A line is no JSON.", asked=f"line {number} of {path}", found=str(error), do="write one object per line") from error
    if not isinstance(row, dict):
        raise TextError(
            "A line is no JSON object.", asked=f"line {number} of {path}", found=type(row).__name__, do="write one object per line"
        )
    return row


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=256):
            yield from batch.to_pylist()
