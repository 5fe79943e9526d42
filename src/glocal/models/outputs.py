"""The network as a function: hidden states at an origin -> outputs of every head (or layer), ready for forward mode."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from glocal.choices import ORIGINS
from glocal.errors import ChoiceError, FreezeError
from glocal.models.freeze import with_tangent_of
from glocal.models.instrument import Enough, Watcher, watching
from glocal.models.observe import Pass, call_arguments


@dataclass(frozen=True)
class Origin:
    """Where tangents enter: the word vectors, or the input of layer `source_layer + 1` (0: the embedding block's output)."""

    word: bool = False
    source_layer: int = 0

    def point(self, seen: Pass) -> Tensor:
        """The vectors [n, d] that the network is differentiated at."""
        return seen.embedding if self.word else seen.hidden[self.source_layer]


def check_origin(origin: str, source_layer: int, layers: int) -> None:
    """Raise `ChoiceError` unless the two arguments of `analyze` fit a model of so many layers."""
    if origin not in ORIGINS:
        raise ChoiceError(f"There is no origin {origin!r}.", asked=origin, allowed=", ".join(ORIGINS), do="choose one of these")
    if not 0 <= source_layer < layers:
        raise ChoiceError(
            f"There is no source layer {source_layer}.",
            asked=source_layer,
            allowed=f"0 (the embeddings) to {layers - 1} (the input of layer {layers})",
            do="choose one of these; heads of layer l have sources below l",
        )
    if origin == "word" and source_layer:
        raise ChoiceError(
            "A source layer above 0 leaves no choice of origin.",
            asked=f"origin='word', source_layer={source_layer}",
            allowed="origin='word' with source_layer=0",
            do="leave out one of the two",
        )


class _Collector(Watcher):
    """Puts `x` in at the origin and keeps what comes out, up to the last layer asked for."""

    def __init__(self, x: Tensor, origin: Origin, layers: Collection[int], hidden: bool, freeze_attention: bool, together: bool):
        self.x, self.origin, self.layers, self.hidden = x, origin, layers, hidden
        self.freeze_attention, self.together = freeze_attention, together
        self.last = max(layers)
        self.kept: list[Tensor] = []

    def word_vectors(self, embedded: Tensor) -> Tensor:
        return self.x if self.origin.word else embedded

    def layer_input(self, index: int, hidden: Tensor) -> Tensor:
        return self.x if not self.origin.word and index == self.origin.source_layer else hidden

    def attention(self, index: int, weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
        if self.freeze_attention:
            output = with_tangent_of(output, attend(weights.detach(), values))
        if not self.hidden:
            self._keep(index, output)
        return output

    def layer_output(self, index: int, hidden: Tensor) -> Tensor:
        if self.hidden:
            self._keep(index, hidden)
        return hidden

    def _keep(self, index: int, value: Tensor) -> None:
        if index + 1 in self.layers:
            self.kept.append(value if self.together else value[0])
        if index + 1 == self.last:
            raise Enough


def attend(weights: Tensor, values: Tensor) -> Tensor:
    """z = A v per head: weights [1, H, n, n] and values [1, H_kv, n, d_v], repeated for grouped queries -> [1, n, H, d_v]."""
    values = values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
    return (weights @ values).transpose(1, 2)


def check_attention_is_linear_in_values(seen: Pass) -> None:
    """Raise `FreezeError` unless every head output of the pass is its attention times its values."""
    for layer, (weights, values, head) in enumerate(zip(seen.attention, seen.value, seen.head, strict=True), start=1):
        error = (attend(weights[None], values[None])[0] - head).abs().max()
        if not error <= 100 * torch.finfo(head.dtype).eps * head.abs().max().clamp(min=1e-6):
            raise FreezeError(
                f"The attention of layer {layer} cannot be frozen: its heads are not attention times values.",
                asked="freeze=('attention',)",
                found=f"largest difference {error.item():.2e}",
                do="leave 'attention' out of freeze for this family",
            )


def outputs_function(
    model: PreTrainedModel,
    seen: Pass,
    *,
    origin: Origin,
    of: str,
    layers: Collection[int],
    freeze: Collection[str] = (),
    others: Sequence[Pass] = (),
) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """x [n, d] -> one tensor per layer in `layers` (ascending): head outputs [n, H, d_v], or layer outputs [n, d].

    With the passes of `others`, texts of the same length, everything has a first dimension more: the texts, `seen` first.
    The model must be instrumented (and frozen, for norms and activations) while the function is in use.
    """

    inputs = {name: torch.cat([each.inputs[name] for each in (seen, *others)]) for name in seen.inputs} if others else seen.inputs

    def outputs(x: Tensor) -> tuple[Tensor, ...]:
        collector = _Collector(x if others else x[None], origin, layers, of == "hidden", "attention" in freeze, bool(others))
        with watching(collector), suppress(Enough):
            model(**call_arguments(model, inputs))
        return tuple(collector.kept)

    return outputs
