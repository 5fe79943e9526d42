"""Whether both rows have their largest share at the same source."""

from jaxtyping import Bool, Float
from torch import Tensor

from glocal.measures._rows import masked_rows
from glocal.registry import registered


@registered(
    summary="agreement on the source with the largest share",
    source="standard",
    limits="says nothing about the other sources",
    extra=(("unit", "share of rows"), ("range", (0.0, 1.0)), ("larger_is", "more alike")),
)
def top1(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """1 where the two rows have their largest share at the same source, else 0; sources that tie for the largest count as one set.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows]. A row with a NaN gives NaN. With ties, 1 if
    the two sets meet.
    """
    agree = (_largest(attention) & _largest(attribution)).any(-1).double()
    return agree.masked_fill(masked_rows(attention, attribution), float("nan"))


def _largest(rows: Float[Tensor, "*rows source"]) -> Bool[Tensor, "*rows source"]:
    return rows == rows.amax(-1, keepdim=True)
