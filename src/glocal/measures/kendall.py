"""Kendall's rank correlation over sources."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glocal.measures._rows import reachable
from glocal.registry import registered


@registered(
    summary="Kendall rank correlation (tau-b) over reachable sources",
    source="Kendall 1945",
    limits="quadratic in sources; undefined (NaN) for constant rows",
    extra=(("unit", "none"), ("range", (-1.0, 1.0)), ("larger_is", "more alike")),
)
def kendall(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """(concordant - discordant) / sqrt(untied pairs of one * untied pairs of the other); -1 to 1, over the sources either row draws on.

    `attention`, `attribution`: rows [*rows, source] that sum to one. Returns [*rows]. A row with a NaN gives NaN. A row
    that is constant there gives NaN. Time is quadratic in sources, memory is bounded by chunks of rows.
    """
    p, q = attention.double(), attribution.double()
    shape, sources = p.shape[:-1], p.shape[-1]
    p, q, among = p.reshape(-1, sources), q.reshape(-1, sources), reachable(p, q).reshape(-1, sources)
    step = max(1, _CELLS // sources**2)
    parts = [_tau(p[row : row + step], q[row : row + step], among[row : row + step]) for row in range(0, len(p), step)]
    return torch.cat(parts).reshape(shape) if parts else p.new_zeros(shape)


_CELLS = 1 << 23  # pairs looked at together: 64 MiB a table


def _tau(p: Float[Tensor, "row source"], q: Float[Tensor, "row source"], among: Bool[Tensor, "row source"]) -> Float[Tensor, " row"]:
    pairs = among.unsqueeze(-1) & among.unsqueeze(-2)
    signs = lambda x: torch.where(pairs, (x.unsqueeze(-1) - x.unsqueeze(-2)).sign(), 0.0)  # noqa: E731
    a, b = signs(p), signs(q)
    value = (a * b).sum((-2, -1)) / (a.square().sum((-2, -1)) * b.square().sum((-2, -1))).sqrt()
    return value.masked_fill((p.isnan() | q.isnan()).any(-1), torch.nan)
