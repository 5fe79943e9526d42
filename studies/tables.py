"""Tables of a Study in Markdown, as docs/real_study/tables.md shows them."""

import math

import numpy as np
import xarray


def tables(name: str, study: xarray.Dataset) -> str:
    """By layer: discrepancy, own-token share, separators, agreement; then the ladder, survival, and how alike head maps are."""
    attributes = study.attrs
    head = f"## {name}\n\n{attributes['texts']:,} texts, {attributes['tokens']:,} tokens, {len(attributes['rejected'])} rejected; "
    size = f"{study.sizes['layer']} layers x {study.sizes['head']} heads"
    head += f"{attributes['settings']['family']}, {size}. Means over heads, 95 % intervals.\n"
    parts = [head, _by_layer(study)]
    if "ladder_jsd" in study:
        parts.append(_ladder(study))
    parts.append(_survival(study))
    mantel = attributes.get("mantel")
    if mantel:
        found = f"Spearman {mantel['correlation']:.2f} (Mantel, p = {mantel['p']:.3f})"
        parts.append(f"Distances between heads, attention's with attribution's: {found}.\n")
    return "\n".join(parts)


def _by_layer(study: xarray.Dataset) -> str:
    columns = {"JSD, nats": _with_interval(study, "discrepancy_jsd_over_heads"), "noise adds": _plain(study["bias_jsd_over_heads"])}
    if "discrepancy_spearman_over_heads" in study:
        columns["Spearman"] = _with_interval(study, "discrepancy_spearman_over_heads")
    for name, where, label in (
        ("own_share", {}, "own token"),
        ("category_mass", {"pattern": "separator"}, "separators"),
        ("category_mass", {"pattern": "first_special"}, "first special"),
        ("category_mass", {"pattern": "previous"}, "previous"),
    ):
        found = study[f"{name}_over_heads"].sel(where)
        columns[label] = [" → ".join(f"{value:.1%}" for value in values) for values in found.transpose("layer", "map").values]
    columns["same dominant pattern"] = [f"{value:.0%}" for value in study["dominant_agreement"].values]
    for name, label in (("hidden_own_share", "hidden: own token"), ("hidden_other_largest", "hidden: another largest")):
        if name in study:
            columns[label] = [f"{value:.1%}" for value in study[name].values]
    return _table("layer", study["layer"].values.tolist(), columns) + "\n*a → b*: attention → attribution.\n"


def _ladder(study: xarray.Dataset) -> str:
    """Rows are layers, columns the layer whose input is attributed to."""
    values = study["ladder_jsd_over_heads"].transpose("layer", "source_layer")
    columns = {
        f"input of {source + 1}": ["" if np.isnan(row[number]) else f"{row[number]:.3f}" for row in values.values]
        for number, source in enumerate(study["source_layer"].values.tolist())
    }
    return "JSD with the attribution to the input of a layer below:\n\n" + _table("layer", study["layer"].values.tolist(), columns)


def _survival(study: xarray.Dataset) -> str:
    rows = []
    for pattern in study["pattern"].values.tolist():
        here = study.sel(pattern=pattern)
        known = here["survival_heads"].values > 0
        layers, heads, share = (each.values[known] for each in (here["layer"], here["survival_heads"], here["survival_p"]))
        kept = [_kept(*each, study.sizes["head"]) for each in zip(layers, heads, share, strict=True)]
        last = "-"
        if len(layers):
            mass, shuffled = (here[name].values[known][-1] for name in ("survival", "survival_expected"))
            last = f"{layers[-1]}: {mass:.1%} (shuffled {shuffled:.1%})"
        value, low, high = (here[f"mass_correlation{end}"].values[-1] for end in ("", "_low", "_high"))
        alike = f"{value:+.2f} ({low:+.2f} to {high:+.2f})" if np.isfinite(value) else "-"
        rows.append((pattern, ", ".join(map(str, layers.tolist())) or "none", ", ".join(filter(None, kept)) or "none", last, alike))
    head = (
        "pattern",
        "dominant in the attention of heads in layers",
        "with more attribution mass than shuffled",
        "last such layer",
        "last layer: correlation over heads",
    )
    note = "\n*More than shuffled*: p < 0.05, or the smallest p there is for so few heads (in brackets).\n"
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)) + "\n" + note


def _kept(layer: int, heads: float, share: float, of: int) -> str:
    """The layer, if its heads keep the pattern; no shuffle of `heads` among `of` can be rarer than one in all choices of them."""
    smallest = 1 / math.comb(of, int(heads))
    if share < 0.05:
        return f"{layer}"
    return f"{layer} (p = {share:.2f})" if share < 1.3 * smallest and smallest < 0.2 else ""


def _with_interval(study: xarray.Dataset, name: str) -> list[str]:
    ends = zip(*(study[name + end].values for end in ("", "_low", "_high")), strict=True)
    return [f"{value:.3f} ({low:.3f} to {high:.3f})" for value, low, high in ends]


def _plain(array: xarray.DataArray) -> list[str]:
    return [f"{value:+.4f}" for value in array.values]


def _table(first: str, rows: list[int], columns: dict[str, list[str]]) -> str:
    lines = [f"| {first} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {row} | {' | '.join(cells)} |" for row, *cells in zip(rows, *columns.values(), strict=True)]
    return "\n".join(lines) + "\n"
