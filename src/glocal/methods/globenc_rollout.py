"""GlobEnc: its maps multiplied through the layers."""

import torch

from glocal.methods._contributions import EncoderVectors, multiplied
from glocal.methods._whole import everything
from glocal.methods.rollout import chosen
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="GlobEnc's maps multiplied through the layers (global)",
    source="Modarressi et al. 2022 (GlobEnc, 2205.03286)",
    needs="as globenc",
    cost="as globenc, and a product of two n times n matrices per layer",
    limits="as globenc; norms are multiplied as if they were shares",
    extra=(("unit", "product of norms"),),
)
def globenc_rollout(work: Work) -> Made:
    """R_1 = N_1, R_l = N_l R_{l-1} [layer, target, source], N = N_ENC of `globenc`, without an added identity and without normalisation.

    Rows do not sum to one and grow with the layers; compare shares or ranks. Of sources that are groups of tokens, the sum. Raises as
    `globenc`.
    """
    vectors = EncoderVectors(everything(work), "globenc_rollout", residual=True)
    maps = [torch.cat([parts.norm(dim=-1) for _, parts in chunks]) for _, chunks in vectors.every()]
    return Made({"globenc_rollout": chosen(work, multiplied(maps))}, {})
