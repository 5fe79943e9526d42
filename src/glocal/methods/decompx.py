"""DecompX: every layer's vectors as sums of what the tokens gave."""

import torch

from glocal.groups import sum_groups
from glocal.methods._decompx import cheap_tangents, check
from glocal.methods._output import facts_of
from glocal.models.decompose import decompose
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="norm of what each token of the text adds to a layer's output, through all layers below (global)",
    source="Modarressi et al. 2023 (DecompX, 2306.02873)",
    needs="attention, normalisers and activations that can be held constant",
    cost="one pass of n copies of the text",
    limits="attention weights are constants; shares of biases and of activations are conventions; norms ignore direction",
    extra=(("unit", "norm of a part of the layer's output"),),
)
def decompx(work: Work, *, bias: str = "absdot") -> Made:
    """d[layer, target, source] = ||x_{target <= source}^layer||, vectors that add up to the layer's output (norms).

    Attention weights and normalisers' statistics are held constant, an activation is its slope from zero, f(p) / p. `bias`: "absdot"
    shares every bias b by |b . v_k| over the vectors v_k right there (before the residual connection), "norm" by ||v_k||, "equal",
    "source" as a source of its own (`decompx_bias` [layer, target], not among the sources), "none" leaves it out. The fact `largest_gap`
    is the largest difference of a sum to its hidden state, relative to it. Groups add up as vectors. Raises `FreezeError` where sums are
    further away than 1e-5 or something cannot be held constant, `ChoiceError` for another origin, `MemoryBudgetError`.
    """
    check(work, "decompx", bias)
    request = work.request
    assert request.layers and request.targets
    with cheap_tangents(work):
        found = decompose(work.model, work.seen, bias=bias)
    tokens = len(work.seen.hidden[0])
    maps, biases = [], []
    for layer in request.layers:
        vectors = found.layers[layer][:, list(request.targets)]
        kept = vectors[:tokens].movedim(0, -1)
        kept = kept if request.groups is None else sum_groups(kept, request.groups)
        maps.append(kept.norm(dim=1))
        biases.append(vectors[tokens:].sum(0).norm(dim=-1))
    made = {"decompx": torch.stack(maps)} | ({"decompx_bias": torch.stack(biases)} if bias == "source" else {})
    return Made(made, facts_of("decompx", largest_gap=found.largest_gap))
