"""How much of a head's distribution stays on the target's own token."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from glocal.patterns._rows import mean_over_targets, positions
from glocal.registry import registered


@registered(
    summary="mean share on the target's own token",
    source="Brunner et al. 2020 (1908.04211): contribution of the own input token",
    limits="says nothing about where the rest goes",
    extra=(("unit", "share"),),
)
def own_share(
    maps: Float[Tensor, "layer head target source"], category: Sequence[str], *, targets: Sequence[int] | None = None
) -> Float[Tensor, "layer head"]:
    """Mean over targets of map_ii (shares); masked rows (NaN) are left out."""
    own = positions(maps, category, targets)[:, None].expand(*maps.shape[:-1], 1)
    return mean_over_targets(maps.gather(-1, own).squeeze(-1))
