"""Collapsed forward mode: carry tangents from layer to layer by the matrices of `maps`, instead of through the network's code."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glocal.jacobian.making import token_wise
from glocal.jacobian.maps import Maps
from glocal.jacobian.seeds import Seeds
from glocal.jacobian.squares import Push


@dataclass(frozen=True)
class Carrier:
    """Layers above the origin, in order, and where tangents enter: at the first layer's input, or by `entrance` at the word vectors."""

    maps: Sequence[Maps]
    entrance: Float[Tensor, "token word_width width"] | None
    causal: bool
    hidden: bool  # yield layer outputs instead of head outputs
    wanted: Sequence[bool]  # which layers to yield

    def push(self, seeds: Seeds, like: Tensor) -> Push:
        """The push of `seeds`."""
        return lambda start, stop: self.carry(seeds.rows(start, stop, like), seeds.segments(start, stop))

    def carry(self, rows: Float[Tensor, "chunk width"], segments: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, Tensor]]:
        """For every wanted layer: the first token whose tangents are not zero, and the tangents from there on, columns last.

        `segments` says which of the directions `rows` enter at which token, as (token, start, stop), tokens ascending.
        Heads come as [token, head, value_width, chunk], layer outputs as [token, width, chunk].
        """
        rows = rows.to(self.maps[0].rows.dtype)
        first = segments[0][0] if self.causal else 0
        tokens = len(self.maps[0].rows) - first
        entering = [self._enter(token, rows[start:stop].T) for token, start, stop in segments]
        tangents = rows.new_zeros(tokens, entering[0].shape[0], len(rows))
        for (token, start, stop), each in zip(segments, entering, strict=True):
            tangents[token - first, :, start:stop] = each
        for number, (maps, wanted) in enumerate(zip(self.maps, self.wanted, strict=True)):
            if number:
                mixed = maps.mix(tangents, first)
            else:
                mixed = rows.new_zeros(tokens, maps.heads, maps.value_width, len(rows))
                for (token, start, stop), each in zip(segments, entering, strict=True):
                    maps.mix_from(token, each, mixed[..., start:stop], first)
            if wanted and not self.hidden:
                yield first, mixed
            if maps.through is not None:
                tangents = maps.leave(tangents, mixed, first)
                if wanted and self.hidden:
                    yield first, tangents

    def _enter(self, token: int, columns: Tensor) -> Tensor:
        return columns if self.entrance is None else self.entrance[token].T @ columns


def entrance_map(
    function: Callable[[Tensor], Tensor], x: Float[Tensor, "token word_width"], chunk: int
) -> Float[Tensor, "token word_width width"]:
    """The Jacobian of every token's first layer input by its own word vector, transposed."""
    return token_wise(lambda words: (function(words),), x, chunk)[0]
