"""Collapsed forward mode: carry tangents from layer to layer by the matrices of `maps`, instead of through the network's code."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.jacobian.making import token_wise
from glocal.jacobian.maps import Maps
from glocal.jacobian.seeds import Seeds
from glocal.jacobian.squares import Push


@dataclass(frozen=True)
class Columns:
    """Tangents at one place between layers: zero at tokens before `first`, columns last; `segments` as (token, start, stop) of columns."""

    tangents: Float[Tensor, "token width column"]
    first: int
    segments: Sequence[tuple[int, int, int]]

    def through(self, maps: Maps, *, entering: bool) -> tuple[Float[Tensor, "token head value_width column"], "Columns | None"]:
        """Tangents of one layer's head outputs, and of its output if the maps have it.

        `entering`: this is the first layer, whose input has tangents only at the tokens that `segments` names.
        """
        if entering:
            mixed = self.tangents.new_zeros(len(self.tangents), maps.heads, maps.value_width, self.tangents.shape[2])
            for token, start, stop in self.segments:
                maps.mix_from(token, self.tangents[token - self.first, :, start:stop], mixed[..., start:stop], self.first)
        else:
            mixed = maps.mix(self.tangents, self.first)
        if maps.through is None:
            return mixed, None
        return mixed, Columns(maps.leave(self.tangents, mixed, self.first), self.first, self.segments)


@dataclass(frozen=True)
class Carrier:
    """Layers above the origin, in order, and where tangents enter: at the first layer's input, or by `entrance` at the word vectors.

    `maps(number)` gives the maps of a layer: kept ones, or new ones every time.
    """

    maps: Callable[[int], Maps]
    tokens: int
    entrance: Float[Tensor, "token word_width width"] | None
    causal: bool
    hidden: bool  # yield layer outputs instead of head outputs
    wanted: Sequence[bool]  # which layers to yield
    dtype: torch.dtype

    def push(self, seeds: Seeds, like: Tensor) -> Push:
        """The push of `seeds`: one chunk through all layers."""
        return lambda start, stop: self.carry(seeds.rows(start, stop, like), seeds.segments(start, stop))

    def carry(self, rows: Float[Tensor, "chunk width"], segments: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, Tensor]]:
        """For every wanted layer: the first token whose tangents are not zero, and the tangents from there on, columns last.

        `segments` says which of the directions `rows` enter at which token, as (token, start, stop), tokens ascending.
        Heads come as [token, head, value_width, chunk], layer outputs as [token, width, chunk].
        """
        columns: Columns | None = self.enter(rows, segments)
        for number, wanted in enumerate(self.wanted):
            assert columns is not None
            mixed, columns = columns.through(self.maps(number), entering=number == 0)
            if wanted:
                yield self._yielded(mixed, columns)

    def by_layer(
        self,
        seeds: Seeds,
        like: Tensor,
        size: int,
        others: tuple[Float[Tensor, "chunk width"], Sequence[tuple[int, int, int]]],
        add: Callable[[int, int, int, int, Tensor], None],
        compare: Callable[[int, tuple[int, Tensor]], None],
        advance: Callable[[int], None],
    ) -> None:
        """One layer after the other for all chunks, so that the maps of one layer are held at a time, and the tangents of all chunks.

        `add(layer, start, stop, first, tangents)` gets what `carry` would have yielded; `others` are directions beside the seeds, whose
        outputs go to `compare` before any of the seeds' of that layer are computed.
        """
        chunks = seeds.chunks(size)
        beside: Columns | None = self.enter(*others)
        kept: list[Columns | None] = [self.enter(seeds.rows(*chunk, like), seeds.segments(*chunk)) for chunk in chunks]
        layer = 0
        for number, wanted in enumerate(self.wanted):
            maps = self.maps(number)
            assert beside is not None
            mixed, beside = beside.through(maps, entering=number == 0)
            if wanted:
                compare(layer, self._yielded(mixed, beside))
            for place, (start, stop) in enumerate(chunks):
                columns = kept[place]
                assert columns is not None
                mixed, kept[place] = columns.through(maps, entering=number == 0)
                if wanted:
                    add(layer, start, stop, *self._yielded(mixed, kept[place]))
                advance(stop - start)
            layer += wanted

    def enter(self, rows: Float[Tensor, "chunk width"], segments: Sequence[tuple[int, int, int]]) -> Columns:
        """The tangents at the first layer's input."""
        rows = rows.to(self.dtype)
        first = segments[0][0] if self.causal else 0
        entering = [
            rows[start:stop].T if self.entrance is None else self.entrance[token].T @ rows[start:stop].T for token, start, stop in segments
        ]
        tangents = rows.new_zeros(self.tokens - first, entering[0].shape[0], len(rows))
        for (token, start, stop), each in zip(segments, entering, strict=True):
            tangents[token - first, :, start:stop] = each
        return Columns(tangents, first, segments)

    def _yielded(self, mixed: Tensor, after: Columns | None) -> tuple[int, Tensor]:
        if not self.hidden:
            return self.tokens - len(mixed), mixed
        assert after is not None
        return after.first, after.tangents


def entrance_map(
    function: Callable[[Tensor], Tensor], x: Float[Tensor, "token word_width"], chunk: int
) -> Float[Tensor, "token word_width width"]:
    """The Jacobian of every token's first layer input by its own word vector, transposed."""
    return token_wise(lambda words: (function(words),), x, chunk)[0]
