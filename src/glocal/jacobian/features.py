"""Which linear map of an output's tangent has the squared length that is asked for."""

import torch
from jaxtyping import Float
from torch import Tensor


def feature_maps(
    norm: str, *, width: int, like: Tensor, projection: Float[Tensor, "head out width"] | None = None
) -> Float[Tensor, "head feature width"] | None:
    """Matrices F per head (or one for all heads) with norm = ||F dz||_F; None is the identity.

    `frobenius`: ||J||_F, summed over output components. `summed`: ||1^T J||, the gradient of the sum of the components, which other code
    uses; basis-dependent, and identically zero behind a LayerNorm with constant gain. With `projection` the norm is that of
    projection @ z; there ||W dz|| = ||R dz|| with W = QR, the square root of the small Gram matrix.
    """
    if norm == "frobenius":
        return None if projection is None else torch.linalg.qr(widened(projection), mode="r")[1]
    if projection is None:
        return torch.ones(1, 1, width, dtype=widened(like[:0]).dtype, device=like.device)
    return widened(projection).sum(-2, keepdim=True)


def features(
    tangents: Float[Tensor, "target head width column"], maps: Float[Tensor, "#head feature width"] | None
) -> Float[Tensor, "target head feature column"]:
    """F dz for every head; half precision is widened first, because squares of it would overflow."""
    wide = widened(tangents)
    return wide if maps is None else torch.matmul(maps.unsqueeze(0), wide)


def widened(x: Tensor) -> Tensor:
    """float32 instead of half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
