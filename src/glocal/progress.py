"""A progress bar on anything over two seconds, on a terminal; silent in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Choice = bool | Callable[[int, int], None] | None

LONG = 2.0  # seconds


@contextmanager
def tracker(choice: Choice, steps: int, seconds: float, what: str) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many steps were done; `what` names the work with its estimate.

    `choice`: None shows a bar if the estimate is long and the error stream is a terminal; True and False force it; a function gets
    (done, total).
    """
    if callable(choice):
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            choice(done, steps)

        yield advance
        return
    if not (choice if choice is not None else seconds > LONG and sys.stderr.isatty()):
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=steps)
        yield lambda count: progress.advance(task, count)
