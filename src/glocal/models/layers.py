"""A network taken apart at its attentions: between two of them a transformer works token by token."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from glocal.layer import Layer
from glocal.models.instrument import AttentionCall, Enough, Watcher, watching
from glocal.models.observe import Pass, call_arguments
from glocal.models.outputs import Origin


class _CallRecorder(Watcher):
    def __init__(self) -> None:
        self.calls: list[tuple[nn.Module, tuple, dict]] = []
        self.attentions: list[AttentionCall] = []

    def layer_call(self, index: int, module: nn.Module, args: tuple, kwargs: dict) -> None:
        self.calls.append((module, args, kwargs))

    def before_attention(self, index: int, call: AttentionCall) -> None:
        self.attentions.append(call)


class _Stub(Watcher):
    """Answers the attention with given head outputs and keeps what it was asked."""

    def __init__(self, heads: Tensor, stop: bool):
        self.heads, self.stop = heads, stop
        self.asked: tuple[Tensor, ...] = ()

    def before_attention(self, index: int, call: AttentionCall) -> Tensor:
        self.asked = (call.query[0], call.key[0], call.value[0])
        if self.stop:
            raise Enough
        return self.heads


def layers(model: PreTrainedModel, seen: Pass) -> tuple[Layer, ...]:
    """All layers of an instrumented `model` at the point of the pass `seen`; one more forward pass."""
    recorder = _CallRecorder()
    with torch.no_grad(), watching(recorder):
        model(**call_arguments(model, seen.inputs))
    return tuple(
        _layer(seen, layer, module, args, kwargs, attention)
        for layer, ((module, args, kwargs), attention) in enumerate(zip(recorder.calls, recorder.attentions, strict=True))
    )


def _layer(seen: Pass, layer: int, module: nn.Module, args: tuple, kwargs: Mapping[str, Any], attention: AttentionCall) -> Layer:
    heads = seen.head[layer]

    def run(x: Tensor, heads: Tensor, stop: bool) -> tuple[Tensor, ...]:
        stub = _Stub(heads[None], stop)
        given, named = ((x[None], *args[1:]), kwargs) if args else ((), {**kwargs, "hidden_states": x[None]})
        output = None
        with watching(stub), suppress(Enough):
            output = module(*given, **named)
        if output is None:
            return stub.asked
        return (*stub.asked, (output[0] if isinstance(output, tuple) else output)[0])

    return Layer(
        query=attention.query[0],
        key=attention.key[0],
        value=attention.value[0],
        weights=seen.attention[layer],
        head=heads,
        hidden=seen.hidden[layer],
        projection=seen.projection[layer],
        softcap=attention.softcap,
        attend=lambda q, k, v: attention.attend(q[None], k[None], v[None])[0],
        queries=lambda x: run(x, heads, True),
        local=lambda x: run(x, heads, False),
        merge=lambda z: run(seen.hidden[layer], z, False)[-1],
    )


class _Entrance(Watcher):
    def __init__(self, x: Tensor):
        self.x = x
        self.entered: Tensor | None = None

    def word_vectors(self, embedded: Tensor) -> Tensor:
        return self.x

    def layer_input(self, index: int, hidden: Tensor) -> Tensor:
        self.entered = hidden
        raise Enough


def entrance(model: PreTrainedModel, seen: Pass, origin: Origin) -> Callable[[Tensor], Tensor] | None:
    """Word vectors [n, d_word] -> input of the first layer [n, d]; None where tangents enter at a layer's input already."""
    if not origin.word:
        return None

    def embed(x: Tensor) -> Tensor:
        watcher = _Entrance(x[None])
        with watching(watcher), suppress(Enough):
            model(**call_arguments(model, seen.inputs))
        assert watcher.entered is not None
        return watcher.entered[0]

    return embed
