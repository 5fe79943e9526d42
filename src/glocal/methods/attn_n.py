"""Norm-based attention of a layer: how large what all heads together read is."""

from glocal.methods._contributions import Contributions, norms_and_mixing
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="norm of what a layer's attention reads from each token, heads summed as vectors (local)",
    source="Kobayashi et al. 2020 (2004.10102)",
    needs="one pass, and a linear output projection",
    cost="about as a pass",
    limits="without the residual connection, which carries most of a token",
    extra=(("unit", "norm of a part of the attention's output"),),
)
def attn_n(work: Work) -> Made:
    """N[layer, target, source] = ||sum_h A^h_ij f^h(x_j)|| (norms), and `attn_n_mixing_ratio` [layer, target] (share).

    f^h(x) = (x W_V + b_V) W_O of the head, without the output projection's bias; heads are summed as vectors before the norm. Raises
    `ModelError`, `FreezeError`, `MemoryBudgetError`.
    """
    return norms_and_mixing(Contributions(work, "attn_n"), "attn_n")
