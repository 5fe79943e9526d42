"""Tangents of outputs -> squared norms: which output is explained, and by which norm."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def make_energy(
    norm: str,
    *,
    targets: Tensor,
    heads: Tensor | None,
    projection: Float[Tensor, "head width head_width"] | None = None,
) -> Callable[[Tensor], Tensor]:
    """A function [chunk, position, head, head_width] -> [chunk, head, target] (or [chunk, position, width], with one head).

    `frobenius`: ||J||_F^2, summed over output components. `summed`: ||J^T 1||^2, the gradient of the sum of the components, which other
    code uses; basis-dependent, and identically zero behind a LayerNorm with constant gain. With `projection` the norm is that of
    projection @ z. Half-precision tangents are squared in float32.
    """
    if norm == "frobenius":
        # ||W dz|| = ||R dz|| with W = QR: the square root of the Gram matrix, which is small and keeps the square non-negative.
        factor = None if projection is None else torch.linalg.qr(_wide(projection), mode="r")[1]
        reduce = lambda dz: dz.square().sum(-1)  # noqa: E731
    else:
        factor = None if projection is None else _wide(projection).sum(-2, keepdim=True)
        reduce = lambda dz: dz.sum(-1).square()  # noqa: E731

    def energy(tangents: Tensor) -> Tensor:
        tangents = tangents.index_select(1, targets)
        if tangents.dim() == 3:
            tangents = tangents.unsqueeze(2)
        chosen = tangents if heads is None else tangents.index_select(2, heads)
        wide = _wide(chosen)
        if factor is not None:
            wide = torch.einsum("cthi,hoi->ctho", wide, factor if heads is None else factor.index_select(0, heads))
        return reduce(wide).transpose(1, 2)

    return energy


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
