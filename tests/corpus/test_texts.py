"""A corpus may come as lines, tables or objects."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glocal.corpus.texts import Columns, items, rows_of
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
    found = list(items(write(tmp_path / f"a.{kind}", kind), Columns("text", "other", "id", "kind")))
    assert [tuple(item) for item in found] == [
        (number, row["text"], row["other"], row["id"], row["kind"], "") for number, row in enumerate(ROWS, start=1)
    ]


def test_lines_packed_or_not_and_from_standard_input(tmp_path, monkeypatch):
    text = "One.\n\n猫 sat.\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    with pa.output_stream(str(tmp_path / "a.txt.zst"), compression="zstd") as file:
        file.write(text.encode())
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    for place in (tmp_path / "a.txt", tmp_path / "a.txt.gz", tmp_path / "a.txt.zst", "-"):
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
        list(items(tmp_path / name, Columns(**columns)))


@pytest.mark.parametrize("thing", ["/nowhere.txt", 3, b"bytes"])
def test_other_things_are_no_corpus(thing):
    with pytest.raises(TextError, match="corpus"):
        list(items(thing))


def test_a_sample_depends_on_the_seed_alone_and_keeps_the_order():
    texts = [str(number) for number in range(200)]
    one, again, other = (list(items(texts, sample=20, seed=seed)) for seed in (0, 0, 1))
    assert one == again != other
    assert [item.number for item in one] == sorted(item.number for item in one) and len({item.number for item in one}) == 20
    assert all(item.text == texts[item.number - 1] for item in one)
    assert len(list(items(texts, limit=30, sample=50))) == 30 and list(items(texts, limit=30))[-1].number == 30
    # Every row is as likely as any other.
    drawn = [item.number for seed in range(200) for item in items(texts[:10], sample=3, seed=seed)]
    assert all(35 < drawn.count(number) < 85 for number in range(1, 11))


@pytest.mark.parametrize("options", [{"limit": 0}, {"sample": -1}, {"sample": True}], ids=str)
def test_numbers_of_rows_that_are_none(options):
    with pytest.raises(ChoiceError, match=next(iter(options))):
        items(["a"], **options)


def test_rows_are_counted_where_that_is_cheap(tmp_path):
    (tmp_path / "a.txt").write_text("a\n\nb\n")
    assert rows_of(tmp_path / "a.txt") == 3 and rows_of(["a", "b"]) == 2
    assert rows_of(write(tmp_path / "a.csv", "csv")) is None and rows_of(iter("ab")) is None


@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_a_hugging_face_dataset(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train.jsonl", "jsonl")
    columns = Columns("text", "other", "id")
    expected = [(row["text"], row["other"], row["id"]) for row in ROWS]
    for place in (tmp_path / "data", f"hf:{tmp_path / 'data'}:train"):
        assert [(item.text, item.pair, item.name) for item in items(place, columns)] == expected
    write(tmp_path / "data" / "test.jsonl", "jsonl")
    with pytest.raises(TextError, match="several splits"):
        list(items(tmp_path / "data", columns))
    with pytest.raises(TextError, match="cannot be loaded"):
        list(items(f"hf:{tmp_path / 'nothing'}"))
