"""The part of the attention weights that the head's output can tell apart."""

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.models.outputs import check_attention_is_linear_in_values
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="attention without what the head's values cannot tell apart (local)",
    source="Brunner et al. 2020 (1908.04211)",
    needs="one pass, and a head that is attention times values",
    cost="a singular value decomposition per head; in causal models per head and target",
    limits="equals attention wherever there are no more tokens than the head is wide; may be negative, rows do not sum to one",
    extra=(("unit", "attention weight"),),
)
def effective_attention(work: Work, *, tolerance: float | None = None) -> Made:
    """A U U^T [layer, head, target, source], U the left singular vectors of the head's values with singular values above a tolerance.

    A minus its projection on the left null space of the values V [source, head_width] (with their bias; the output projection has full
    rank on them): A_perp V = A V, so the head's output stays the same. `tolerance`: relative to the largest singular value; None is
    max(V.shape) times the machine epsilon. In causal models every target sees the values up to its own only, so that the future stays 0.
    May be negative; rows do not sum to one. Raises `FreezeError` where a head is not attention times values, `ChoiceError` for groups.
    """
    request, seen = work.request, work.seen
    assert request.layers and request.heads and request.targets
    if request.groups is not None:
        raise ChoiceError("Effective attention is defined for tokens.", asked="groups", allowed="groups=None", do="leave groups out")
    if tolerance is not None and (isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1):
        raise ChoiceError(
            "The tolerance is out of range.", asked=f"tolerance={tolerance!r}", allowed="None, or 0 up to below 1", do="choose one"
        )
    check_attention_is_linear_in_values(seen)
    heads = torch.tensor([head - 1 for head in request.heads], device=seen.hidden[0].device)
    targets = torch.tensor(request.targets, device=heads.device)
    made = []
    for layer in request.layers:
        weights, value = seen.attention[layer - 1], seen.value[layer - 1]
        value = value.repeat_interleave(len(weights) // len(value), 0).index_select(0, heads)
        chosen = weights.index_select(0, heads).index_select(1, targets)
        made.append(_causal(chosen, value, targets, tolerance) if seen.causal else _seen(chosen, value, tolerance))
    return Made({"effective_attention": torch.stack(made)}, {})


def _seen(
    weights: Float[Tensor, "*rows target source"], value: Float[Tensor, "*rows source head_width"], tolerance: float | None
) -> Float[Tensor, "*rows target source"]:
    wide = value.double()
    left, size, _ = torch.linalg.svd(wide, full_matrices=False)
    relative = max(wide.shape[-2:]) * torch.finfo(value.dtype).eps if tolerance is None else tolerance
    kept = left * (size > relative * size.amax(-1, keepdim=True)).unsqueeze(-2)
    return (weights.double() @ kept @ kept.transpose(-1, -2)).to(weights.dtype)


def _causal(weights: Tensor, value: Tensor, targets: Tensor, tolerance: float | None) -> Tensor:
    rows = []
    for place, target in enumerate(targets.tolist()):
        row = torch.zeros_like(weights[:, place : place + 1])
        row[..., : target + 1] = _seen(weights[:, place : place + 1, : target + 1], value[:, : target + 1], tolerance)
        rows.append(row)
    return torch.cat(rows, 1)
