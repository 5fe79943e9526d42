"""Global, without gradients: how the output of a head changes when a token's word vector is taken away."""

from typing import Any

import torch
from torch import Tensor

from glocal.dims import SOURCE
from glocal.errors import ChoiceError, MemoryBudgetError
from glocal.jacobian.features import feature_maps, features
from glocal.models.altered import altered_outputs
from glocal.registry import registered
from glocal.request import Made, Work, one_of

REPLACEMENTS = ("zero", "mean")


@registered(
    summary="how the head's output changes when a token's word vector is taken away (global, without gradients)",
    source="occlusion (Zeiler and Fergus 2014) of the quantity that attribution differentiates; glocal",
    needs="one pass for every source token",
    cost="n passes, in batches",
    limits="a text without a word vector is not one that the model was trained on; one token at a time misses what tokens do together",
    extra=(("unit", "norm of a change of the output"),),
)
def head_occlusion(work: Work, *, replace: str = "zero") -> Made:
    """Norms of the change of every head's output at every target when one source's word vector is replaced.

    h[layer, head, target, source] = ||z^{layer, head}_target(x) - z^{layer, head}_target(x without x_source)||; position and type
    embeddings are kept. With `of="head_output"` behind the output projection, with `of="hidden"` of layer outputs (no head dimension).
    `replace`: "zero", or "mean" (of the embedding table). Sources that are groups of tokens are taken away together. Exactly 0 for future
    sources of a causal model. Raises `ChoiceError` for a source layer above 0, `MemoryBudgetError`.
    """
    one_of("replace", replace, REPLACEMENTS)
    request, seen = work.request, work.seen
    assert request.layers and request.heads and request.targets
    if request.source_layer:
        raise ChoiceError(
            f"head_occlusion takes {SOURCE} tokens away, which only the embeddings have.",
            asked=f"source_layer={request.source_layer}",
            allowed="source_layer=0",
            do="leave source_layer out",
        )
    hidden = request.of == "hidden"
    maps = [_maps(work, layer) for layer in request.layers]
    heads = torch.tensor([0] if hidden else [head - 1 for head in request.heads], device=seen.embedding.device)
    targets = torch.tensor(request.targets, device=seen.embedding.device)
    without = _without(work, replace)
    kept = [seen.hidden[layer] if hidden else seen.head[layer - 1] for layer in request.layers]
    changed = []
    size = _texts_at_once(work)
    with work.track(len(without), 0.0, f"head_occlusion: {len(without)} passes, {size} at a time") as advance:
        for words in without.split(size):
            outputs = altered_outputs(work.model, seen, words, layers=request.layers, hidden=hidden)
            changed.append(torch.stack([_norms(*each) for each in zip(outputs, kept, maps, strict=True)]))
            advance(len(words))
    found = torch.cat(changed, 1).permute(0, 3, 2, 1)  # layer, text, target, head -> layer, head, target, source
    chosen = found.index_select(1, heads).index_select(2, targets)
    return Made({"head_occlusion": chosen.squeeze(1) if hidden else chosen}, {})


def _maps(work: Work, layer: int) -> Tensor | None:
    request, seen = work.request, work.seen
    projection = seen.projection[layer - 1] if request.of == "head_output" else None
    if request.of == "head_output" and projection is None:
        raise ChoiceError(
            f"Layer {layer} has no linear output projection right behind its heads.",
            asked="of='head_output'",
            allowed="head, hidden",
            do="use of='head'",
        )
    return feature_maps("frobenius", width=seen.head[layer - 1].shape[2], like=seen.embedding, projection=projection)


def _without(work: Work, replace: str) -> Tensor:
    """Word vectors [source, n, d_word], without those of each source."""
    words, groups = work.seen.embedding, work.request.groups
    table: Any = work.model.get_input_embeddings()
    instead = torch.zeros_like(words[0]) if replace == "zero" else table.weight.detach().mean(0).to(words)
    of = torch.arange(len(words), device=words.device) if groups is None else torch.tensor(groups, device=words.device)
    gone = of == torch.arange(int(of.max()) + 1, device=words.device)[:, None]
    return torch.where(gone[..., None], instead, words)


def _texts_at_once(work: Work) -> int:
    """How many passes fit into the memory budget together; a pass holds its outputs, a layer's inner states and attention weights."""
    seen = work.seen
    tokens, width = seen.hidden[0].shape
    numbers = tokens * width * (16 + len(seen.attention)) + 3 * seen.heads * tokens**2
    fits = work.request.memory // (numbers * seen.hidden[0].element_size())
    if fits < 1:
        raise MemoryBudgetError(
            "Not even one pass fits into the memory budget.",
            asked=f"memory={work.request.memory} bytes",
            found=f"about {numbers * seen.hidden[0].element_size()} bytes for a pass",
            do="give it more memory",
        )
    return int(min(fits, 64))


def _norms(output: Tensor, kept: Tensor, maps: Tensor | None) -> Tensor:
    """Norms [text, target, head] of the changes of one layer."""
    change = output - kept
    columns = change.movedim(0, -1)
    made = features(columns if columns.dim() == 4 else columns.unsqueeze(1), maps)
    return made.square().sum(2).sqrt().permute(2, 0, 1)
