"""Attention rollout: attention weights multiplied through the layers."""

import torch

from glocal.errors import ChoiceError
from glocal.groups import sum_groups
from glocal.methods._contributions import multiplied
from glocal.registry import registered
from glocal.request import Made, Work, one_of

NORMALISE = ("none", "receptive_field")


@registered(
    summary="attention, averaged over heads and with the residual connection, multiplied through the layers (global)",
    source="Abnar and Zuidema 2020 (2005.00928)",
    needs="one pass",
    cost="a product of two n times n matrices per layer",
    limits="takes attention for the whole of a layer: no values, no feed-forward block; half of everything is called residual",
    extra=(("unit", "share"),),
)
def rollout(work: Work, *, residual: float = 0.5, normalise: str = "none") -> Made:
    """R_1 = M_1, R_l = M_l R_{l-1} [layer, target, source] with M = (1 - r) mean over heads of A + r I (shares; rows sum to one).

    `residual`: r. `normalise="receptive_field"`: divided by the rollout of attention that is even over all visible tokens, rows then sum to
    one again, which takes out that early tokens are on more paths in causal models (glocal's reading of the paper's remark on decoders). Of
    sources that are groups of tokens, the sum. Raises `ChoiceError`.
    """
    one_of("normalise", normalise, NORMALISE)
    check_residual(residual)
    seen = work.seen
    eye = torch.eye(len(seen.hidden[0]), dtype=seen.attention[0].dtype, device=seen.attention[0].device)
    mixed = lambda weights: (1 - residual) * weights.mean(0) + residual * eye  # noqa: E731
    maps = multiplied([mixed(weights) for weights in seen.attention])
    if normalise == "receptive_field":
        visible = [(weights > 0).any(0).to(eye.dtype) for weights in seen.attention]
        even = multiplied([mixed((each / each.sum(-1, keepdim=True)).unsqueeze(0)) for each in visible])
        maps = torch.where(even > 0, maps / torch.where(even > 0, even, 1), 0)
        maps = maps / maps.sum(-1, keepdim=True)
    return Made({"rollout": chosen(work, maps)}, {})


def check_residual(residual: float) -> None:
    """Raise `ChoiceError` unless it is a share below one."""
    if isinstance(residual, bool) or not isinstance(residual, int | float) or not 0 <= residual < 1:
        raise ChoiceError("The residual share is out of range.", asked=f"residual={residual!r}", allowed="0 up to below 1", do="choose one")


def chosen(work: Work, maps: torch.Tensor) -> torch.Tensor:
    """The layers and targets asked for of maps [layer, target, source] of all, sources summed over groups."""
    request = work.request
    assert request.layers and request.targets
    some = maps[[layer - 1 for layer in request.layers]][:, list(request.targets)]
    return some if request.groups is None else sum_groups(some, request.groups)
