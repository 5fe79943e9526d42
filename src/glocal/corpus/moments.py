"""One-pass summaries that merge: the same numbers in whatever pieces the data come, and the same bits for the same pieces."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared differences from the mean, entry by entry; NaN values are not counted."""

    count: Array
    mean: Array
    squares: Array

    @staticmethod
    def of(values: Array) -> "Moments":
        """Of `values` [text, ...]."""
        valid = numpy.isfinite(values)
        count = valid.sum(0).astype(numpy.float64)
        safe = numpy.maximum(count, 1)
        mean = numpy.where(valid, values, 0).sum(0) / safe
        # A second pass takes out what rounding left in the mean of values that are large against their spread.
        mean = mean + numpy.where(valid, values - mean, 0).sum(0) / safe
        return Moments(count, mean, (numpy.where(valid, values - mean, 0) ** 2).sum(0))

    def merge(self, other: "Moments") -> "Moments":
        """Of both together (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        safe = numpy.maximum(count, 1)
        apart = other.mean - self.mean
        return Moments(
            count, self.mean + apart * other.count / safe, self.squares + other.squares + apart**2 * self.count * other.count / safe
        )

    @property
    def standard_error(self) -> Array:
        """Of the mean, over texts; NaN below two."""
        enough = self.count > 1
        safe = numpy.where(enough, self.count, 2)
        return numpy.where(enough, numpy.sqrt(self.squares / (safe - 1) / safe), numpy.nan)


@dataclass(frozen=True)
class Bootstrap:
    """Means over texts that are drawn anew: every text counts Poisson(1) times in every draw, which needs no second pass.

    The draws of a text depend on its number and the seed alone, so that pieces may be merged in any order.
    """

    weight: Array  # [draw, ...]
    total: Array

    @staticmethod
    def of(values: Array, numbers: Sequence[int], *, draws: int, seed: int) -> "Bootstrap":
        """Of `values` [text, ...], the texts number `numbers` of the corpus."""
        times = numpy.stack([numpy.random.Generator(numpy.random.Philox(key=[seed, number])).poisson(1, draws) for number in numbers], 1)
        valid = numpy.isfinite(values)
        flat = numpy.where(valid, values, 0).reshape(len(values), -1)
        shape = (draws, *values.shape[1:])
        weighted = lambda each: (times.astype(numpy.float64) @ each.reshape(len(values), -1)).reshape(shape)  # noqa: E731
        return Bootstrap(weighted(valid.astype(numpy.float64)), weighted(flat))

    def merge(self, other: "Bootstrap") -> "Bootstrap":
        """Of both together."""
        return Bootstrap(self.weight + other.weight, self.total + other.total)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The percentile interval of the mean; NaN where no draw has a value."""
        with numpy.errstate(invalid="ignore", divide="ignore"):
            means = self.total / self.weight
        some = numpy.isfinite(means).any(0)
        edges = numpy.nanquantile(numpy.where(some, means, 0), [(1 - level) / 2, (1 + level) / 2], axis=0)
        return numpy.where(some, edges[0], numpy.nan), numpy.where(some, edges[1], numpy.nan)
