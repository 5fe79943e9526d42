"""Sum squared lengths over directions: the squared norms of Jacobian blocks, and how well a sketch knows them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from glocal.groups import sum_groups
from glocal.jacobian.features import features
from glocal.jacobian.seeds import Seeds

# (first, last) number of directions -> per layer: the first token whose tangents are not zero, and the tangents from there on,
# heads [token, head, width, chunk] or layer outputs [token, width, chunk]
Push = Callable[[int, int], Iterator[tuple[int, Tensor]]]


@dataclass(frozen=True)
class Squares:
    """Squared norms of Jacobian blocks per layer, in float64; for a sketch their variances.

    `share_variance` is given where sources are not independent of each other; else it follows from `variance`. A variance that is itself
    estimated from few directions makes intervals too short: `inflation` is the factor for standard errors that makes up for it.
    """

    value: tuple[Float[Tensor, "head target source"], ...]
    variance: tuple[Float[Tensor, "head target source"], ...] | None = None
    share_variance: tuple[Float[Tensor, "head target source"], ...] | None = None
    inflation: float = 1.0


class Accumulator:
    """Sums over chunks of directions, in float64; at any time `squares` is the estimate so far.

    For k orthonormal directions u of d and M = J^T J: the sum of u^T M u times d / k estimates tr M = ||J||_F^2, with variance
    2 d (d - k) / k C, where C is the expectation of (u^T M v)^2 for two different directions (Haar measure). C is estimated from all pairs
    that share a chunk: k (k - 1) / 2 numbers instead of the k whose sample variance one would take.
    """

    def __init__(self, maps: Sequence[Tensor | None], sources: int, width: int | Float[Tensor, " source"]):
        self.maps, self.sources, self.width = maps, sources, width
        self.total: list[Tensor] = []
        self.pairs: list[Tensor] = []
        self.added = 0.0
        self.pair_count = 0.0

    def run(self, push: Push, seeds: Seeds, size: int, advance: Callable[[int], None] = lambda done: None) -> None:
        """Add all directions of `seeds`, `size` at a time."""
        with torch.no_grad():
            for start, stop in seeds.chunks(size):
                for layer, (first, tangents) in enumerate(push(start, stop)):
                    self.add(layer, first, tangents, seeds, start, stop)
                self.count(seeds, start, stop)
                advance(stop - start)

    def count(self, seeds: Seeds, start: int, stop: int) -> None:
        """Note that the directions from `start` to `stop` have been added for all layers."""
        self.pair_count += sum((b - a) * (b - a - 1) for _, a, b in seeds.segments(start, stop)) / seeds.sources
        self.added += (stop - start) / seeds.sources

    def add(self, layer: int, first: int, tangents: Tensor, seeds: Seeds, start: int, stop: int) -> None:
        """Add the directions from `start` to `stop` of one layer; see `Push` for `first` and `tangents`."""
        segments = seeds.segments(start, stop)
        made = features(tangents if tangents.dim() == 4 else tangents.unsqueeze(1), self.maps[layer])
        tokens, heads, _, columns = made.shape
        each = made.square().sum(2).double().view(tokens, heads, len(segments), columns // len(segments))
        if layer == len(self.total):
            self.total.append(each.new_zeros(tokens + first, heads, self.sources))
            self.pairs.append(torch.zeros_like(self.total[-1]) if not seeds.exact else self.total[-1])
        where = slice(segments[0][0], segments[-1][0] + 1)
        self.total[layer][first:, :, where] += each.sum(-1)
        if not seeds.exact:
            by_source = made.unflatten(3, (len(segments), -1)).permute(0, 1, 3, 4, 2)
            gram = (by_source @ by_source.transpose(-1, -2)).double()
            self.pairs[layer][first:, :, where] += (gram.square().sum((-1, -2)) - each.square().sum(-1)).clamp(min=0)

    @property
    def directions(self) -> int:
        """Directions per source added so far."""
        return round(self.added)

    def squares(self, heads: Sequence[int] | None, targets: Sequence[int], *, exact: bool) -> Squares:
        """The norms of the chosen heads (from 0; None is all) and targets."""
        k, d = self.directions, self.width
        picked = [self._pick(total * (d / k), heads, targets) for total in self.total]
        if exact:
            return Squares(tuple(picked))
        to_variance = 2 * d * (d - k) / k / max(self.pair_count, 1)
        variances = [
            self._pick(_steadied(total * (d / k), pairs * to_variance, self.pair_count / 2), heads, targets)
            for total, pairs in zip(self.total, self.pairs, strict=True)
        ]
        return Squares(tuple(picked), tuple(variances), inflation=inflation(k, d if isinstance(d, int) else int(d.max())))

    def _pick(self, value: Tensor, heads: Sequence[int] | None, targets: Sequence[int]) -> Tensor:
        chosen = value[list(targets)]
        return (chosen if heads is None else chosen[:, list(heads)]).transpose(0, 1).contiguous()


def summed(squares: Squares, groups: Sequence[int]) -> Squares:
    """Exact squares of groups of tokens: ||[J_1 J_2 ...]||_F^2 = sum of ||J_j||_F^2 over the group."""
    return Squares(tuple(sum_groups(value, groups) for value in squares.value))


# Pairs of directions that count as much as the mean over the other blocks of a head (calibrated on a trained model; see benchmarks).
_POOLED = 100
# Squares below this share of the largest in their row may be rounding noise (parts of families are computed in float32).
_NOISE = 1e-10


def _steadied(value: Float[Tensor, "target head source"], variance: Float[Tensor, "target head source"], pairs: float) -> Tensor:
    """Variances that borrow strength from the other blocks of the same head.

    The relative variance r^2 = variance / value^2 of one block rests on `pairs` numbers; it is averaged with what its target and its source
    have in common with the others (mean over targets x mean over sources / mean over both), and then corrected for the bias of a ratio,
    r^2 (1 + 4 r^2): numerator and denominator are estimated from the same directions.
    """
    there = value > 0
    relative = torch.where(there, variance / torch.where(there, value, 1).square(), torch.nan)
    # Blocks that are rounding noise beside the others of their row say nothing about them.
    own = relative
    relative = torch.where(value > _NOISE * value.amax(2, keepdim=True), relative, torch.nan)
    overall = relative.nanmean((0, 2), keepdim=True)
    common = relative.nanmean(0, keepdim=True) * relative.nanmean(2, keepdim=True) / overall
    weight = pairs / (pairs + _POOLED)
    mixed = weight * own + (1 - weight) * torch.where(common.isfinite(), common, own)
    return torch.where(there, mixed * (1 + 4 * mixed) * value.square(), variance)


def inflation(directions: int, width: int) -> float:
    """Student's t over the normal quantile with 2 k degrees of freedom (calibrated on a trained model); 1 for all directions."""
    if directions >= width:
        return 1.0
    return float(special.stdtrit(2 * directions, 0.975) / special.ndtri(0.975))
