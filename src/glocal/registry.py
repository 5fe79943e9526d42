"""Name -> function, found by scanning a folder: one file, one function of the same name, one card.

Names come from file names, so that `glocal --help` can list them without importing torch.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.errors import ChoiceError

_ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Card:
    """What a table of choices says about one function."""

    summary: str
    source: str  # paper and equation, or "glocal"
    needs: str = ""
    cost: str = ""
    limits: str = ""
    default: bool = False
    extra: tuple[tuple[str, Any], ...] = ()


def registered(**card: Any) -> Callable[[Callable], Callable]:
    """Attach a `Card` to a function; the folder scan finds it by its file's name."""

    def attach(function: Callable) -> Callable:
        function.card = Card(**card)  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return attach


def names(folder: str) -> tuple[str, ...]:
    """Names registered in `folder` ("methods", "measures", "patterns"), sorted, without importing them."""
    modules = pkgutil.iter_modules([str(_ROOT / folder)])
    return tuple(sorted(module.name for module in modules if not module.name.startswith("_")))


def get(folder: str, choice: str | Callable) -> Callable:
    """The function called `choice`, or `choice` itself if it is a function already.

    Raises `ChoiceError` for a name that no file in the folder has.
    """
    if callable(choice):
        return choice
    if choice not in names(folder):
        raise ChoiceError(
            f"There is no {folder.rstrip('s')} called {choice!r}.",
            asked=choice,
            allowed=", ".join(names(folder)),
            do=f"choose one of these, or pass a function; `glocal {folder}` describes them",
        )
    return getattr(importlib.import_module(f"glocal.{folder}.{choice}"), choice)


def check_options(folder: str, choice: str | Callable, options: Mapping[str, Any]) -> None:
    """Raise `ChoiceError` for an option that the function called `choice` does not have."""
    parameters = inspect.signature(get(folder, choice)).parameters.values()
    if not options or any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ChoiceError(
                f"{name_of(choice)} has no option {option!r}.",
                asked=f"{folder}={{{name_of(choice)!r}: {dict(options)!r}}}",
                allowed=", ".join(known) or "no options",
                do="choose one of these",
            )


def name_of(choice: str | Callable) -> str:
    """The name under which the results of `choice` appear."""
    return choice if isinstance(choice, str) else getattr(choice, "__name__", type(choice).__name__)


def cards(folder: str) -> dict[str, Card]:
    """All cards of a folder, by name."""
    return {name: getattr(get(folder, name), "card") for name in names(folder)}  # noqa: B009
