"""Value Zeroing: how a layer's output changes when a token's value is taken away."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from glocal.errors import MemoryBudgetError, ModelError
from glocal.groups import sum_groups
from glocal.layer import Layer
from glocal.models.layers import layers
from glocal.models.outputs import check_attention_is_linear_in_values
from glocal.registry import registered
from glocal.request import Made, Work

# Angles of this many machine epsilons are what a layer's arithmetic leaves.
ROUNDING = 32


@registered(
    summary="how a layer's output turns when a token's value vectors are set to zero (local)",
    source="Mohebbi et al. 2023 (Value Zeroing, 2301.12971)",
    needs="the layer run once for every source token (and head)",
    cost="n runs of every layer, in batches; for heads H times as many",
    limits="an intervention far from what the layer was trained on; angles only; each layer on its own",
    extra=(("unit", "share"),),
)
def value_zeroing(work: Work, *, per_head: bool = False) -> Made:
    """C[layer, target, source] = 1 - cos(e_i without the values of j, e_i), divided by the sum over sources (shares).

    e_i is the layer's output on its true input, with residual connection, normalisers and feed-forward block; queries, keys and weights
    stay. `per_head=True` adds `value_zeroing_head` [layer, head, target, source], where only that head's value is zero (glocal's
    extension). Of sources that are groups of tokens, values are zeroed together. Output vectors that turn by less than 32 machine
    epsilons count as unchanged; a row in which nothing changes is NaN. Raises `ModelError` if nothing changes in a whole layer,
    `FreezeError` where heads are not attention times values, `MemoryBudgetError`.
    """
    made = {"value_zeroing": value_zeroing_maps(work, "value_zeroing")}
    if per_head:
        made["value_zeroing_head"] = value_zeroing_maps(work, "value_zeroing", heads=True)
    return Made(made, {})


def value_zeroing_maps(work: Work, name: str, *, heads: bool = False) -> Tensor:
    """The maps of `value_zeroing`, for a method called `name`."""
    check_attention_is_linear_in_values(work.seen)
    request = work.request
    assert request.layers and request.heads and request.targets
    network = layers(work.model, work.seen)
    numbers = request.layers
    targets = list(request.targets)
    chosen = [head - 1 for head in request.heads] if heads else None
    maps = []
    with torch.no_grad(), work.track(len(numbers), 0.0, f"{name}: layers run without the values of each source") as advance:
        for number in numbers:
            layer = network[number - 1]
            output = layer.merge(layer.head)[targets]
            parts = [_away(layer, some, output, targets) for some in _altered(work, name, layer, chosen)]
            away = torch.cat(parts).movedim(0, -1)  # target, (head times) source
            if work.seen.causal:
                away = away * _visible(work, targets, away.shape[-1])
            if not bool((away.abs() > 0).any()):
                raise ModelError(
                    f"{name}: nothing changes in layer {number} when values are set to zero.",
                    found=f"family {work.model.config.model_type!r}, whose layer does not use the values that its attention is called with",
                    do="use another method for this model",
                )
            shaped = away if chosen is None else away.unflatten(-1, (len(chosen), -1)).movedim(1, 0)
            maps.append(shaped / shaped.sum(-1, keepdim=True))
            advance(1)
    return torch.stack(maps)


def _visible(work: Work, targets: list[int], columns: int) -> Tensor:
    """1 where the source is not in the target's future, whose values it never reads: experts are rounded by who else is with them."""
    tokens = len(work.seen.hidden[0])
    past = torch.ones(tokens, tokens, dtype=work.seen.hidden[0].dtype, device=work.seen.hidden[0].device).tril()
    past = past if work.request.groups is None else (sum_groups(past, work.request.groups) > 0).to(past.dtype)
    return past[targets].repeat(1, columns // past.shape[1])


def _away(layer: Layer, heads: Tensor, output: Tensor, targets: list[int]) -> Float[Tensor, "altered target"]:
    without = _merged(layer, heads)[:, targets]
    # 1 - cos by the distance of unit vectors: the difference of nearly equal numbers would lose the small changes.
    away = (_unit(without) - _unit(output)).square().sum(-1) / 2
    # A batch is rounded otherwise than a single run, and rows of rounding would become shares.
    return away.where(away > (ROUNDING * torch.finfo(away.dtype).eps) ** 2 / 2, 0)


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def _merged(layer: Layer, heads: Tensor) -> Tensor:
    try:
        return vmap(layer.merge)(heads)
    except RuntimeError:
        # Experts are chosen by the data, which vmap refuses: one at a time.
        return torch.stack([layer.merge(each) for each in heads])


def _altered(work: Work, name: str, layer: Layer, heads: list[int] | None) -> Iterator[Tensor]:
    """Head outputs [altered, target, head, head_width] without the values of each source, as many at a time as fit."""
    value = layer.value.repeat_interleave(len(layer.weights) // len(layer.value), 0)
    tokens, groups = value.shape[1], work.request.groups
    width = work.seen.hidden[0].shape[1]
    per_run = tokens * (width * 16 + 4 * layer.head[0].numel()) * layer.head.element_size()
    fits = work.request.memory // per_run
    if fits < 1:
        raise MemoryBudgetError(
            f"Not even one run of a layer of {name} fits into the memory budget.",
            asked=f"memory={work.request.memory} bytes",
            found=f"about {per_run} bytes",
            do="give it more memory",
        )
    sources = torch.eye(tokens, dtype=value.dtype, device=value.device)
    if groups is not None:
        sources = sum_groups(sources, groups).T
    for head in [None] if heads is None else heads:
        for some in sources.split(int(fits)):
            taken = (layer.weights.unsqueeze(0) * some[:, None, None, :]) @ value  # altered, head, target, head_width
            if head is not None:
                only = torch.zeros(len(value), dtype=value.dtype, device=value.device)
                only[head] = 1
                taken = taken * only[:, None, None]
            yield layer.head - taken.transpose(1, 2)
