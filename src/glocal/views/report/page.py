"""Story -> one self-contained HTML file: no network, strict content policy, text from users is data."""

import base64
import hashlib
import html
import json
import os
import secrets
from importlib import resources
from pathlib import Path
from typing import Any

import xarray

from glocal.errors import StoryError
from glocal.views.figures.payload import payload


def report(story: xarray.Dataset, path: str | os.PathLike[str], *, overwrite: bool = True) -> Path:
    """Write the report of a Story to `path` (UTF-8, whole or not at all) and return the path.

    Raises `StoryError` where nothing can be written there.
    """
    path = Path(path)
    if path.exists() and not (overwrite and path.is_file()):
        raise StoryError("There is something at this path already.", asked=path, do="choose another path")
    page = render(story)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        unfinished.write_text(page, encoding="utf-8", newline="\n")
        unfinished.replace(path)
    except OSError as error:
        raise StoryError(
            "The report cannot be written.", asked=path, found=error, do="choose a folder that exists and can be written"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def render(story: xarray.Dataset) -> str:
    """The report as a text."""
    data = payload(story)
    style, script = _file("explorer.css"), _file("explorer.js")
    return (
        _file("page.html")
        .replace("{{policy}}", _policy(style, script))
        .replace("{{style}}", style)
        .replace("{{script}}", script)
        .replace("{{title}}", html.escape(data["text"][:60] or "ids"))
        .replace("{{words}}", html.escape(data["words"]))
        .replace("{{table}}", _table(data))
        .replace("{{data}}", embedded(data))
    )


def embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end a script element, begin a comment, or break a line of old parsers."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(style: str, script: str) -> str:
    return f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def _file(name: str) -> str:
    return resources.files("glocal.views.report").joinpath(name).read_text(encoding="utf-8")


def _table(data: dict[str, Any]) -> str:
    """The first statistic as a plain table, for readers without scripts."""
    if not data["statistics"]:
        return ""
    first = data["statistics"][0]
    heads = data["heads"] or [""]
    head = "".join(f"<th scope=col>{html.escape(f'head {number}' if number else 'all')}</th>" for number in heads)
    rows = "".join(
        f"<tr><th scope=row>layer {layer}</th>{''.join(f'<td>{_number(value)}</td>' for value in row)}</tr>"
        for layer, row in zip(data["layers"], first["grid"], strict=True)
    )
    unit = f" ({first['unit']})" if first["unit"] else ""
    caption = html.escape(f"{first['label']}{unit}, mean over targets")
    return f"<table><caption>{caption}</caption><tr><td></td>{head}</tr>{rows}</table>"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
