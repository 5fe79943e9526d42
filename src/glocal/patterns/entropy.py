"""How broad a head's distribution is."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.patterns._rows import mean_over_targets, positions
from glocal.registry import registered


@registered(
    summary="mean entropy of a row (nats)",
    source="Clark et al. 2019, whose notebook smooths by 0.0001; here smoothing=0 by default",
    limits="grows with the number of sources: compare texts of one length, or with the uniform row's ln n",
    extra=(("unit", "nats"),),
)
def entropy(
    maps: Float[Tensor, "layer head target source"],
    category: Sequence[str],
    *,
    targets: Sequence[int] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "layer head"]:
    """Mean over targets of -sum_j a_j ln a_j (nats), with 0 ln 0 = 0 and a = (1 - smoothing) map + smoothing / n.

    0 for a row on one source, ln n for a uniform one. Masked rows (NaN) are left out.
    """
    positions(maps, category, targets)
    smooth = (1 - smoothing) * maps + smoothing / maps.shape[-1]
    return mean_over_targets(torch.special.entr(smooth).sum(-1))
