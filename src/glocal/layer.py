"""One layer of a network at one point, with its attention cut out: what the models give and the collapsed engine takes."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Layer:
    """What the attention gets, and the layer as two functions without it.

    `local(x)` gives (query, key, value, layer output) with the head outputs held constant, `queries(x)` only the first three;
    `merge(z)` the layer output with the layer's input held constant. All of them without batch dimension.
    """

    query: Float[Tensor, "head target head_width"]
    key: Float[Tensor, "kv_head source head_width"]
    value: Float[Tensor, "kv_head source value_width"]
    weights: Float[Tensor, "head target source"]
    head: Float[Tensor, "target head value_width"]
    hidden: Float[Tensor, "source width"]
    projection: Float[Tensor, "head width value_width"] | None
    softcap: float | None
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    queries: Callable[[Tensor], tuple[Tensor, ...]]
    local: Callable[[Tensor], tuple[Tensor, ...]]
    merge: Callable[[Tensor], Tensor]
