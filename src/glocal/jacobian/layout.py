"""The sizes of one layer, and the choices that follow from them."""

from dataclasses import dataclass

import torch

from glocal.layer import Layer


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
    def attention_flops(self) -> float:
        """Floating-point operations of one tangent in the attention itself, which making the maps does without."""
        return 4 * self.tokens**2 * self.heads * (self.head_width + self.value_width)

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
