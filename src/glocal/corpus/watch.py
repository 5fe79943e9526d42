"""How far a study is: a bar on a terminal, a line now and then in a pipe, and a file for machines."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from glocal.corpus.block import Done
from glocal.corpus.places import Place
from glocal.errors import GlocalError
from glocal.progress import Choice

STATUS = "status.json"
# Seconds between two lines in a pipe, and between two versions of the file.
_LINE, _FILE = 30.0, 1.0


class Watch:
    """Counts what is done; see `watching`."""

    def __init__(self, choice: Choice, place: Place, total: int | None):
        self.choice, self.place, self.total = choice, place, total
        self.begun = self.said = time.monotonic()
        self.written = 0.0
        self.rows = self.found = self.texts = self.tokens = self.rejected = 0
        self.bar: tuple[Progress, Any] | None = None

    def skipped(self, rows: int) -> None:
        """A block that was there already."""
        self.found += rows
        self._show("running")

    def finished(self, done: Done) -> None:
        """A block that has just been written."""
        self.rows += done.rows
        self.texts += done.texts
        self.tokens += done.tokens
        self.rejected += done.rejected
        self._show("running")

    def status(self, state: str) -> dict[str, Any]:
        """What `status.json` says."""
        seconds = time.monotonic() - self.begun
        rate = self.texts / seconds if self.texts else None
        left = None if self.total is None else max(0, self.total - self.rows - self.found)
        return {
            "state": state,
            "rows_done": self.rows + self.found,
            "rows_found_done": self.found,
            "rows_total": self.total,
            "texts": self.texts,
            "tokens": self.tokens,
            "rejected": self.rejected,
            "seconds": round(seconds, 3),
            "texts_per_second": rate,
            "tokens_per_second": self.tokens / seconds if self.texts else None,
            "seconds_left": None if rate is None or left is None else left * seconds / max(1, self.rows),
        }

    def close(self, state: str) -> None:
        """The last word."""
        with suppress(GlocalError):
            self.place.write(STATUS, json.dumps(self.status(state), indent=1).encode())

    def _show(self, state: str) -> None:
        now, status = time.monotonic(), self.status(state)
        if now - self.written >= _FILE:
            self.written = now
            self.place.write(STATUS, json.dumps(status, indent=1).encode())
        if callable(self.choice):
            self.choice(status["rows_done"], self.total or 0)
        elif self.bar is not None:
            self.bar[0].update(self.bar[1], completed=status["rows_done"], description=_line(status))
        elif self.choice is not False and now - self.said >= _LINE:
            self.said = now
            print(f"glocal: {_line(status)}", file=sys.stderr, flush=True)


def _line(status: dict[str, Any]) -> str:
    rate = (
        ""
        if status["texts_per_second"] is None
        else f", {status['texts_per_second']:.1f} texts/s, {status['tokens_per_second']:.0f} tokens/s"
    )
    total = "" if status["rows_total"] is None else f" of {status['rows_total']:,}"
    left = "" if status["seconds_left"] is None else f", {status['seconds_left']:.0f} s left"
    return f"study: {status['rows_done']:,}{total} rows{rate}{left}, {status['rejected']:,} rejected"


@contextmanager
def watching(choice: Choice, place: Place, total: int | None) -> Iterator[Watch]:
    """A `Watch` whose file ends with "done", "interrupted" or "failed"."""
    watch = Watch(choice, place, total)
    bar = not callable(choice) and (choice or (choice is None and sys.stderr.isatty()))
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    try:
        if bar:
            with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
                watch.bar = (progress, progress.add_task("study", total=total))
                yield watch
        else:
            yield watch
    except KeyboardInterrupt:
        watch.close("interrupted")
        raise
    except BaseException:
        watch.close("failed")
        raise
    watch.close("done")
