"""A corpus may come as lines, tables or objects."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glocal.corpus.texts import items
from glocal.errors import ChoiceError, TextError

ROWS = [
    {"text": "One, two.", "other": "A\tb", "id": "x", "kind": "p"},
    {"text": 'He said "hi"\nthere', "other": "Ünïcode 猫", "id": "y", "kind": "q"},
]


def write(path, kind):
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, ROWS[0], delimiter="," if kind == "csv" else "\t")
        writer.writeheader()
        writer.writerows(ROWS)
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_tables_with_columns(tmp_path, kind):
    found = list(items(write(tmp_path / f"a.{kind}", kind), pair="other", name="id", label="kind"))
    assert [tuple(item) for item in found] == [
        (number, row["text"], row["other"], row["id"], row["kind"]) for number, row in enumerate(ROWS)
    ]


def test_lines_packed_or_not_and_from_standard_input(tmp_path, monkeypatch):
    text = "One.\n\n猫 sat.\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    for place in (tmp_path / "a.txt", tmp_path / "a.txt.gz", "-"):
        assert [item.text for item in items(place)] == ["One.", "", "猫 sat."]


def test_objects_and_pairs():
    assert [(item.text, item.pair) for item in items(["a", ("b", "c")])] == [("a", None), ("b", "c")]


def test_bytes_that_are_no_text_do_not_stop_the_corpus(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\n\xff\xfe\nalso good\n")
    assert len(list(items(tmp_path / "a.txt"))) == 3


@pytest.mark.parametrize(
    ("name", "content", "columns", "error", "match"),
    [
        ("a.doc", "", {}, TextError, "kind"),
        ("a.jsonl", "{", {}, TextError, "line 1"),
        ("a.jsonl", "[1]", {}, TextError, "no JSON object"),
        ("a.csv", "sentence\nx\n", {}, ChoiceError, "no column 'text'"),
        ("a.csv", "text\nx\n", {"pair": "b"}, ChoiceError, "no column 'b'"),
    ],
)
def test_what_cannot_be_read_says_so(tmp_path, name, content, columns, error, match):
    (tmp_path / name).write_text(content)
    with pytest.raises(error, match=match):
        list(items(tmp_path / name, **columns))


@pytest.mark.parametrize("thing", ["/nowhere.txt", 3, b"bytes"])
def test_other_things_are_no_corpus(thing):
    with pytest.raises(TextError, match="corpus"):
        list(items(thing))
