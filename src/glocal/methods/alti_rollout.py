"""ALTI: its maps multiplied through the layers."""

from glocal.methods._contributions import multiplied
from glocal.methods._whole import everything
from glocal.methods.alti import alti_maps
from glocal.methods.rollout import chosen
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="ALTI's maps multiplied through the layers (global)",
    source="Ferrando et al. 2022 (ALTI, 2203.04212)",
    needs="as alti",
    cost="as alti, and a product of two n times n matrices per layer",
    limits="as alti",
    extra=(("unit", "share"),),
)
def alti_rollout(work: Work, *, norm: str = "l1", through: str = "ln1") -> Made:
    """R_1 = C_1, R_l = C_l R_{l-1} [layer, target, source] (shares; rows sum to one), C and options as in `alti`.

    No identity is added. Of sources that are groups of tokens, the sum. Raises as `alti`.
    """
    maps = alti_maps(everything(work), "alti_rollout", norm=norm, past=through)
    return Made({"alti_rollout": chosen(work, multiplied(maps))}, {})
