"""Scores of tokens for an output, as a table that needs no script."""

import html
from typing import Any


def output_section(data: dict[str, Any]) -> str:
    """A row per token and, by method, its score with a bar to the left (below zero) or the right; empty without such methods."""
    columns = data["outputs"]["columns"]
    if not columns:
        return ""
    head = "".join(f"<th scope=col>{html.escape(each['name'])}<small>{html.escape(each['unit'])}</small></th>" for each in columns)
    rows = "".join(
        f'<tr><th scope=row dir="auto">{html.escape(token["shown"])}</th>{"".join(_cell(each, place) for each in columns)}</tr>'
        for place, token in enumerate(data["tokens"])
    )
    said = " ".join(f"{each['name']}: {each['facts']}." for each in columns if each["facts"])
    return (
        '<section class="outputs" aria-label="what the output depends on"><h2>What the output depends on</h2>'
        f'<p class="hint">{html.escape(data["outputs"]["statement"])} Bars are scaled by method; a negative score speaks against.</p>'
        f'<div class="scroll"><table><tr><td></td>{head}</tr>{rows}</table></div><p class="hint">{html.escape(said)}</p></section>'
    )


def _cell(column: dict[str, Any], place: int) -> str:
    value = column["values"][place]
    if value is None:
        return "<td>undefined</td>"
    length = 50 * abs(value) / column["largest"] if column["largest"] else 0.0
    start, kind = (50.0, "for") if value >= 0 else (50 - length, "against")
    bar = f'<rect class="{kind}" x="{start:.1f}" width="{length:.1f}" height="6"/>'
    return f'<td>{value:.4g}<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">{bar}</svg></td>'
