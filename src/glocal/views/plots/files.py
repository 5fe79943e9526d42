"""Study -> files: every plot in the formats asked for, and its numbers as a table."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import xarray

from glocal.dims import EXPLANATION
from glocal.errors import ChoiceError, StudyError
from glocal.files import write_whole
from glocal.views.plots.drawing import Plot, picture
from glocal.views.plots.evaluations import evaluation_plots
from glocal.views.plots.gallery import KINDS, available
from glocal.views.plots.tidy import check_study

FORMATS = ("pdf", "svg", "png")


def plot(
    study: Any,
    folder: str | os.PathLike[str],
    *,
    formats: Iterable[str] = FORMATS,
    names: Iterable[str] | None = None,
) -> list[Path]:
    """Write the plots of a Study, or of what `glocal.evaluate` returned, into `folder`, which is made if need be; return the paths.

    `names`: kinds ("discrepancy": one plot per measure) or single plots ("discrepancy_jsd"); all that the Study has by default.
    Each one is written as <name>.pdf, .svg and .png (those in `formats`), and its numbers as <name>.csv, one row per plotted value.
    The same Study gives the same bytes. Raises `ChoiceError` for a format or name that there is not, and `StudyError` where the Study
    has nothing for a plot asked for, is none, or nothing can be written there.
    """
    evaluated = isinstance(study, xarray.Dataset) and EXPLANATION in study.dims and "reference" in study.attrs
    if not evaluated:
        check_study(study)
    formats = _formats(formats)
    drawn = _chosen(evaluation_plots(study) if evaluated else available(study), names)
    folder = Path(folder)
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for draw in drawn:
            paths += _write(draw(), folder, formats)
    except OSError as error:
        raise StudyError(
            "The plots cannot be written.", asked=folder, found=error, do="choose a folder that can be written, or a path where none is"
        ) from error
    return paths


def _formats(formats: Iterable[str]) -> list[str]:
    asked = [formats] if isinstance(formats, str) else list(formats)
    if not asked or set(asked) - set(FORMATS):
        raise ChoiceError("This is not a format of plots.", asked=f"formats={asked!r}", allowed=", ".join(FORMATS), do="choose among these")
    return [each for each in FORMATS if each in asked]


def _chosen(found: dict[str, dict[str, Callable[[], Plot]]], names: Iterable[str] | None) -> list[Callable[[], Plot]]:
    if names is None:
        return [draw for kind in found.values() for draw in kind.values()]
    chosen: dict[str, Callable[[], Plot]] = {}
    singles = {name: draw for kind in found.values() for name, draw in kind.items()}
    for name in [names] if isinstance(names, str) else names:
        if name in found:
            chosen |= found[name]
        elif name in singles:
            chosen[name] = singles[name]
        elif name in KINDS:
            raise StudyError(
                f"The Study has nothing for the plot {name!r}.",
                asked=name,
                allowed=", ".join(singles) or "nothing",
                do="choose one of these; ladders and hidden vectors are in studies made with ladder=True and hidden=True",
            )
        else:
            allowed = ", ".join(dict.fromkeys([*found, *singles]))
            raise ChoiceError(f"There is no plot called {name!r}.", asked=name, allowed=allowed, do="choose among these")
    return list(chosen.values())


def _write(drawn: Plot, folder: Path, formats: list[str]) -> list[Path]:
    files = {kind: picture(drawn, kind) for kind in formats}
    files["csv"] = drawn.data.to_csv(index=False, lineterminator="\n").encode("utf-8")
    paths = {folder / f"{drawn.name}.{kind}": content for kind, content in files.items()}
    for path, content in paths.items():
        write_whole(path, content)
    return list(paths)
