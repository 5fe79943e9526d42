"""Story <-> file: written beside its destination and then renamed, so that a half-written Story never has the name."""

import os
import secrets
import shutil
from pathlib import Path

import xarray

from glocal.errors import StoryError
from glocal.results.schema import check, check_version
from glocal.results.zarr_folder import METADATA, damaged, holds_only_a_story, marked, read, write

SUFFIX = ".zarr"


def save(story: xarray.Dataset, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the Story to the folder `path`, whose name ends in .zarr, and return that path; it appears whole or not at all.

    `overwrite` replaces a Story and nothing else. Raises `StoryError` for what `check` and `check_destination` refuse, and where
    writing fails.
    """
    path = Path(path)
    check(story)
    check_destination(path, overwrite=overwrite)
    # A link stays a link: what it points to is replaced.
    final = path.resolve()
    written, replaced = (final.parent / f".glocal-{secrets.token_hex(8)}.{kind}" for kind in ("new", "old"))
    try:
        write(story, written)
        check_destination(path, overwrite=overwrite)
        _swap(written, final, replaced)
    except OSError as error:
        raise StoryError(
            "The Story cannot be written.", asked=path, found=error, do="check free space and rights, or save to another folder"
        ) from error
    finally:
        shutil.rmtree(written, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)
    return path


def open_story(path: str | os.PathLike[str]) -> xarray.Dataset:
    """The Story in the folder `path`, read into memory and identical to the one saved; no file stays open.

    Raises `StoryError` where there is none, where it is damaged or not a Story, or where a newer glocal wrote it.
    """
    path = Path(path)
    _check_suffix(path)
    if not path.is_dir():
        raise StoryError("There is no such Story.", asked=path, found="a file" if path.exists() else "nothing", do="check the path")
    attributes = marked(path)
    if attributes is None:
        raise StoryError(
            "This folder is not a Story.",
            asked=path,
            found=_listing(path),
            allowed=f"a folder written by `glocal.save`, with {METADATA}",
            do="check the path",
        )
    check_version(attributes)
    story = read(path)
    try:
        check(story)
    except StoryError as error:
        raise damaged(path, error.problem) from error
    return story


def check_destination(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Raise `StoryError` unless a Story can be saved to `path`; call it before a long computation."""
    path = Path(path)
    _check_suffix(path)
    if not path.parent.is_dir():
        raise StoryError("The folder for the Story does not exist.", asked=path, found=f"no folder {path.parent}", do="make it first")
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise StoryError(
            "There is something at this path already.",
            asked=path,
            found=_kind(path),
            do="choose another path, or pass overwrite=True (--overwrite) to replace a Story",
        )
    if not (path.is_dir() and holds_only_a_story(path)):
        raise StoryError(
            "Only a Story is overwritten, and there is something else at this path.",
            asked=path,
            found=_kind(path),
            allowed="a folder that holds one Story and nothing else",
            do="choose another path, or remove it yourself",
        )


def _check_suffix(path: Path) -> None:
    if path.suffix != SUFFIX:
        raise StoryError(
            "Stories are not stored in NetCDF." if path.suffix == ".nc" else "The ending of the path does not say that it is a Story.",
            asked=path,
            found=f"ending {path.suffix!r}",
            allowed=SUFFIX,
            do=f"use {(path.stem or 'story') + SUFFIX}",
        )


def _swap(written: Path, final: Path, replaced: Path) -> None:
    """Give `written` the name `final`; what had it is kept as `replaced` until that has worked."""
    if final.exists():
        final.rename(replaced)
    try:
        written.rename(final)
    except BaseException:
        if replaced.exists():
            replaced.rename(final)
        raise


def _kind(path: Path) -> str:
    if path.is_dir():
        return _listing(path)
    return "a file" if path.exists() else "a link to nothing"


def _listing(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    return f"a folder with {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}" if names else "an empty folder"
