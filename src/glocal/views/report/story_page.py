"""Story -> one self-contained HTML file: no network, strict content policy, text from users is data."""

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

from glocal.errors import StoryError
from glocal.results.schema import check
from glocal.views.figures.payload import payload
from glocal.views.figures.visible import shortened
from glocal.views.report.output_table import output_section

# Longer texts get a smaller heading; all of them are below, token by token.
_LONG, _HEADING = 110, 320


def refuse_groups(groups: Any) -> None:
    """Raise `StoryError` unless sources are tokens."""
    if groups is not None:
        raise StoryError(
            "The report cannot draw sources that are groups of tokens yet.",
            asked=f"a Story with groups={groups!r}",
            allowed="Stories whose sources are tokens",
            do="analyse without groups; or plot story.attribution, which xarray does",
        )


def render(story: Any) -> str:
    """The report as a text; raises `StoryError` for what is not a Story, or has groups of tokens as sources."""
    check(story)
    refuse_groups(story.attrs["settings"].get("groups"))
    data = payload(story)
    style, script = packaged("explorer.css"), packaged("explorer.js")
    parts = {
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "title": html.escape(shortened(data["title"], 60)),
        "heading": _heading(data["title"]),
        "about": "".join(f"<li>{html.escape(each)}</li>" for each in data["about"]),
        "notes": _notes(data["notes"]),
        "verdict": html.escape(data["verdict"]),
        "figures": _figures(data["figures"]),
        "words": f'<p class="words" id="words">{html.escape(data["words"])}</p>' if data["words"] else "",
        "outputs": output_section(data),
        "table": _table(data),
        "facts": "".join(f"<dt>{html.escape(label)}</dt><dd>{html.escape(value)}</dd>" for label, value in data["facts"]),
        "data": embedded(data),
    }
    # One pass, so that a text that looks like a place holder stays a text.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], packaged("page.html"))


def _heading(title: str) -> str:
    return f'<h1 dir="auto"{" class=long" if len(title) > _LONG else ""}>{html.escape(shortened(title, _HEADING))}</h1>'


def embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end a script element, begin a comment, or break a line of old parsers."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{content_hash(style)}'; script-src '{content_hash(script)}'; base-uri 'none'; form-action 'none'"
    )


def content_hash(text: str) -> str:
    """The source that a content policy allows for exactly this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def packaged(name: str) -> str:
    """A file that lies beside this one."""
    return resources.files("glocal.views.report").joinpath(name).read_text(encoding="utf-8")


def _notes(notes: list[str]) -> str:
    if not notes:
        return ""
    return f'<ul class="notes" id="notes" role="note" aria-label="notes">{"".join(f"<li>{html.escape(note)}</li>" for note in notes)}</ul>'


def _figures(figures: list[dict[str, Any]]) -> str:
    return f'<div class="figures">{"".join(map(_figure, figures))}</div>'


def _figure(figure: dict[str, Any]) -> str:
    rows = "".join(
        f'<p class="{html.escape(name)}"><b>{_amount(value, unit)}</b> <span>{html.escape(name)}</span>{_meter(value, unit)}</p>'
        for name, value, unit in figure["values"]
    )
    return f"<div><h2>{html.escape(figure['label'])}</h2>{rows}</div>"


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "undefined"
    return (
        f"{value:.0%}" if unit == "share" and value >= 0.095 else f"{value:.1%}" if unit == "share" else f"{value:.3f} {html.escape(unit)}"
    )


def _meter(value: float | None, unit: str) -> str:
    """A bar as a picture: a style attribute would need a looser policy."""
    if unit != "share" or value is None:
        return ""
    return f'<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width="{100 * value:.1f}" height="6"/></svg>'


def _table(data: dict[str, Any]) -> str:
    """The first statistic as a plain table, for readers without scripts."""
    if not data["statistics"]:
        return ""
    first = data["statistics"][0]
    width = len(first["grid"][0])
    heads = [f"head {number}" for number in data["heads"]] if width == len(data["heads"]) else ["all heads"]
    head = "".join(f"<th scope=col>{head}</th>" for head in heads)
    rows = "".join(
        f"<tr><th scope=row>layer {layer}</th>{''.join(f'<td>{_number(value)}</td>' for value in row)}</tr>"
        for layer, row in zip(data["layers"], first["grid"], strict=True)
    )
    unit = f" ({first['unit']})" if first["unit"] else ""
    caption = html.escape(f"{first['label']}{unit}, mean over targets")
    return f'<div class="scroll"><table><caption>{caption}</caption><tr><td></td>{head}</tr>{rows}</table></div>'


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
