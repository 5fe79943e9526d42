"""The per-text table and the rejected rows, as Parquet, written piece by piece."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from glocal.corpus.places import Place
from glocal.dims import HEAD, LAYER

TABLE, REJECTED = "texts.parquet", "rejected.parquet"
# Statistics of the table; profiles and ladders would make it large.
KEPT = ("category_mass", "own_share", "entropy", "discrepancy_", "bias_")

_ROW = [("number", pyarrow.int64()), ("name", pyarrow.string()), ("label", pyarrow.string()), ("tokens", pyarrow.int32())]
_PLACE = [(LAYER, pyarrow.int16()), (HEAD, pyarrow.int16())]
_REJECTED = pyarrow.schema([("number", pyarrow.int64()), ("name", pyarrow.string()), ("reason", pyarrow.string())])


class Table:
    """One row per text, layer and head; one column per statistic, and along its further dimensions."""

    def __init__(self, file: Any):
        self.file = file
        self.writer: pyarrow.parquet.ParquetWriter | None = None

    def add(self, arrays: dict[str, NDArray], facts: dict[str, Any]) -> None:
        """The texts of one block."""
        columns = dict(_columns(arrays, facts["dims"], facts["coordinates"]))
        layers, heads = facts["coordinates"][LAYER], facts["coordinates"][HEAD]
        texts, each = facts["texts"], len(layers) * len(heads)
        cells = {key: numpy.repeat(numpy.array([_clean(text[key]) for text in texts], dtype=object), each) for key, _ in _ROW}
        cells[LAYER] = numpy.tile(numpy.repeat(layers, len(heads)), len(texts))
        cells[HEAD] = numpy.tile(heads, len(texts) * len(layers))
        schema = pyarrow.schema([*_ROW, *_PLACE, *((name, pyarrow.float32()) for name in columns)])
        made = [pyarrow.array(values, kind.type) for values, kind in zip((cells | columns).values(), schema, strict=True)]
        if self.writer is None:
            self.writer = pyarrow.parquet.ParquetWriter(self.file, schema, compression="zstd")
        self.writer.write_table(pyarrow.Table.from_arrays(made, schema=schema))

    def close(self) -> None:
        """Write the end of the file, of one without rows as well."""
        if self.writer is None:
            self.writer = pyarrow.parquet.ParquetWriter(self.file, pyarrow.schema([*_ROW, *_PLACE]), compression="zstd")
        self.writer.close()


@contextmanager
def table(place: Place) -> Iterator[Table]:
    """The table `texts.parquet` in `place`, there as soon as it is whole."""
    with place.stream(TABLE) as file:
        made = Table(file)
        try:
            yield made
        finally:
            made.close()


def write_rejected(place: Place, rows: list[dict[str, Any]]) -> None:
    """Write `rejected.parquet`: number, name and reason of every row that was not analysed."""
    columns = {name: [_clean(row[name]) for row in rows] for name in _REJECTED.names}
    with place.stream(REJECTED) as file:
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=_REJECTED), file)


def _columns(arrays: dict[str, NDArray], dims: dict[str, list[str]], coordinates: dict[str, list[Any]]) -> Iterator[tuple[str, NDArray]]:
    for name, names in dims.items():
        inner = [dim for dim in names if dim not in (LAYER, HEAD)]
        if not name.startswith(KEPT) or names[-2:] != [LAYER, HEAD] or name.endswith("_by_category"):
            continue
        values = arrays[name].reshape(len(arrays[name]), -1, *arrays[name].shape[-2:])
        labels = [()]
        for dim in inner:
            labels = [(*before, str(value)) for before in labels for value in coordinates[dim]]
        for number, label in enumerate(labels):
            yield "_".join((name, *label)), values[:, number].reshape(-1)


def _clean(value: Any) -> Any:
    """Names that are no Unicode (lone surrogates of undecodable bytes) are written escaped."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
