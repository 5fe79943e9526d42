"""Make the maps of a layer by forward mode, and check what they take for granted."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jvp

from glocal.jacobian.layout import Layout
from glocal.jacobian.maps import Maps
from glocal.jacobian.straight import push
from glocal.layer import Layer


class NotCollapsible(Exception):
    """This layer is not what the maps can represent; the text says why."""


def make_maps(layer: Layer, layout: Layout, *, chunk: int) -> Maps:
    """The maps of one layer at its point, by forward mode with `chunk` directions at a time, each at all tokens together.

    About 24 n d^3 operations (6 n d^3 without the layer's output). Raises `NotCollapsible` where the attention is not a weighting of
    values by a softmax of scaled products.
    """
    query, key, value, *after = token_wise(layer.local if layout.output else layer.queries, layer.hidden, chunk)
    mixture = None if layout.frozen else _mixture(layer)
    rows, query_map = [value.flatten(2)], None
    if mixture is not None:
        repeat = layout.heads // layout.kv_heads
        if layout.score_rows:  # [source, width, (target, head)]
            rows.insert(0, torch.einsum("jdhc,hic->jdih", key.repeat_interleave(repeat, 2), layer.query).flatten(2))
        else:
            rows.insert(0, key.flatten(2))
        keys = layer.key.repeat_interleave(repeat, 0)
        if layout.own_scores:
            rows.append(torch.einsum("idhc,hjc->idjh", query, keys).flatten(2))
        else:
            inner = torch.einsum("ihvj,hjc->ihvc", mixture, keys)
            query_map = torch.einsum("idhc,ihvc->idhv", query, inner).flatten(2).contiguous()
    through = project = merge = None
    if layout.output:
        through = after[0]
        project = _project(layer, through)
        merge = None if project is not None else token_wise(lambda z: (layer.merge(z),), layer.head, chunk)[0]
    return Maps(
        rows=torch.cat(rows, -1),
        query=query_map,
        mixture=mixture,
        weights=layer.weights.contiguous(),
        asked=None if mixture is None or layout.score_rows else layer.query.contiguous(),
        kv_heads=layout.kv_heads,
        value_width=layout.value_width,
        through=through,
        project=project,
        merge=merge,
    )


def token_wise(function: Callable[[Tensor], tuple[Tensor, ...]], x: Float[Tensor, "token ..."], chunk: int) -> list[Tensor]:
    """Jacobians [token, width in, ...] of every output of a function that works token by token; heads may stand before tokens.

    One direction at all tokens at once gives one column for every token.
    """
    tokens, inner = len(x), x[0].numel()
    made: list[Tensor] = []
    for start in range(0, inner, chunk):
        stop = min(start + chunk, inner)
        directions = torch.zeros(stop - start, inner, dtype=x.dtype, device=x.device)
        directions[torch.arange(stop - start), torch.arange(start, stop)] = 1
        directions = directions.view(-1, 1, *x.shape[1:]).expand(-1, tokens, *x.shape[1:])
        for number, each in enumerate(push(function, x, directions)):
            # [chunk, token, width] of a layer's output; [chunk, head, token, width] of queries, keys and values
            by_token = each.transpose(0, 1) if each.dim() == 3 else each.permute(2, 0, 1, 3)
            if start == 0:
                made.append(by_token.new_empty(tokens, inner, *by_token.shape[2:]))
            made[number][:, start:stop] = by_token
    return made


def _mixture(layer: Layer) -> Float[Tensor, "target head value_width source"]:
    """U[i, h, :, j] = w[i, j] (v[j] - z[i]); the scale is read off one derivative of the family's own attention and checked on another."""
    repeat = layer.query.shape[0] // layer.key.shape[0]
    keys, values = layer.key.repeat_interleave(repeat, 0), layer.value.repeat_interleave(repeat, 0)
    differences = values.unsqueeze(1) - layer.head.transpose(0, 1).unsqueeze(2)  # [head, target, source, value_width]
    products = layer.query @ keys.transpose(1, 2)
    weights = layer.weights

    def tangent(slope: Tensor, dq: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
        dk, dv = dk.repeat_interleave(repeat, 0), dv.repeat_interleave(repeat, 0)
        moved = slope * (dq @ keys.transpose(1, 2) + layer.query @ dk.transpose(1, 2))
        return (torch.einsum("hij,hijv->ihv", weights * moved, differences) + torch.einsum("hij,hjv->ihv", weights, dv)).contiguous()

    generator = torch.Generator().manual_seed(0)
    given = (layer.query, layer.key, layer.value)
    random = [torch.randn(each.shape, generator=generator).to(each) for each in given]
    nothing = torch.zeros_like(layer.value)
    of_scores = jvp(layer.attend, given, (random[0], random[1], nothing))[1]
    slope = torch.ones_like(weights)
    scale = _ratio(of_scores, tangent(slope, random[0], random[1], nothing))
    if layer.softcap:
        # s = scale (1 - tanh^2(scale q k / cap)): the scale sits inside the cap too. Fixed-point steps find it.
        for _ in range(50):
            slope = 1 - torch.tanh(scale * products / layer.softcap).square()
            scale = _ratio(of_scores, tangent(slope, random[0], random[1], nothing))
    slope = slope * scale
    expected = jvp(layer.attend, given, tuple(random))[1]
    error = (tangent(slope, *random) - expected).abs().max() / expected.abs().max()
    if not error <= tolerance(weights.dtype):
        raise NotCollapsible(f"its attention is not a softmax of scaled products that weights values (difference {error.item():.1e})")
    return torch.einsum("hij,hijv->ihvj", weights * slope, differences).contiguous()


def _ratio(expected: Tensor, of_one: Tensor) -> Tensor:
    below = (of_one * of_one).sum()
    return torch.where(below > 0, (expected * of_one).sum() / below.clamp(min=torch.finfo(below.dtype).tiny), torch.zeros_like(below))


def _project(layer: Layer, through: Float[Tensor, "token width width"]) -> Tensor | None:
    """The output projection, if head outputs enter the layer's output exactly where its input does; checked on two directions."""
    if layer.projection is None:
        return None
    project = layer.projection.transpose(0, 1).flatten(1)  # [width, (head, value_width)]
    if project.shape[0] != through.shape[1]:
        return None
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        direction = torch.randn(layer.head.shape, generator=generator).to(layer.head)
        expected = jvp(layer.merge, (layer.head,), (direction,))[1]
        derived = torch.einsum("tio,ti->to", through, direction.flatten(1) @ project.T)
        if not (derived - expected).abs().max() <= tolerance(through.dtype) * expected.abs().max():
            return None
    return project.contiguous()


def tolerance(dtype: torch.dtype) -> float:
    """Largest relative difference between two ways to the same derivative that rounding explains (families compute parts in float32)."""
    return {torch.float64: 1e-5, torch.float32: 1e-3}.get(dtype, 0.1)
