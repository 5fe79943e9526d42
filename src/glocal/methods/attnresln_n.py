"""Norm-based attention of a layer with its residual connection and normaliser."""

from glocal.methods._contributions import Contributions, norms_and_mixing, through
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="norm of what each token adds to attention, residual connection and normaliser (local)",
    source="Kobayashi et al. 2021 (2109.07152), AttnResLn-N",
    needs="one pass, and a post-norm layer",
    cost="about as a pass",
    limits="without the feed-forward block; norms ignore direction",
    extra=(("unit", "norm of a part of the attention block's output"),),
)
def attnresln_n(work: Work) -> Made:
    """N[layer, target, source] = ||g_{y_i}(u_{i<-j})|| (norms), and `attnresln_n_mixing_ratio` [layer, target] (share).

    u as in `attnres_n`; g_y(v) = (v - mean v) / s(y) * gain, with the statistics of the true input y_i of the normaliser, without its
    bias. Raises `ModelError` for layers that normalise before their attention, `FreezeError`, `MemoryBudgetError`.
    """
    vectors = Contributions(work, "attnresln_n", residual=True)
    return norms_and_mixing(vectors, "attnresln_n", lambda layer, targets, u: through(vectors.after(layer), targets, u))
