"""Value Zeroing: its maps multiplied through the layers."""

from glocal.methods._contributions import multiplied
from glocal.methods._whole import everything
from glocal.methods.rollout import chosen
from glocal.methods.value_zeroing import value_zeroing_maps
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="Value Zeroing's maps multiplied through the layers (global)",
    source="Mohebbi et al. 2023 (Value Zeroing, 2301.12971)",
    needs="as value_zeroing",
    cost="as value_zeroing, and a product of two n times n matrices per layer",
    limits="as value_zeroing",
    extra=(("unit", "share"),),
)
def value_zeroing_rollout(work: Work) -> Made:
    """R_1 = C_1, R_l = C_l R_{l-1} [layer, target, source] (shares; rows sum to one), C as in `value_zeroing`, without an added identity.

    Of sources that are groups of tokens, the sum. Raises as `value_zeroing`.
    """
    maps = value_zeroing_maps(everything(work), "value_zeroing_rollout")
    return Made({"value_zeroing_rollout": chosen(work, multiplied(maps))}, {})
