"""Local: what a head reads from its own layer's input."""

import torch

from glocal.groups import sum_groups
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="attention weights: what the head reads from its own layer's input (local)",
    source="Vaswani et al. 2017, eq. 1",
    needs="one pass",
    cost="nothing beyond the pass",
    limits="not what the output depends on: inputs of the layer are mixtures already, and value vectors differ in size",
    default=True,
)
def attention(work: Work) -> Made:
    """Attention weights A[layer, head, target, source] (shares).

    Rows sum to one, except in families with attention sinks, where the sink's share is missing. Fully masked rows are NaN. Of sources that
    are groups of tokens, the sum.
    """
    request = work.request
    assert request.layers and request.heads and request.targets
    maps = torch.stack([work.seen.attention[layer - 1] for layer in request.layers])
    heads = torch.tensor([head - 1 for head in request.heads], device=maps.device)
    targets = torch.tensor(request.targets, device=maps.device)
    chosen = maps.index_select(1, heads).index_select(2, targets)
    if request.groups is not None:
        chosen = sum_groups(chosen, request.groups)
    return Made({"attention": chosen}, {})
