"""Reverse mode for few targets: pull components of the chosen outputs back to the input tokens.

The cost is that of the outputs asked for: one pull per head, target and feature, through the layers below only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.jacobian.features import widened
from glocal.jacobian.squares import Squares, inflation

Function = Callable[[Tensor], tuple[Tensor, ...]]

# Pairs of directions that count as much as the mean over the other sources of a row (calibrated on a trained model; see benchmarks).
_POOLED = 30


@dataclass(frozen=True)
class Cotangents:
    """What is pulled back of one layer: `rows[h]` for every chosen head at every chosen target."""

    rows: Float[Tensor, "head row width"]
    features: int  # directions there are; fewer rows are a sketch
    hidden: bool

    @property
    def exact(self) -> bool:
        """Whether nothing is estimated."""
        return self.rows.shape[1] == self.features


def make_cotangents(
    maps: Float[Tensor, "head feature width"] | None,
    *,
    heads: Sequence[int] | None,
    width: int,
    probes: int | None,
    seed: int,
    like: Tensor,
) -> Cotangents:
    """All features of the chosen heads, or `probes` orthonormal directions among them, scaled so that squares are unbiased.

    `heads` count from 0; None is a layer output. Raises `ChoiceError` unless 2 <= probes <= number of features.
    """
    count = 1 if heads is None else len(heads)
    dtype = widened(like[:0]).dtype
    if maps is None:
        rows = torch.eye(width, dtype=dtype, device=like.device).expand(count, -1, -1)
    else:
        chosen = maps if heads is None or len(maps) == 1 else maps[list(heads)]
        rows = chosen.to(dtype).expand(count, -1, -1)
    features = rows.shape[1]
    if probes is not None:
        if not 2 <= probes <= features:
            raise ChoiceError(
                "The number of probes is out of range for the reverse engine, which draws directions among the outputs.",
                asked=f"probes={probes}, engine='reverse'",
                allowed=f"2 to {features} (all components: exact)",
                do="choose in this range, or probes=None for exact results",
            )
        generator = torch.Generator().manual_seed(seed)
        wanted = [0] if heads is None else list(heads)
        # All heads up to the last one are drawn, so that a head's directions do not depend on which others are asked for.
        drawn = [torch.randn(features, probes, generator=generator, dtype=torch.float64) for _ in range(max(wanted) + 1)]
        gaussian = torch.stack([drawn[head] for head in wanted])
        directions = torch.linalg.qr(gaussian)[0].transpose(1, 2) * (features / probes) ** 0.5
        rows = directions.to(rows) @ rows
    return Cotangents(rows, features, heads is None)


def reverse(
    function: Function,
    x: Float[Tensor, "source width"],
    cotangents: Sequence[Cotangents],
    *,
    heads: Sequence[int] | None,
    targets: Sequence[int],
    scale: Float[Tensor, "source width"] | None,
    chunk: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Squares:
    """Squared norms of the blocks of the chosen heads and targets, `chunk` pulls at a time.

    For k scaled directions the estimates of one row share their directions: their errors are not independent between sources, and the
    variance of shares is taken from the directions themselves.
    """
    point = x.detach().clone().requires_grad_()
    values, variances, of_shares, factors = [], [], [], []
    with torch.enable_grad():
        outputs = function(point)
    for output, each in zip(outputs, cotangents, strict=True):
        shaped = output.unsqueeze(1) if each.hidden else output
        grams = _pull(shaped, point, each, [0] if each.hidden else list(heads or ()), list(targets), scale, chunk, advance)
        values.append(grams.diagonal(dim1=-2, dim2=-1).sum(-1) if not each.exact else grams)
        if not each.exact:
            variance, of_share = _variances(grams, each.features)
            variances.append(variance)
            of_shares.append(of_share)
            factors.append(inflation(each.rows.shape[1], each.features))
    if not variances:
        return Squares(tuple(values))
    return Squares(tuple(values), tuple(variances), tuple(of_shares), max(factors))


def _pull(
    output: Tensor,
    point: Tensor,
    cotangents: Cotangents,
    heads: list[int],
    targets: list[int],
    scale: Tensor | None,
    chunk: int,
    advance: Callable[[int], None],
) -> Tensor:
    """Squares [head, target, source]; of a sketch all products of two pulls, [head, target, source, row, row]."""
    count = cotangents.rows.shape[1]
    device = output.device
    at_head, at_target = torch.tensor(heads, device=device), torch.tensor(targets, device=device)
    rows = torch.arange(count, device=device)

    def pulled(places: Tensor) -> Tensor:
        h, t, r = places.unbind(1)
        seed = output.new_zeros(len(h), *output.shape)
        seed[torch.arange(len(h), device=device), at_target[t], at_head[h]] = cotangents.rows[h, r].to(output.dtype)
        (gradient,) = torch.autograd.grad(output, point, seed, retain_graph=True, is_grads_batched=True)
        advance(len(h))
        return widened(gradient if scale is None else gradient * scale)

    outputs = torch.cartesian_prod(*(torch.arange(size, device=device) for size in (len(heads), len(targets))))
    made = []
    for some in outputs.split(max(1, chunk // count)):
        places = torch.cat([some.repeat_interleave(count, 0), rows.repeat(len(some))[:, None]], 1)
        if cotangents.exact:
            squares = torch.cat([pulled(part).square().sum(-1).double() for part in places.split(chunk)])
            made.append(squares.view(len(some), count, -1).sum(1))
        else:
            by_source = torch.cat([pulled(part) for part in places.split(chunk)]).view(len(some), count, *point.shape).movedim(2, 1)
            made.append((by_source @ by_source.transpose(-1, -2)).double())
    return torch.cat(made).unflatten(0, (len(heads), len(targets)))


def _variances(grams: Float[Tensor, "head target source row row"], features: int) -> tuple[Tensor, Tensor]:
    """Variances of the squares, and to first order of their shares.

    Both are sums of v^T M v over the directions v: for a square M = J J^T, for a share a combination of these over all sources.
    """
    k = grams.shape[-1]
    norm = grams.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True).unsqueeze(-1).sqrt()
    moved = torch.where(norm > 0, grams / (2 * norm), torch.zeros_like(grams))
    total = norm.sum(2, keepdim=True)
    moved_share = (moved - norm / total * moved.sum(2, keepdim=True)) / total
    square, share, pairs = norm.square().flatten(2), (norm / total).flatten(2), k * (k - 1) / 2
    return _steadied(square, variance_of_sum(grams, features), pairs), _steadied(share, variance_of_sum(moved_share, features), pairs)


def variance_of_sum(grams: Float[Tensor, "*rows row row"], features: int) -> Float[Tensor, "*rows"]:
    """Unbiased variance of the sum of v^T M v over k of d orthonormal directions v, scaled by sqrt(d / k), from all products v^T M w.

    Var = 2 k (d - k) / d times the mean of (v^T M w)^2 over pairs of different directions (Haar measure); see `Accumulator`.
    """
    k = grams.shape[-1]
    pairs = grams.square().sum((-1, -2)) - grams.diagonal(dim1=-2, dim2=-1).square().sum(-1)
    return pairs.clamp(min=0) * 2 * (features - k) / features / (k - 1)


def _steadied(value: Float[Tensor, "*rows source"], variance: Float[Tensor, "*rows source"], pairs: float) -> Tensor:
    """Variances that borrow strength from the other sources of their row, corrected for the bias of a ratio; see `Accumulator`."""
    there = value > 0
    relative = torch.where(there, variance / torch.where(there, value, 1).square(), torch.nan)
    common = relative.nanmean(-1, keepdim=True)
    weight = pairs / (pairs + _POOLED)
    mixed = weight * relative + (1 - weight) * torch.where(common.isfinite(), common, relative)
    return torch.where(there, mixed * (1 + 4 * mixed) * value.square(), variance)
