"""Sets of tokens taken away -> what the explained output does then: batched passes, every set once."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import torch

from glocal.choices import BINS, FRACTIONS, ROUNDINGS, SCALES
from glocal.errors import ChoiceError
from glocal.models.explained import Explained
from glocal.models.tokens import Tokens
from glocal.models.without import deleted, masked
from glocal.request import one_of

REPLACEMENTS = ("delete", "mask")
# Tokens and texts of one pass; a user's function may look at the scores of the vocabulary at every position.
_TOKENS, _TOKENS_OF_FUNCTION, _ROWS = 1 << 14, 1 << 11, 64


@dataclass(frozen=True)
class Perturbation:
    """Every choice that changes numbers."""

    replace: str = "delete"  # tokens are left out ("delete": positions are counted anew), or the mask token takes their place ("mask")
    special: bool = False  # whether special tokens may be taken away, too
    rounding: str = "ceil"  # of fractions of the tokens
    bins: tuple[float, ...] = BINS
    fractions: tuple[float, ...] = FRACTIONS
    scale: str = "output"  # the output as explained, its "logit" or its "probability"

    def __post_init__(self) -> None:
        one_of("replace", self.replace, REPLACEMENTS)
        one_of("rounding", self.rounding, ROUNDINGS)
        one_of("scale", self.scale, SCALES)
        for name in ("bins", "fractions"):
            found = getattr(self, name)
            if not found or list(found) != sorted(set(found)) or not all(0 < each <= 1 for each in found):
                raise ChoiceError(
                    f"These {name} cannot be used.",
                    asked=f"{name}={found!r}",
                    allowed="fractions above 0 up to 1, each larger than the one before",
                    do=f"pass such as {BINS}",
                )


class Outcome(NamedTuple):
    """The output without some tokens, and whether its choice is still the most likely one (None where it is no choice)."""

    value: float
    right: bool | None


def removable(tokens: Tokens, explained: Explained, *, special: bool) -> list[int]:
    """Positions that may be taken away: never the one that the output is read at."""
    return [place for place, word in enumerate(tokens.word) if (special or word >= 0) and place != explained.place]


def outcomes(
    explained: Explained, tokens: Tokens, gone: Collection[frozenset[int]], perturbation: Perturbation
) -> dict[frozenset[int], Outcome]:
    """Outcome of every set of positions; NaN of a text of which nothing is left. The model must be instrumented."""
    delete = perturbation.replace == "delete"
    found: dict[frozenset[int], Outcome] = {}
    by_length: dict[int, list[frozenset[int]]] = defaultdict(list)
    for some in sorted(set(gone), key=sorted):
        by_length[len(tokens) - len(some) if delete else len(tokens)].append(some)
    for length, sets in sorted(by_length.items()):
        if not length:
            found |= dict.fromkeys(sets, Outcome(float("nan"), None))
            continue
        room = (_TOKENS_OF_FUNCTION if explained.kind == "function" else _TOKENS) // length
        size = max(1, min(_ROWS, room))
        for start in range(0, len(sets), size):
            found |= _run(explained, tokens, sets[start : start + size], perturbation)
    return found


def _run(explained: Explained, tokens: Tokens, sets: list[frozenset[int]], perturbation: Perturbation) -> dict[frozenset[int], Outcome]:
    if perturbation.replace == "delete":
        inputs, places = deleted(explained, tokens.inputs, sets)
    else:
        inputs = masked(explained, tokens.inputs, sets)
        places = explained.places(inputs)
    with torch.no_grad():
        outputs = explained.outputs(inputs, places)
        values = explained.reading(perturbation.scale)(outputs, places, False).double().tolist()
        right = [None] * len(sets) if explained.right is None else explained.right(outputs, places).tolist()
    return {some: Outcome(value, same) for some, value, same in zip(sets, values, right, strict=True)}
