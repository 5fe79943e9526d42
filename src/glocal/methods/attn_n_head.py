"""Norm-based attention of a head: how large what it reads is."""

import torch

from glocal.groups import sum_groups
from glocal.methods._contributions import read
from glocal.models.outputs import check_attention_is_linear_in_values
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="norm of what the head reads from each token: weight times transformed vector (local)",
    source="Kobayashi et al. 2020 (2004.10102)",
    needs="one pass, and a linear output projection",
    cost="nothing beyond the pass",
    limits="local: sources are inputs of the head's own layer; norms ignore that vectors may cancel",
    extra=(("unit", "norm of a part of the attention's output"),),
)
def attn_n_head(work: Work) -> Made:
    """N[layer, head, target, source] = ||A_ij f(x_j)|| = A_ij ||f(x_j)||, f(x) = (x W_V + b_V) W_O of the head (norms).

    The output projection's bias is left out. Of sources that are groups of tokens, the norms of their tokens add up. Fully masked rows are
    NaN. Raises `ModelError` where no linear map follows the heads, `FreezeError` where heads are not attention times values.
    """
    check_attention_is_linear_in_values(work.seen)
    request, seen = work.request, work.seen
    assert request.layers and request.heads and request.targets
    heads = torch.tensor([head - 1 for head in request.heads], device=seen.hidden[0].device)
    targets = torch.tensor(request.targets, device=heads.device)
    made = []
    for layer in request.layers:
        size = read(seen, layer, "attn_n_head").norm(dim=-1).index_select(0, heads)
        made.append(seen.attention[layer - 1].index_select(0, heads).index_select(1, targets) * size.unsqueeze(1))
    maps = torch.stack(made)
    return Made({"attn_n_head": maps if request.groups is None else sum_groups(maps, request.groups)}, {})
