"""The exact derivative of one layer at one point, as a few matrices per token.

Between two attentions a layer works token by token, so that its Jacobian is one small matrix per token; the attention joins the tokens
by numbers that are known from the pass. With S the scores before the softmax, w = A dS/d(q k) and U[i, j] = w[i, j] (v[j] - z[i]),

    dz[i] = sum_j A[i, j] dv[j] + sum_j U[i, j] (k[j] . dq[i] + q[i] . dk[j]),

with or without sinks, masks and position biases; soft-capped scores only change w.
"""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor


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
