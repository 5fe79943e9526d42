"""Variables of a Study -> a table with one row per value, and a few words about them."""

from typing import Any

import numpy
import pandas
import xarray

from glocal.dims import HEAD, LAYER, OFFSET, SOURCE_LAYER
from glocal.errors import StudyError
from glocal.views.figures.facts import counted
from glocal.views.figures.measures import PREFIX, Measure, measure_of

_WHOLE = (LAYER, HEAD, SOURCE_LAYER, OFFSET, "depth")
_WORDS = {
    "self": "own token",
    "previous": "previous token",
    "next": "next token",
    "first_special": "first special token",
    "separator": "separators",
    "special": "special tokens",
    "word": "words",
    "other": "other tokens",
}
# The version of the Study that these views know.
_SCHEMA = 1
INTERVAL = "95\N{NO-BREAK SPACE}% intervals, bootstrap over texts"


def check_study(study: Any) -> None:
    """Raise `StudyError` unless `study` is a summary of a corpus that this glocal can show."""
    found = f"study_schema={study.attrs.get('study_schema')!r}" if isinstance(study, xarray.Dataset) else f"a {type(study).__name__}"
    if found != f"study_schema={_SCHEMA}":
        raise StudyError(
            "This is not a Study that can be shown.",
            found=found,
            allowed=f"an xarray.Dataset with study_schema={_SCHEMA}",
            do="pass what `glocal.study` returned, or what `glocal.open` gives for its folder",
        )


def tidy(*arrays: tuple[str, xarray.DataArray, xarray.DataArray | None, xarray.DataArray | None]) -> pandas.DataFrame:
    """(variable, values, low, high) -> columns `variable`, one per dimension, `value`, `low` and `high`; undefined values have no row."""
    frames = []
    for name, values, low, high in arrays:
        frame = values.rename("value").reset_coords(drop=True).to_series().reset_index()
        frame.insert(0, "variable", name)
        for column, bound in (("low", low), ("high", high)):
            frame[column] = numpy.nan if bound is None else bound.transpose(*values.dims).values.reshape(-1)
        frames.append(frame[frame["value"].notna()])
    table = pandas.concat(frames, ignore_index=True)
    for column in _WHOLE:
        if column in table:
            table[column] = table[column].astype("Int64")
    last = ["value", "low", "high"]
    return table.loc[:, [column for column in table if column not in last] + last]


def of(study: xarray.Dataset, name: str) -> tuple[str, xarray.DataArray, xarray.DataArray | None, xarray.DataArray | None]:
    """The variable `name` as `tidy` takes it, with its interval where it has one."""
    low, high = (study.get(f"{name}_{bound}") for bound in ("low", "high"))
    return name, study[name], low, high


def intervals(study: xarray.Dataset, name: str, *dims: str) -> xarray.Dataset:
    """`value`, `low` and `high` of a variable, with its dimensions in this order."""
    _, values, low, high = of(study, name)
    undefined = xarray.full_like(values, numpy.nan)
    found = {"value": values, "low": undefined if low is None else low, "high": undefined if high is None else high}
    return xarray.Dataset({key: array.transpose(*dims) for key, array in found.items()})


def measures(study: xarray.Dataset) -> list[Measure]:
    """The measures whose discrepancies the Study holds."""
    names = [str(name) for name, variable in study.data_vars.items() if set(variable.dims) == {LAYER, HEAD}]
    return [measure_of(study, name.removeprefix(PREFIX)) for name in names if name.startswith(PREFIX) and f"{name}_over_heads" in study]


def worded(name: str) -> str:
    """A pattern or category as a reader calls it."""
    return _WORDS.get(name, name.replace("_", " "))


def texts(study: xarray.Dataset, name: str) -> str:
    """`40 texts`, or `38 to 40 texts` where not every value has all of them."""
    if f"{name}_count" not in study:
        return counted(int(study.attrs["texts"]), "text")
    counts = study[f"{name}_count"].values
    known = counts[counts > 0]
    if not known.size:
        return "no text"
    fewest, most = int(known.min()), int(known.max())
    return counted(most, "text") if fewest == most else f"{fewest:,} to {counted(most, 'text')}"


def layers(study: xarray.Dataset) -> list[int]:
    """The numbers of the layers."""
    return [int(layer) for layer in study[LAYER].values]


def with_unit(label: str, unit: str) -> str:
    """`label (unit)`; the label alone where there is no unit."""
    return f"{label} ({unit})" if unit and unit != "none" else label


def titled(label: str) -> str:
    """`label` as the beginning of a sentence."""
    return label[:1].upper() + label[1:]
