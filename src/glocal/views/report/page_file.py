"""Story or Study -> one self-contained HTML file, whole or not there."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import xarray

from glocal.errors import StoryError
from glocal.files import write_whole
from glocal.views.report.story_page import render
from glocal.views.report.study_page import render_study

# What every page of glocal has near its beginning.
MARK = b'<meta name="generator" content="glocal'


def report(story: Any, path: str | os.PathLike[str], *, overwrite: bool = True) -> Path:
    """Write the report of a Story, or of a Study, to `path` (.html, UTF-8, whole or not at all) and return the path.

    `overwrite` replaces a page that glocal wrote, and nothing else. Raises `StoryError` for what is neither, for a Story whose sources are
    groups, which this page cannot draw yet, and where nothing can be written; `StudyError` for a Study of another version.
    """
    path = Path(path)
    page = render_study(story) if isinstance(story, xarray.Dataset) and "study_schema" in story.attrs else render(story)
    check_page(path, overwrite=overwrite)
    try:
        write_whole(path, page.encode("utf-8"))
    except OSError as error:
        raise StoryError(
            "The report cannot be written.", asked=path, found=error, do="choose a folder that exists and can be written"
        ) from error
    return path


def check_page(path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Raise `StoryError` unless a report can be written to `path`; call it before a long computation."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise StoryError(
            "The ending of the path does not say that it is a page.",
            asked=path,
            found=f"ending {path.suffix!r}",
            allowed=".html",
            do=f"use {(path.stem or 'story') + '.html'}",
        )
    if not path.parent.is_dir():
        raise StoryError("The folder for the report does not exist.", asked=path, found=f"no folder {path.parent}", do="make it first")
    if os.path.lexists(path) and not (overwrite and path.is_file() and _is_ours(path)):
        raise StoryError(
            "There is something at this path already.",
            asked=path,
            found="a folder" if path.is_dir() else "a page of glocal" if _is_ours(path) else "a file that glocal did not write",
            allowed="a page that glocal wrote is replaced, with overwrite=True (the default)",
            do="choose another path, or remove it yourself",
        )


def _is_ours(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return MARK in file.read(4096)
    return False
