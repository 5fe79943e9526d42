"""Overlap of the k largest shares."""

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.measures._rows import masked_rows, reachable
from glocal.registry import registered


@registered(
    summary="overlap of the k sources with the largest shares (k = 3)",
    source="standard",
    limits="ties are broken by position",
    extra=(("unit", "share of k"), ("range", (0.0, 1.0)), ("larger_is", "more alike")),
)
def topk(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"], *, k: int = 3) -> Float[Tensor, "*rows"]:
    """|top-k of one and top-k of the other| / k, with k cut to the number of sources that either row draws on.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows] (shares of k). A row with a NaN gives NaN. Ties are
    broken in favour of earlier sources. Raises `ChoiceError` unless k is at least 1.
    """
    if k < 1:
        raise ChoiceError("k must be at least 1.", asked=f"k={k}", allowed="1 or more", do="pass another k")
    count = reachable(attention, attribution).sum(-1, keepdim=True).clamp(max=k)
    rank = lambda x: x.sort(dim=-1, descending=True, stable=True).indices.argsort(-1)  # noqa: E731
    both = (rank(attention) < count) & (rank(attribution) < count)
    value = both.sum(-1).double() / count.squeeze(-1)
    return torch.where(masked_rows(attention, attribution), torch.nan, value)
