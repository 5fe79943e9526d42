"""The exact derivative of one layer at one point, as a few matrices per token.

Between two attentions a layer works token by token, so that its Jacobian is one small matrix per token; the attention joins the tokens
by numbers that are known from the pass. With S the scores before the softmax, w = A dS/d(q k) and U[i, j] = w[i, j] (v[j] - z[i]),

    dz[i] = sum_j A[i, j] dv[j] + sum_j U[i, j] (k[j] . dq[i] + q[i] . dk[j]),

with or without sinks, masks and position biases; soft-capped scores only change w.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jvp

from glocal.jacobian.straight import push


@dataclass(frozen=True)
class Layer:
    """What the maps are made from: values at the point, and the layer as functions with its attention cut out."""

    query: Float[Tensor, "head target head_width"]
    key: Float[Tensor, "kv_head source head_width"]
    value: Float[Tensor, "kv_head source value_width"]
    weights: Float[Tensor, "head target source"]
    head: Float[Tensor, "target head value_width"]
    hidden: Float[Tensor, "source width"]
    projection: Float[Tensor, "head width value_width"] | None
    softcap: float | None
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    queries: Callable[[Tensor], tuple[Tensor, ...]]  # x -> query, key, value
    local: Callable[[Tensor], tuple[Tensor, ...]]  # x -> query, key, value, layer output, with the head outputs held constant
    merge: Callable[[Tensor], Tensor]  # head outputs -> layer output, with x held constant


@dataclass(frozen=True)
class Layout:
    """Sizes of one layer, and the choices that follow from them: what is cheaper to carry, and what it costs."""

    tokens: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    value_width: int
    item: int  # bytes of one number while carried
    made_item: int  # and while the maps are made
    output: bool  # whether the layer's output is wanted
    frozen: bool  # attention weights held constant
    first: bool  # tangents are zero but at one token

    @property
    def score_rows(self) -> bool:
        """Carry q[i] . dk[j] for every target i and head, instead of dk[j] itself."""
        inner = self.kv_heads * self.head_width
        return self.tokens * self.heads * (self.width - self.head_width) <= inner * self.width

    @property
    def own_scores(self) -> bool:
        """Carry k[j] . dq[i] for every source j and head, instead of what the own query does to the head outputs."""
        return self.tokens * (self.width + self.value_width) < self.width * self.value_width

    @property
    def key_rows(self) -> int:
        """Rows for the token's part as a key."""
        return 0 if self.frozen else self.tokens * self.heads if self.score_rows else self.kv_heads * self.head_width

    @property
    def rows(self) -> int:
        """Rows of the stacked map of one token."""
        own = self.tokens * self.heads if self.own_scores and not self.frozen else 0
        return self.key_rows + self.kv_heads * self.value_width + own

    @property
    def _head_rows(self) -> int:
        return self.heads * self.value_width

    @property
    def _query_rows(self) -> int:
        return 0 if self.frozen or self.own_scores else self._head_rows

    @property
    def map_bytes(self) -> int:
        """Bytes of the finished maps (with a path of their own for the heads, in case they need one)."""
        inside = self.rows + self._query_rows + ((self.width + self._head_rows) if self.output else 0)
        mixture = 0 if self.frozen else self.tokens * self._head_rows
        return self.tokens * (inside * self.width + mixture) * self.item

    @property
    def making_bytes(self) -> int:
        """Bytes alive beside the maps while this layer's are made."""
        inside = 2 * self.heads * self.head_width + 2 * self.kv_heads * (self.head_width + self.value_width)
        return self.tokens * self.width * (inside + self.rows + self.width * self.output) * self.made_item

    @property
    def column_bytes(self) -> int:
        """Bytes alive per carried direction."""
        scores = 0 if self.score_rows else 2 * self.tokens
        return self.tokens * (3 * self.width + self.rows + 3 * self._head_rows + scores) * self.item

    @property
    def rows_made(self) -> int:
        """Numbers written per carried direction."""
        return self.tokens * (2 * self.width + self.rows + 3 * self._head_rows)

    @property
    def carry_flops(self) -> float:
        """Floating-point operations per carried direction."""
        entering = 2 * self.width * (self.rows + self._query_rows)
        mixing = 2 * self.tokens * self._head_rows * (1 if self.frozen else 3)
        leaving = 2 * self.width * (self.width + self._head_rows) if self.output else 0
        return (0 if self.first else self.tokens * (entering + mixing)) + self.tokens * leaving


def layout_of(layer: Layer, *, output: bool, frozen: bool, first: bool, dtype: torch.dtype) -> Layout:
    """The sizes of `layer`, carried in `dtype`."""
    return Layout(
        tokens=len(layer.hidden),
        width=layer.hidden.shape[1],
        heads=layer.query.shape[0],
        kv_heads=layer.key.shape[0],
        head_width=layer.query.shape[2],
        value_width=layer.value.shape[2],
        item=layer.hidden.new_empty(0, dtype=dtype).element_size(),
        made_item=layer.hidden.element_size(),
        output=output,
        frozen=frozen,
        first=first,
    )


class NotCollapsible(Exception):
    """This layer is not what the maps can represent; the text says why."""


@dataclass(frozen=True)
class Maps:
    """Matrices are kept transposed, [token, width in, rows out], as forward mode yields them.

    `rows` stacks what the attention needs of a token as a source: score rows (or keys), values, and its scores as a target where those
    are fewer than the head outputs they end in (`query` is then None).
    """

    rows: Float[Tensor, "token width row"]
    query: Float[Tensor, "token width head_rows"] | None
    mixture: Float[Tensor, "target head value_width source"] | None  # U; None: attention is frozen
    weights: Float[Tensor, "head target source"]
    asked: Float[Tensor, "head target head_width"] | None  # queries, where `rows` holds keys instead of scores
    kv_heads: int
    value_width: int
    through: Float[Tensor, "token width width"] | None  # None: the last layer's output is not wanted
    project: Float[Tensor, "width head_rows"] | None  # heads enter where the layer's input does, through this matrix
    merge: Float[Tensor, "token head_rows width"] | None  # or by a path of their own

    @property
    def heads(self) -> int:
        """Number of (query) heads."""
        return self.weights.shape[0]

    def to(self, dtype: torch.dtype) -> "Maps":
        """The same maps in another type."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value.to(dtype) for name, value in kept.items() if isinstance(value, Tensor)})

    def mix(self, tangents: Float[Tensor, "token width column"], first: int) -> Float[Tensor, "token head value_width column"]:
        """Tangents of a layer's input at tokens from `first` on (all others are zero) -> tangents of its head outputs there."""
        count, _, columns = tangents.shape
        tokens, heads, width = len(self.rows), self.heads, self.value_width
        score_rows = self.mixture is not None and self.asked is None
        rows = self.rows[first:, :, first * heads if score_rows else 0 :]
        at = torch.bmm(rows.transpose(1, 2), tangents)
        out = tangents.new_empty(count, heads, width, columns)
        position = 0
        begun = False
        if self.mixture is not None:
            here = self.mixture[first:]
            if self.query is not None:
                torch.bmm(self.query[first:].transpose(1, 2), tangents, out=out.view(count, heads * width, columns))
                begun = True
            if self.asked is None:
                position = count * heads
                scores = at[:, :position].transpose(0, 1)
                out.view(count * heads, width, columns).baddbmm_(
                    here[..., first:].reshape(count * heads, width, count), scores, beta=float(begun)
                )
            else:
                position = self.kv_heads * self.asked.shape[2]
                keys = at[:, :position].view(count, self.kv_heads, -1, columns)
                for head in range(heads):
                    scores = torch.matmul(self.asked[head, first:], keys[:, head * self.kv_heads // heads]).transpose(0, 1)
                    part = torch.bmm(here[:, head, :, first:], scores)
                    out[:, head] = part if not begun else out[:, head] + part
            begun = True
        values = at[:, position : position + self.kv_heads * width].view(count, self.kv_heads, width * columns)
        for head in range(heads):
            mixed = out[:, head].view(count, width * columns)
            mixed.addmm_(self.weights[head, first:, first:], values[:, head * self.kv_heads // heads], beta=float(begun))
        if self.mixture is not None and self.query is None:
            own = at[:, position + self.kv_heads * width :].view(count, tokens, heads, columns)
            for target in range(count):
                out[target].baddbmm_(self.mixture[first + target], own[target].transpose(0, 1))
        return out

    def mix_from(
        self, source: int, tangents: Float[Tensor, "width column"], out: Float[Tensor, "token head value_width column"], first: int
    ):
        """As `mix`, for tangents at one `source` only: adds to `out`, whose rows are the tokens from `first` on."""
        heads, width, columns = self.heads, self.value_width, tangents.shape[1]
        at = self.rows[source].T @ tangents
        position = 0
        if self.mixture is not None:
            towards = self.mixture[first:, :, :, source].unsqueeze(-1)
            if self.asked is None:
                position = len(self.rows) * heads
                scores = at[:position].view(-1, heads, 1, columns)[first:]
            else:
                position = self.kv_heads * self.asked.shape[2]
                keys = at[:position].view(self.kv_heads, -1, columns).repeat_interleave(heads // self.kv_heads, 0)
                scores = torch.matmul(self.asked[:, first:], keys).transpose(0, 1).unsqueeze(2)
            out.addcmul_(towards, scores)
        values = at[position : position + self.kv_heads * width].view(self.kv_heads, width, columns)
        out.addcmul_(self.weights[:, first:, source].T[:, :, None, None], values.repeat_interleave(heads // self.kv_heads, 0).unsqueeze(0))
        if self.mixture is not None:
            if self.query is not None:
                out[source - first] += (self.query[source].T @ tangents).view(heads, width, columns)
            else:
                own = at[position + self.kv_heads * width :].view(-1, heads, columns).transpose(0, 1)
                out[source - first].baddbmm_(self.mixture[source], own)

    def leave(
        self, tangents: Float[Tensor, "token width column"], mixed: Float[Tensor, "token head value_width column"], first: int
    ) -> Float[Tensor, "token width column"]:
        """Tangents of the layer's input and of its head outputs -> tangents of its output."""
        assert self.through is not None
        through = self.through[first:].transpose(1, 2)
        heads = mixed.reshape(len(mixed), -1, mixed.shape[-1])
        if self.project is not None:
            return torch.bmm(through, torch.baddbmm(tangents, self.project.expand(len(mixed), -1, -1), heads))
        assert self.merge is not None
        return torch.bmm(through, tangents).baddbmm_(self.merge[first:].transpose(1, 2), heads)


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
