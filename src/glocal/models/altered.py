"""The same text without some of its word vectors: what the outputs of heads and layers become."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from glocal.models.instrument import Watcher, watching
from glocal.models.observe import Pass, call_arguments


class _Altered(Watcher):
    """Puts altered word vectors in and keeps what comes out of the heads or layers asked for."""

    def __init__(self, words: Tensor, layers: Sequence[int], hidden: bool):
        self.words, self.layers, self.hidden = words, frozenset(layers), hidden
        self.kept: list[Tensor] = []

    def word_vectors(self, embedded: Tensor) -> Tensor:
        return self.words

    def attention(self, index: int, weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
        if not self.hidden and index + 1 in self.layers:
            self.kept.append(output)
        return output

    def layer_output(self, index: int, hidden: Tensor) -> Tensor:
        if self.hidden and index + 1 in self.layers:
            self.kept.append(hidden)
        return hidden


def altered_outputs(model: PreTrainedModel, seen: Pass, words: Tensor, *, layers: Sequence[int], hidden: bool) -> tuple[Tensor, ...]:
    """Outputs of an instrumented model for other word vectors [text, n, d_word]; per layer of heads [text, n, H, d_v] or [text, n, d]."""
    watcher = _Altered(words, layers, hidden)
    inputs = {name: value.expand(len(words), *value.shape[1:]) for name, value in seen.inputs.items()}
    with torch.no_grad(), watching(watcher):
        model(**call_arguments(model, inputs))
    return tuple(watcher.kept)
