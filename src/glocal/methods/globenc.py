"""GlobEnc's map of a layer: norms after the whole encoder layer, but for what the feed-forward block computes."""

from glocal.methods._contributions import EncoderVectors, norms_and_mixing
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="norm of what each token adds to an encoder layer's output, feed-forward block left out (local)",
    source="Modarressi et al. 2022 (GlobEnc, 2205.03286), N_ENC",
    needs="one pass, and a post-norm layer that ends with a normaliser",
    cost="about as a pass",
    limits="the feed-forward block is felt only through the second normaliser's statistics; norms ignore direction",
    extra=(("unit", "norm of a part of the layer's output"),),
)
def globenc(work: Work) -> Made:
    """N_ENC[layer, target, source] = ||g^2_i(g^1_i(u_{i<-j}))|| (norms), and `globenc_mixing_ratio` [layer, target] (share).

    u as in `attnres_n`; g^1 and g^2 are the layer's two normalisers with the statistics of their true inputs, without biases. Raises
    `ModelError` for layers of another make, `FreezeError`, `MemoryBudgetError`.
    """
    return norms_and_mixing(EncoderVectors(work, "globenc", residual=True), "globenc")
