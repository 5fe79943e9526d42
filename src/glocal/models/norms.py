"""The normalisers around the attention of every layer, found by what goes in and comes out, not by name."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from glocal.models.freeze import Norm, is_norm, norm_of
from glocal.models.instrument import Watcher, current_layer, watching
from glocal.models.observe import Pass, call_arguments


@dataclass(frozen=True)
class Normaliser:
    """A normaliser at one point: a linear map of its input, with this point's statistics, and a bias."""

    gain: Tensor  # [d]
    bias: Tensor  # [d]
    centred: bool
    scale: Tensor  # [n, 1]: one over the root of the mean square
    output: Tensor  # [n, d]


@dataclass(frozen=True)
class Surroundings:
    """What a layer does with the output of its attention.

    `residual`: whether the layer's input is added to it; `after`: the normaliser of that sum, where nothing was normalised before the
    attention (post-norm); `last`: the one that the layer ends with.
    """

    residual: bool
    after: Normaliser | None
    last: Normaliser | None


_Call = tuple[nn.Module, Tensor, Tensor]


def surroundings(model: PreTrainedModel, seen: Pass) -> tuple[Surroundings, ...]:
    """Of all layers of an instrumented `model`; one more pass."""
    calls: list[list[_Call]] = [[] for _ in range(seen.layers)]

    def note(module: nn.Module, args: tuple, output: Tensor) -> None:
        layer = current_layer()
        if layer is not None and isinstance(output, Tensor):
            calls[layer].append((module, args[0], output))

    handles = [module.register_forward_hook(note) for module in model.modules() if is_norm(module)]
    try:
        with torch.no_grad(), watching(Watcher()):
            model(**call_arguments(model, seen.inputs))
            return tuple(_around(seen, layer, calls[layer]) for layer in range(seen.layers))
    finally:
        for handle in handles:
            handle.remove()


def _around(seen: Pass, layer: int, calls: list[_Call]) -> Surroundings:
    projection, bias = seen.projection[layer], seen.projection_bias[layer]
    if projection is None or bias is None:
        return Surroundings(False, None, None)
    x = seen.hidden[layer]
    attended = torch.einsum("hdv,thv->td", projection, seen.head[layer]) + bias
    place = next((number for number, (_, given, _) in enumerate(calls) if _same(given, x + attended)), None)
    before = place is None or any(_same(given, x) for _, given, _ in calls[:place])
    last = next((call for call in reversed(calls) if _same(call[2], seen.hidden[layer + 1])), None)
    return Surroundings(place is not None, None if before or place is None else _at(calls[place]), None if last is None else _at(last))


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether they are equal up to the rounding of a sum over heads."""
    if one.numel() != other.numel() or one.shape[-1] != other.shape[-1]:
        return False
    return bool((one.reshape(other.shape) - other).abs().max() <= 1e3 * torch.finfo(other.dtype).eps * other.abs().max())


def _at(call: _Call) -> Normaliser:
    module, x, output = call
    norm: Norm = norm_of(module, x)
    return Normaliser(norm.gain, norm.bias, norm.centred, norm.scale(x).reshape(-1, 1), output.reshape(-1, output.shape[-1]))
