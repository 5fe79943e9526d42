"""A Study, and what differs between two, on the terminal and as JSON."""

from typing import Any

import numpy
import pandas
import xarray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glocal.dims import HEAD, LAYER, MAP, PATTERN
from glocal.views.figures import facts
from glocal.views.figures.visible import visible
from glocal.views.plots.tidy import check_study, measures
from glocal.views.study_words import sentences, verdict
from glocal.views.terminal import finite

FEW = 5
_SUFFIXES = ("", "_se", "_low", "_high", "_p", "_q")


def summary(study: xarray.Dataset, console: Console) -> None:
    """Print the discrepancies with intervals, shares of both maps by layer, and what they say; texts are never read as markup."""
    check_study(study)
    say = lambda text, style="": console.print(Text(text, style=style), soft_wrap=True)  # noqa: E731
    attributes = study.attrs
    counts = [facts.counted(attributes["texts"], "text"), facts.counted(attributes["tokens"], "token")]
    say(f"{visible(str(attributes['settings'].get('model')))}: {', '.join(counts)}, {len(attributes['rejected']):,} rejected", "bold")
    for row in attributes["rejected"][:FEW]:
        say(f"! row {row['number']}: {visible(row['reason'])}", "yellow")
    if len(attributes["rejected"]) > FEW:
        say(f"! and {len(attributes['rejected']) - FEW:,} more, in rejected.parquet", "yellow")
    console.print()
    say("Means over heads, ± half a 95 % interval (bootstrap over texts); shares of attention → attribution", "dim")
    console.print(_layers(study))
    console.print()
    say(verdict(study))
    say(sentences(study))
    probes = attributes["settings"].get("options", {}).get("probes")
    sketch = f"Attribution is a sketch of {probes} directions per source; bias_<measure> says how far its noise moves a discrepancy."
    say("Exact attribution." if probes is None else sketch, "dim")


def _layers(study: xarray.Dataset) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(Text("layer"), justify="right", no_wrap=True)
    columns: list[list[str]] = []
    for measure in measures(study):
        name = f"discrepancy_{measure.name}_over_heads"
        head = f"{visible(measure.name)}, {visible(measure.unit)}" if measure.unit else visible(measure.name)
        table.add_column(Text(head), justify="right", no_wrap=True)
        columns.append([_interval(*row) for row in zip(*(study[name + end].values for end in ("", "_low", "_high")), strict=True)])
    shares = [("own_share", {}, "own token"), ("category_mass", {PATTERN: "separator"}, "separators")]
    for name, where, label in shares:
        found = study[f"{name}_over_heads"].sel(where).transpose(MAP, LAYER)
        table.add_column(Text(label), justify="right", no_wrap=True)
        columns.append([" → ".join(map(_percent, values)) for values in found.values.T])
    for row in zip(study[LAYER].values.tolist(), *columns, strict=True):
        table.add_row(*map(str, row))
    return table


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.3f} ± {(high - low) / 2:.3f}" if numpy.isfinite(value) else "undefined"


def _percent(value: float) -> str:
    return f"{value:.1%}" if numpy.isfinite(value) else "undefined"


def as_json(study: xarray.Dataset) -> dict[str, Any]:
    """Statistics by layer (means over heads) with their companions, counts and settings; what is not finite is null."""
    check_study(study)
    by_layer = {
        str(name): {"dimensions": list(map(str, array.dims)), "unit": array.attrs.get("unit", ""), "values": finite(array.values)}
        for name, array in study.data_vars.items()
        if HEAD not in array.dims
    }
    coordinates = {str(name): values.values.tolist() for name, values in study.coords.items()}
    return {"coordinates": coordinates, "by_layer": by_layer, "attributes": finite(study.attrs)}


def comparison_table(found: xarray.Dataset) -> pandas.DataFrame:
    """One row per difference: statistic, where (map, pattern, layer, head), difference, standard error, interval, p and q."""
    frames = []
    for name in _statistics(found):
        arrays = {suffix.lstrip("_") or "difference": found[name + suffix] for suffix in _SUFFIXES}
        if not found[name].dims:
            frames.append(pandas.DataFrame([{"statistic": name} | {key: array.item() for key, array in arrays.items()}]))
            continue
        frame = pandas.DataFrame({key: array.to_series() for key, array in arrays.items()}).reset_index()
        frame.insert(0, "statistic", name)
        frames.append(frame)
    table = pandas.concat(frames, ignore_index=True)
    last = [suffix.lstrip("_") or "difference" for suffix in _SUFFIXES]
    return table.loc[:, [column for column in table if column not in last] + last]


def comparison(found: xarray.Dataset) -> str:
    """The differences over everything, and of each statistic how many are significant after correction."""
    first, second = found.attrs["first"], found.attrs["second"]
    how = f"{facts.counted(found.attrs['texts'], 'text')} in pairs" if found.attrs["paired"] else "as independent samples"
    lines = [f"{visible(second['model'])} ({visible(second['study'])}) minus {visible(first['model'])} ({visible(first['study'])}), {how}"]
    for name in _statistics(found):
        values = found[name]
        if name.endswith("_overall"):
            for place in numpy.ndindex(values.shape):
                where = " ".join(str(values[dim].values[index]) for dim, index in zip(values.dims, place, strict=True))
                low, high, q = (float(found[f"{name}_{end}"].values[place]) for end in ("low", "high", "q"))
                label = f"{name.removesuffix('_overall')} {where}".strip()
                lines.append(f"{visible(label):44} {float(values.values[place]):+.4f} [{low:+.4f}, {high:+.4f}]  q={q:.2g}")
    for name in _statistics(found):
        if HEAD in found[name].dims:
            q = found[f"{name}_q"].values
            lines.append(f"{visible(name)}: {int((q < 0.05).sum()):,} of {int(numpy.isfinite(q).sum()):,} values differ (q < 0.05)")
    return "\n".join(lines)


def _statistics(found: xarray.Dataset) -> list[str]:
    return [str(name) for name in found.data_vars if f"{name}_q" in found]
