"""What is asked of one text: checked once, then carried unchanged."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy
from torch import Tensor

from glocal.choices import ENGINES, FREEZES, NORMS, OF, PRECISIONS, REDUCED
from glocal.errors import ChoiceError
from glocal.models.explained import Explained
from glocal.models.observe import Pass, PreTrainedModel
from glocal.models.outputs import Origin, check_origin

Advance = Callable[[int], None]
_ERROR = 0.02


@dataclass(frozen=True)
class Request:
    """The arguments of `analyze`; positions are resolved once the text and the model are known."""

    of: str = "head"
    origin: str = "embedding_output"
    source_layer: int = 0
    freeze: tuple[str, ...] = ()
    norm: str = "frobenius"
    times_input: bool = False
    engine: str = "auto"
    probes: int | str | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    targets: tuple[int, ...] | None = None
    seed: int = 0
    memory: int = 4 << 30
    error: float = _ERROR
    time: float | None = 60.0
    precision: str | None = None
    groups: tuple[int, ...] | None = None  # the source of every token, once the text is known

    def __post_init__(self) -> None:
        one_of("of", self.of, OF)
        one_of("norm", self.norm, NORMS)
        one_of("engine", self.engine, ENGINES)
        if self.precision is not None:
            one_of("precision", self.precision, PRECISIONS)
        if self.precision == "bfloat16" and self.engine not in ("auto", "collapsed"):
            raise ChoiceError(
                "Only the collapsed engine carries bfloat16 next to a model in another type.",
                asked=f"precision='bfloat16', engine={self.engine!r}",
                allowed="engine='collapsed' or 'auto'",
                do="choose one of these, or pass a model loaded in bfloat16",
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise ChoiceError(
                "The seed cannot be used.",
                asked=f"seed={self.seed!r}",
                allowed="a whole number from 0 to 2**63 - 1",
                do="choose one of these",
            )
        if self.probes is not None and self.probes != "auto" and (type(self.probes) is not int or self.probes < 2):
            raise ChoiceError(
                "The number of probes cannot be used.",
                asked=f"probes={self.probes!r}",
                allowed='None (exact), a number of directions per source from 2 to the width of the model, or "auto"',
                do="choose one of these",
            )
        if self.probes == "auto" and self.engine == "reverse":
            raise ChoiceError(
                "The reverse engine does not choose its number of probes.",
                asked="probes='auto', engine='reverse'",
                allowed="probes=None (exact) or a number",
                do="choose one of these, or another engine",
            )
        if isinstance(self.error, bool) or not isinstance(self.error, int | float) or not 0 < self.error < 1:
            raise ChoiceError(
                "The error is out of range.",
                asked=f"error={self.error!r}",
                allowed="a mean total variation of a row between 0 and 1, such as 0.02",
                do="choose in this range, or probes=None for exact results",
            )
        if type(self.probes) is int and self.error != _ERROR:
            raise ChoiceError(
                "A fixed number of probes leaves no choice of the error.",
                asked=f"probes={self.probes}, error={self.error:g}",
                allowed='probes="auto" with error, or probes alone',
                do="leave out one of the two; the Story says how large the error is",
            )
        for kind in self.freeze:
            one_of("freeze", kind, FREEZES)

    def resolved(self, seen: Pass) -> "Request":
        """With layers, heads and targets in numbers; raises `ChoiceError` for those that the pass does not have."""
        check_origin(self.origin, self.source_layer, seen.layers)
        layers = chosen("layers", self.layers, self.source_layer + 1, seen.layers)
        heads = chosen("heads", self.heads, 1, seen.heads)
        last = len(seen.hidden[0]) - 1
        targets = None if self.targets is None else [t + last + 1 if -last - 1 <= t < 0 else t for t in self.targets]
        return replace(self, layers=layers, heads=heads, targets=chosen("targets", targets, 0, last))

    @property
    def reduced(self) -> bool:
        """Whether products may have fewer digits than the model's numbers."""
        return self.precision in REDUCED

    @property
    def start(self) -> Origin:
        """Where tangents enter."""
        return Origin(self.origin == "word", self.source_layer)


class Work(NamedTuple):
    """What every method gets: an instrumented model, its pass, the resolved request, and how to report progress."""

    model: PreTrainedModel
    seen: Pass
    request: Request
    track: Callable[[int, float, str], Any]  # (steps, seconds estimated, what) -> context manager giving Advance
    known: dict[Any, Any]  # what other texts of the same call have taught already
    explained: Explained | None = None  # the output that is explained, if one is
    special: tuple[bool, ...] = ()  # of every token, whether the tokenizer put it in


class Made(NamedTuple):
    """What a method gives back: variables by name, and facts for the Story's attributes."""

    variables: dict[str, Tensor]
    facts: dict[str, Any]


def one_of(argument: str, value: object, allowed: Sequence[str]) -> None:
    """Raise `ChoiceError` unless `value` is allowed for `argument`."""
    if value not in allowed:
        raise ChoiceError(
            f"{argument} cannot be {value!r}.",
            asked=f"{argument}={value!r}",
            allowed=", ".join(allowed),
            do="choose one of these",
        )


def chosen(argument: str, value: Sequence[int] | None, first: int, last: int) -> tuple[int, ...]:
    """`value` sorted and without repeats, or all from `first` to `last`; raises `ChoiceError` outside that range."""
    if value is None:
        return tuple(range(first, last + 1))
    outside = [number for number in value if isinstance(number, bool) or not isinstance(number, int) or not first <= number <= last]
    if outside or not len(value):
        raise ChoiceError(
            f"{argument} has {'no entry' if not outside else 'an entry that does not exist'}.",
            asked=f"{argument}={list(value)}",
            allowed=f"{first} to {last}" + (" (layers and heads count from 1)" if first else " (negative positions count from the end)"),
            do="choose among these",
        )
    return tuple(sorted(set(value)))


def seconds_of(time: str | float | None) -> float | None:
    """Seconds, or a text such as "90s" or "5min" -> seconds; None is no limit; raises `ChoiceError`."""
    if time is None or str(time).strip().lower() == "none":
        return None
    if isinstance(time, int | float) and not isinstance(time, bool) and time > 0:
        return float(time)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(s|min|h)?\s*", str(time))
    if not isinstance(time, str) or match is None:
        raise ChoiceError(
            "The time budget cannot be read.",
            asked=f"time={time!r}",
            allowed='seconds, "90s", "5min", "2h", or None for no limit',
            do="pass one of these",
        )
    return float(match[1]) * {None: 1, "s": 1, "min": 60, "h": 3600}[match[2]]


def listed(argument: str, value: Any, kinds: str) -> tuple[Any, ...]:
    """The entries of `value`; a single text or number would be taken apart or fail later, so it raises `ChoiceError`."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ChoiceError(
            f"{argument} must be a list.",
            asked=f"{argument}={value!r}",
            allowed=f"a list or tuple of {kinds}",
            do=f"leave {argument} out" if value is None else f"pass {argument}=[{value!r}]",
        )
    return tuple(value)


def numbers(argument: str, value: Any) -> tuple[int, ...] | None:
    """Whole numbers, those of numpy as well; None is all. What is none of them is kept for `chosen` to refuse."""
    if value is None:
        return None
    whole = lambda each: int(each) if isinstance(each, numpy.integer) else each  # noqa: E731
    return tuple(whole(each) for each in listed(argument, value, "whole numbers"))


_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}


def bytes_of(memory: str | int | float) -> int:
    """A number of bytes, or a text such as "4GiB" or "500 MB" -> bytes; raises `ChoiceError`."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", str(memory))
    if isinstance(memory, bool) or match is None or match[2].lower() not in _UNITS or match[1].count(".") > 1 or match[1] == ".":
        raise ChoiceError(
            "The memory budget cannot be read.",
            asked=f"memory={memory!r}",
            allowed='a number with a unit: "512MiB", "4GiB", "2 GB"',
            do="pass one of these",
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])
