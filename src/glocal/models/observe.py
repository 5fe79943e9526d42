"""One observed forward pass: attention, values, head outputs, layer inputs and output projections."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from glocal.errors import ModelError, UnseenLayersError
from glocal.models.instrument import Watcher, is_leaf, layers_expected, watching


@dataclass(frozen=True)
class Pass:
    """What one instrumented pass showed; one entry per layer, batch dimension removed, in the model's dtype.

    `projection[l]` is the output projection's slice per head, [H, d, d_v]: o = projection @ z. None where no linear map follows the heads;
    `projection_bias[l]` is what it adds to their sum.
    """

    inputs: Mapping[str, Tensor]
    embedding: Float[Tensor, "source word_width"]  # word vectors alone, as the embedding table gives them
    attention: tuple[Float[Tensor, "head target source"], ...]
    value: tuple[Float[Tensor, "kv_head source head_width"], ...]
    head: tuple[Float[Tensor, "target head head_width"], ...]
    hidden: tuple[Float[Tensor, "source width"], ...]  # entry l: input of layer l + 1; the last one is the last layer's output
    projection: tuple[Float[Tensor, "head width head_width"] | None, ...]
    projection_bias: tuple[Float[Tensor, " width"] | None, ...]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.attention)

    @property
    def heads(self) -> int:
        """Number of (query) heads per layer."""
        return self.head[0].shape[1]

    @property
    def causal(self) -> bool:
        """Whether no weight of any head lies on a later source; one token cannot tell, and counts as not causal."""
        return len(self.hidden[0]) > 1 and all(not weights.triu(1).any() for weights in self.attention)


def body(model: PreTrainedModel) -> PreTrainedModel:
    """The part of the model that has the layers: without a language-model or classification head, whose cost would be wasted."""
    inner: Any = model.base_model
    if "decoder_input_ids" in inspect.signature(inner.forward).parameters:
        raise ModelError(
            f"{type(model).__name__} is an encoder-decoder, whose three kinds of attention are not supported yet.",
            found=f"family {model.config.model_type!r}",
            allowed="encoders and decoders",
            do="analyse its encoder: pass model=model.get_encoder() and the tokenizer",
        )
    if any(parameter.is_meta for parameter in inner.parameters()):
        raise ModelError(
            f"{type(model).__name__} has parameters without values.",
            found="parameters on the meta device",
            allowed="a model that is loaded",
            do="load its weights first",
        )
    table: Any = inner.get_input_embeddings()
    if not isinstance(getattr(table, "weight", None), Tensor):
        raise ModelError(
            f"{type(model).__name__} does not read tokens.",
            found=f"family {model.config.model_type!r}, whose input is no table of word vectors",
            allowed="language models",
            do="pass a model whose input is token ids",
        )
    return inner  # pyright: ignore[reportReturnType]


def call_arguments(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> dict:
    """The keyword arguments of a forward call: the inputs, and no cache, which would keep state between runs."""
    arguments: dict = dict(inputs)
    if "use_cache" in inspect.signature(model.forward).parameters or getattr(model.config, "use_cache", False):
        arguments["use_cache"] = False
    # A configuration that asks for these would make transformers install hooks of its own, for good.
    for flag in ("output_attentions", "output_hidden_states"):
        if getattr(model.config, flag, False):
            arguments[flag] = False
    return arguments


class _Recorder(Watcher):
    """Notes everything of a pass, and finds the linear module that receives the concatenated head outputs, by value and not by name."""

    def __init__(self) -> None:
        self.embedded: list[Tensor] = []
        self.hidden: dict[int, Tensor] = {}
        self.last: dict[int, Tensor] = {}
        self.seen: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.projections: dict[int, nn.Module] = {}

    def word_vectors(self, embedded: Tensor) -> Tensor:
        self.embedded.append(embedded)
        return embedded

    def layer_input(self, index: int, hidden: Tensor) -> Tensor:
        self.hidden[index] = hidden
        return hidden

    def layer_output(self, index: int, hidden: Tensor) -> Tensor:
        self.last[index] = hidden
        return hidden

    def attention(self, index: int, weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
        if index in self.seen:
            raise UnseenLayersError(
                f"Layer {index + 1} has more than one attention.",
                found="a cross-attention or a second self-attention",
                allowed="layers with one self-attention",
                do="analyse the encoder of an encoder-decoder",
            )
        self.seen[index] = (weights, values, output)
        return output

    def before_module(self, module: nn.Module, args: tuple) -> None:
        if not self.seen or not args or not isinstance(args[0], Tensor):
            return
        index = max(self.seen)
        output = self.seen[index][2]
        if index in self.projections or args[0].shape[-1] != output.shape[-1] * output.shape[-2]:
            return
        if args[0].numel() == output.numel() and torch.equal(args[0].reshape(-1), output.reshape(-1)):
            self.projections[index] = module


def observe(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Pass:
    """Run an instrumented `model` once and return the `Pass`; outputs equal eager's bit for bit.

    Raises `UnseenLayersError` naming the layers whose attention was not seen.
    """
    recorder = _Recorder()
    handles = [module.register_forward_pre_hook(recorder.before_module) for module in model.modules() if is_leaf(module)]
    try:
        with torch.no_grad(), watching(recorder):
            model(**call_arguments(model, inputs))
    finally:
        for handle in handles:
            handle.remove()
    _require_all_layers(model, recorder)
    count = len(recorder.seen)
    return Pass(
        inputs=inputs,
        embedding=recorder.embedded[0][0],
        attention=tuple(recorder.seen[i][0][0] for i in range(count)),
        value=tuple(recorder.seen[i][1][0] for i in range(count)),
        head=tuple(recorder.seen[i][2][0] for i in range(count)),
        hidden=(*(recorder.hidden[i][0] for i in range(count)), recorder.last[count - 1][0]),
        projection=tuple(_slices(recorder.projections.get(i), recorder.seen[i][2]) for i in range(count)),
        projection_bias=tuple(_bias(recorder.projections.get(i), recorder.seen[i][2]) for i in range(count)),
    )


def _require_all_layers(model: PreTrainedModel, recorder: _Recorder) -> None:
    ran, seen = set(recorder.hidden), set(recorder.seen)
    expected = set(range(layers_expected(model.config) or len(ran)))
    missed = sorted(index + 1 for index in (ran | expected) - seen)
    if missed or not seen:
        raise UnseenLayersError(
            f"Not every layer's attention of {type(model).__name__} can be observed.",
            asked=f"family {model.config.model_type!r}, {len(ran | expected)} layers",
            found=f"layers missed: {', '.join(map(str, missed)) or 'all'}",
            allowed="families in which every layer's attention goes through AttentionInterface",
            do="use such a family (BERT, RoBERTa, GPT-2, Llama, ...)",
        )


def _slices(module: nn.Module | None, output: Tensor) -> Tensor | None:
    """The linear map behind the heads, column block per head, found by feeding it the identity: [H, d, d_v]."""
    if module is None:
        return None
    heads, width = output.shape[-2:]
    with torch.no_grad():
        if _is_its_weight(module):
            weight = module.weight.detach()  # pyright: ignore[reportCallIssue]
            return weight.unflatten(1, (heads, width)).transpose(0, 1).contiguous()
        eye = torch.eye(heads * width, dtype=output.dtype, device=output.device)
        columns = module(eye) - module(torch.zeros_like(eye[:1]))
    return columns.reshape(heads, width, -1).transpose(1, 2)


def _is_its_weight(module: nn.Module) -> bool:
    """Whether it is a linear map as torch has it and nobody has changed: feeding it the identity costs more than a short text's pass."""
    changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module) or hasattr(module, "parametrizations")
    return type(module) is nn.Linear and not changed


def _bias(module: nn.Module | None, output: Tensor) -> Tensor | None:
    if module is None:
        return None
    with torch.no_grad():
        return module(output.new_zeros(1, output.shape[-2] * output.shape[-1]))[0]
