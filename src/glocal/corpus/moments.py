"""One-pass summaries that merge: the same numbers in whatever pieces the data come, and the same bits for the same pieces."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared differences from the mean, entry by entry; what is not finite is not counted."""

    count: Array
    mean: Array
    squares: Array

    @staticmethod
    def of(values: NDArray) -> "Moments":
        """Of `values` [text, ...]."""
        valid = numpy.isfinite(values)
        count = valid.sum(0).astype(numpy.float64)
        safe = numpy.maximum(count, 1)
        mean = numpy.where(valid, values, 0).sum(0, dtype=numpy.float64) / safe
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
    def average(self) -> Array:
        """The mean; NaN where nothing was counted."""
        return numpy.where(self.count > 0, self.mean, numpy.nan)

    @property
    def standard_error(self) -> Array:
        """Of the mean, over texts; NaN below two."""
        enough = self.count > 1
        safe = numpy.where(enough, self.count, 2)
        return numpy.where(enough, numpy.sqrt(self.squares / (safe - 1) / safe), numpy.nan)


def poisson_draws(numbers: Sequence[int], *, draws: int, seed: int) -> NDArray[numpy.int64]:
    """How often each text counts in each draw [draw, text]: Poisson(1), which depends on the text's number and the seed alone."""
    each = [numpy.random.Generator(numpy.random.Philox(key=[seed, number])).poisson(1, draws) for number in numbers]
    return numpy.stack(each, 1) if each else numpy.zeros((draws, 0), dtype=numpy.int64)


@dataclass(frozen=True)
class Bootstrap:
    """Means over texts that are drawn anew: every text counts Poisson(1) times in every draw, which needs no second pass."""

    weight: Array  # [draw, ...]
    total: Array

    @staticmethod
    def of(values: NDArray, times: NDArray[numpy.int64]) -> "Bootstrap":
        """Of `values` [text, ...], each counted `times` [draw, text] (see `poisson_draws`)."""
        valid = numpy.isfinite(values)
        shape = (len(times), *values.shape[1:])
        flat = lambda each: each.reshape(len(values), -1).astype(numpy.float64)  # noqa: E731
        weighted = lambda each: (times.astype(numpy.float64) @ flat(each)).reshape(shape)  # noqa: E731
        return Bootstrap(weighted(valid), weighted(numpy.where(valid, values, 0)))

    def merge(self, other: "Bootstrap") -> "Bootstrap":
        """Of both together."""
        return Bootstrap(self.weight + other.weight, self.total + other.total)

    @property
    def means(self) -> Array:
        """The mean of every draw; NaN where it has no text."""
        return numpy.where(self.weight > 0, self.total / numpy.maximum(self.weight, 1), numpy.nan)


def interval(draws: Array, level: float = 0.95) -> tuple[Array, Array]:
    """The percentile interval of `draws` [draw, ...]; NaN where no draw has a value."""
    some = numpy.isfinite(draws).any(0)
    edges = numpy.nanquantile(numpy.where(some, draws, 0), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return numpy.where(some, edges[0], numpy.nan), numpy.where(some, edges[1], numpy.nan)


@dataclass(frozen=True)
class Quantiles:
    """Counts in bins whose edges grow by a fixed factor: quantiles to a relative accuracy of half a percent, in fixed memory.

    After DDSketch (Masson, Rim and Lee 2019), with all bins from 1e-6 to 1e4 on both sides of zero.
    """

    counts: NDArray[numpy.int64]  # [bin, ...]

    _SMALLEST, _LARGEST, _GROWTH = 1e-6, 1e4, math.log(1.01)
    _SIDE = math.ceil(math.log(_LARGEST / _SMALLEST) / _GROWTH)

    @staticmethod
    def of(values: NDArray) -> "Quantiles":
        """Of `values` [text, ...]; what is not finite is not counted."""
        side, flat = Quantiles._SIDE, numpy.asarray(values, dtype=numpy.float64).reshape(len(values), -1)
        valid = numpy.isfinite(flat)
        size = numpy.maximum(numpy.abs(numpy.where(valid, flat, 0)), Quantiles._SMALLEST)
        step = numpy.ceil(numpy.log(size / Quantiles._SMALLEST) / Quantiles._GROWTH).clip(0, side).astype(numpy.int64)
        place = side + numpy.where(flat < 0, -step, step)
        counts = numpy.zeros((2 * side + 1, flat.shape[1]), dtype=numpy.int64)
        numpy.add.at(counts, (place[valid], numpy.broadcast_to(numpy.arange(flat.shape[1]), flat.shape)[valid]), 1)
        return Quantiles(counts.reshape(-1, *values.shape[1:]))

    def merge(self, other: "Quantiles") -> "Quantiles":
        """Of both together."""
        return Quantiles(self.counts + other.counts)

    def at(self, levels: Sequence[float]) -> Array:
        """The values [level, ...] below which these shares lie; NaN where nothing was counted."""
        side, cumulated = self._SIDE, self.counts.cumsum(0)
        total = cumulated[-1]
        steps = numpy.abs(numpy.arange(2 * side + 1) - side)
        middle = numpy.where(steps > 0, self._SMALLEST * numpy.exp((steps - 0.5) * self._GROWTH), 0.0)
        values = numpy.sign(numpy.arange(2 * side + 1) - side) * middle
        found = [values[(cumulated > level * numpy.maximum(total - 1, 0)).argmax(0)] for level in levels]
        return numpy.where(total > 0, numpy.stack(found), numpy.nan)
