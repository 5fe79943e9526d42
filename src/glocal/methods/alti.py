"""ALTI's map of a layer: how near what each token adds is to the attention block's output."""

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.methods._contributions import Contributions, EncoderVectors, through
from glocal.registry import registered
from glocal.request import Made, Work, one_of

NORMS = {"l1": 1, "l2": 2}
THROUGH = ("ln1", "ln2")


@registered(
    summary="share of each token by how near its part is to the attention block's output (local)",
    source="Ferrando et al. 2022 (ALTI, 2203.04212)",
    needs="one pass, and a post-norm layer",
    cost="about as a pass",
    limits="parts further away than the output is long count as nothing; without the feed-forward block",
    extra=(("unit", "share"),),
)
def alti(work: Work, *, norm: str = "l1", through: str = "ln1") -> Made:
    """c[layer, target, source] = max(0, ||y_i|| - ||y_i - T_i(x_j)||) / sum over sources (shares; rows sum to one).

    T_i(x_j) = g^1_i(u_{i<-j}) as in `attnresln_n`, y_i the first normaliser's output; with `through="ln2"` GlobEnc's vectors and the
    layer's output. `norm`: "l1" (the paper's) or "l2". A row in which every part is too far away is NaN. Raises `ChoiceError`,
    `ModelError`, `FreezeError`, `MemoryBudgetError`.
    """
    return Made({"alti": alti_maps(work, "alti", norm=norm, past=through)}, {})


def alti_maps(work: Work, name: str, *, norm: str, past: str) -> Float[Tensor, "layer target source"]:
    """The maps of `alti`, for a method called `name`."""
    one_of("norm", norm, tuple(NORMS))
    one_of("through", past, THROUGH)
    if past == "ln1":
        vectors = Contributions(work, name, residual=True)
        every = vectors.every(lambda layer, targets, u: through(vectors.after(layer), targets, u))
    else:
        vectors = EncoderVectors(work, name, residual=True)
        every = vectors.every()
    maps = []
    for layer, chunks in every:
        output = (vectors.after(layer) if past == "ln1" else vectors.last(layer)).output
        maps.append(torch.cat([_shares(parts, output.index_select(0, targets), NORMS[norm]) for targets, parts in chunks]))
    return torch.stack(maps)


def _shares(parts: Float[Tensor, "target source width"], output: Float[Tensor, "target width"], order: int) -> Tensor:
    away = torch.linalg.vector_norm(output.unsqueeze(1) - parts, order, dim=-1)
    near = (torch.linalg.vector_norm(output, order, dim=-1, keepdim=True) - away).clamp(min=0)
    return near / near.sum(-1, keepdim=True)
