"""Texts of a corpus, one after the other: lines, tables, or an iterable; compressed or not."""

import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from glocal.errors import ChoiceError, TextError

KINDS = ("txt", "csv", "tsv", "jsonl", "parquet")


class Item(NamedTuple):
    """One row: its number in the corpus, and what it says."""

    number: int
    text: Any
    pair: Any
    name: str  # the id column, or the number
    label: str


def items(texts: Any, *, text: str = "text", pair: str | None = None, name: str | None = None, label: str | None = None) -> Iterator[Item]:
    """The rows of a file (txt, csv, tsv, jsonl, parquet; also .gz), of "-" (lines of standard input), or of an iterable of texts or pairs.

    Columns: `text`, and where given `pair`, `name`, `label`. Raises `TextError` and `ChoiceError`.
    """
    if isinstance(texts, str | Path):
        for number, row in enumerate(_rows(texts, text)):
            missing = [column for column in (text, pair, name, label) if column is not None and column not in row]
            if missing:
                raise ChoiceError(
                    f"The corpus has no column {missing[0]!r}.",
                    asked=f"row {number} of {texts}",
                    found=", ".join(map(str, row)) or "no columns",
                    do="name the columns that hold text, pair, id and label",
                )
            yield Item(
                number, row[text], row[pair] if pair else None, str(row[name]) if name else str(number), str(row[label]) if label else ""
            )
        return
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise TextError(
            "This is no corpus.", found=type(texts).__name__, allowed="a file, - or an iterable of texts", do="pass one of these"
        )
    for number, each in enumerate(texts):
        both = each if isinstance(each, tuple) and len(each) == 2 else (each, None)
        yield Item(number, *both, str(number), "")


def _rows(place: str | Path, text: str) -> Iterator[dict[str, Any]]:
    if str(place) == "-":
        yield from ({text: line.rstrip("\n")} for line in sys.stdin)
        return
    path = Path(place)
    if not path.is_file():
        raise TextError("There is no such corpus.", asked=path, found="a folder" if path.is_dir() else "nothing", do="check the path")
    packed = path.suffix == ".gz"
    kind = (Path(path.stem) if packed else path).suffix.lstrip(".").lower()
    if kind not in KINDS:
        raise TextError("The kind of this corpus is unknown.", asked=path, allowed=", ".join(f".{each}" for each in KINDS), do="rename it")
    if kind == "parquet":
        yield from _parquet(path)
        return
    # Bytes that are no text become lone surrogates, so that the row is rejected and not the corpus.
    opened = gzip.open if packed else open
    with opened(path, "rt", encoding="utf-8", errors="surrogateescape", newline="" if kind in ("csv", "tsv") else None) as lines:
        if kind == "txt":
            yield from ({text: line.rstrip("\n")} for line in lines)
        elif kind == "jsonl":
            yield from (_json(line, path, number) for number, line in enumerate(lines, start=1) if line.strip())
        else:
            yield from csv.DictReader(lines, delimiter="," if kind == "csv" else "\t")


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
