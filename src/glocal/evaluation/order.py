"""Which tokens are taken away: pure functions of scores."""

import math

import numpy
from numpy.typing import NDArray

from glocal.errors import ChoiceError

ROUNDINGS = {"ceil": math.ceil, "floor": math.floor, "round": round}


def count(tokens: int, fraction: float, rounding: str) -> int:
    """How many of `tokens` the fraction is: "ceil" (ERASER), "floor" (DecompX) or "round" (half to even)."""
    if rounding not in ROUNDINGS:
        raise ChoiceError(f"There is no rounding {rounding!r}.", asked=rounding, allowed=", ".join(ROUNDINGS), do="choose one of these")
    # 0.1 * 30 is 3.0000000000000004, which is not meant to be rounded up.
    return ROUNDINGS[rounding](round(tokens * fraction, 9))


def highest(scores: NDArray[numpy.float64], number: int) -> frozenset[int]:
    """Places of the highest scores; of equal ones the first in the text, undefined ones last."""
    order = numpy.argsort(-numpy.nan_to_num(scores, nan=-numpy.inf), kind="stable")
    return frozenset(order[:number].tolist())


def shuffled(tokens: int, seed: int, text: int) -> NDArray[numpy.float64]:
    """Scores in a random order, for the text with this number."""
    return numpy.random.default_rng([seed, text]).permutation(tokens).astype(float)
