"""What arguments of the command line may be: texts -> values, with an error that argparse shows."""

import argparse
from typing import Any

from glocal import registry


def choices_of(folder: str) -> str:
    """The registered names, for a help text."""
    return ", ".join(registry.names(folder))


def names_of(folder: str) -> Any:
    """A parser of registered names separated by commas."""

    def parse(value: str) -> tuple[str, ...]:
        names = listed(value)
        for name in names:
            if name not in registry.names(folder):
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {choices_of(folder)}")
        return names

    return parse


def probes(value: str) -> int | str:
    """A number, or "auto"."""
    if value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is neither a number nor auto") from None


def groups(value: str) -> str | tuple[int, ...]:
    """A kind of groups, or a number for every token."""
    if value in ("word", "sentence", "segment"):
        return value
    try:
        return tuple(int(part) for part in listed(value))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is neither word, sentence, segment nor a number for every token: 0,1,1,2") from None


def shares(value: str) -> tuple[float, ...]:
    """Numbers between commas."""
    try:
        return tuple(float(part) for part in listed(value))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is no list of shares such as 0.1,0.2") from None


def listed(value: str) -> tuple[str, ...]:
    """The parts between commas."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def ranges(value: str) -> tuple[int, ...]:
    """'1,3-5' -> (1, 3, 4, 5)."""
    numbers: list[int] = []
    for part in listed(value):
        first, dash, last = part.partition("-") if not part.startswith("-") else (part, "", "")
        try:
            numbers += range(int(first), int(last) + 1) if dash else [int(first)]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is neither a number nor a range such as 3-5") from None
        if dash and int(last) < int(first):
            raise argparse.ArgumentTypeError(f"{part!r} runs backwards; the smaller number comes first, as in 3-5")
    return tuple(numbers)
