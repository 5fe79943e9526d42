"""Overlap of the k largest shares."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.measures._rows import masked_rows, places, reachable
from glocal.registry import registered


@registered(
    summary="overlap of the k sources with the largest shares (k = 3)",
    source="standard; ties by equal parts: glocal",
    limits="where few more than k sources can be reached, an overlap is certain",
    extra=(("unit", "share of k"), ("range", (0.0, 1.0)), ("larger_is", "more alike")),
)
def topk(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"], *, k: int = 3) -> Float[Tensor, "*rows"]:
    """|top k of one and top k of the other| / k, with k cut to the number of sources that either row draws on; 0 to 1.

    Sources that tie for the last places share them in equal parts, and the overlap at a source is the smaller of its two parts: no order
    of sources is preferred. `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows] (shares of k). A row with a
    NaN gives NaN. Raises `ChoiceError` unless k is at least 1.
    """
    if k < 1:
        raise ChoiceError("k must be at least 1.", asked=f"k={k}", allowed="1 or more", do="pass another k")
    among = reachable(attention, attribution)
    count = among.sum(-1, keepdim=True).clamp(max=k)
    both = torch.minimum(_belonging(attention.double(), among, count), _belonging(attribution.double(), among, count))
    value = (both.sum(-1) / count.squeeze(-1)).clamp(max=1)
    return value.masked_fill(masked_rows(attention, attribution), torch.nan)


def _belonging(
    shares: Float[Tensor, "*rows source"], among: Bool[Tensor, "*rows source"], count: Int[Tensor, "*rows 1"]
) -> Float[Tensor, "*rows source"]:
    """How far each source is one of the `count` largest: 1, 0, or an equal part of what is left to those that tie."""
    larger, at_least_as_large = places(-shares, among)
    part = (count - larger).double() / (at_least_as_large - larger)
    return torch.where(among, part.clamp(0, 1), 0.0)
