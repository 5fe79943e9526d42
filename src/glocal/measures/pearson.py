"""Pearson's correlation over sources."""

from jaxtyping import Float
from torch import Tensor

from glocal.measures._rows import correlation, reachable
from glocal.registry import registered


@registered(
    summary="Pearson correlation over reachable sources",
    source="Pearson 1895",
    limits="dominated by the largest shares; undefined (NaN) for constant rows",
    extra=(("unit", "none"), ("range", (-1.0, 1.0)), ("larger_is", "more alike")),
)
def pearson(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """Correlation of the two rows over the sources that either draws on; -1 to 1.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows]. A row with a NaN gives NaN. A row that is constant
    there (a single source, a uniform row) gives NaN.
    """
    return correlation(attention, attribution, reachable(attention, attribution))
