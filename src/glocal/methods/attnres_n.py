"""Norm-based attention of a layer with its residual connection."""

from glocal.methods._contributions import Contributions, norms_and_mixing
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="norm of what each token adds to attention plus residual connection (local)",
    source="Kobayashi et al. 2021 (2109.07152), AttnRes-N",
    needs="one pass, a linear output projection, and a layer that adds its input to its attention's output",
    cost="about as a pass",
    limits="without the normaliser, which weighs dimensions",
    extra=(("unit", "norm of a part of the attention block's output"),),
)
def attnres_n(work: Work) -> Made:
    """N[layer, target, source] = ||sum_h A^h_ij f^h(x_j) + [i = j] x_i|| (norms), and `attnres_n_mixing_ratio` [layer, target] (share).

    In pre-norm layers f^h reads the normalised input, and x_i is the input itself. Raises `ModelError`, `FreezeError`, `MemoryBudgetError`.
    """
    return norms_and_mixing(Contributions(work, "attnres_n", residual=True), "attnres_n")
