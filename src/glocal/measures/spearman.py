"""Spearman's rank correlation over sources."""

from jaxtyping import Float
from torch import Tensor

from glocal.measures._rows import average_ranks, correlation, masked_rows, reachable
from glocal.registry import registered


@registered(
    summary="Spearman rank correlation over reachable sources",
    source="Spearman 1904, ties by average ranks",
    limits="small shares count as much as large ones; undefined (NaN) for constant rows",
    extra=(("unit", "none"), ("range", (-1.0, 1.0)), ("larger_is", "more alike")),
)
def spearman(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """Pearson correlation of average ranks over the sources that either row draws on; -1 to 1.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows]. A row with a NaN gives NaN. A row
    that is constant there gives NaN.
    """
    among = reachable(attention, attribution)
    value = correlation(average_ranks(attention.double(), among), average_ranks(attribution.double(), among), among)
    return value.masked_fill(masked_rows(attention, attribution), float("nan"))
