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
from glocal.jacobian.squares import Squares

Function = Callable[[Tensor], tuple[Tensor, ...]]


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
    values, variances, of_shares = [], [], []
    with torch.enable_grad():
        outputs = function(point)
    for output, each in zip(outputs, cotangents, strict=True):
        shaped = output.unsqueeze(1) if each.hidden else output
        rows = _pull(shaped, point, each, [0] if each.hidden else list(heads or ()), list(targets), scale, chunk, advance)
        values.append(rows.sum(2))
        if not each.exact:
            variance, of_share = _variances(rows, each.features)
            variances.append(variance)
            of_shares.append(of_share)
    if not variances:
        return Squares(tuple(values))
    return Squares(tuple(values), tuple(variances), tuple(of_shares))


def _pull(
    output: Tensor,
    point: Tensor,
    cotangents: Cotangents,
    heads: list[int],
    targets: list[int],
    scale: Tensor | None,
    chunk: int,
    advance: Callable[[int], None],
) -> Float[Tensor, "head target row source"]:
    count = cotangents.rows.shape[1]
    device = output.device
    places = torch.cartesian_prod(*(torch.arange(size, device=device) for size in (len(heads), len(targets), count)))
    at_head, at_target = torch.tensor(heads, device=device), torch.tensor(targets, device=device)
    made = []
    for start in range(0, len(places), chunk):
        h, t, r = places[start : start + chunk].unbind(1)
        seed = output.new_zeros(len(h), *output.shape)
        seed[torch.arange(len(h), device=device), at_target[t], at_head[h]] = cotangents.rows[h, r].to(output.dtype)
        (gradient,) = torch.autograd.grad(output, point, seed, retain_graph=True, is_grads_batched=True)
        wide = widened(gradient if scale is None else gradient * scale)
        made.append(wide.square().sum(-1).double())
        advance(len(h))
    return torch.cat(made).view(len(heads), len(targets), count, -1)


def _variances(rows: Float[Tensor, "head target row source"], features: int) -> tuple[Tensor, Tensor]:
    """Variances of the squares and of their shares, to first order."""
    k = rows.shape[2]
    correction = (1 - k / features) * k  # of a sum of k, drawn without replacement
    norm = rows.sum(2, keepdim=True).sqrt()
    moved = torch.where(norm > 0, rows / (2 * norm), torch.zeros_like(rows))
    share = norm / norm.sum(-1, keepdim=True)
    moved_share = (moved - share * moved.sum(-1, keepdim=True)) / norm.sum(-1, keepdim=True)
    return rows.var(2) * correction, moved_share.var(2) * correction
