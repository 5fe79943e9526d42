"""Watch the attention of any transformers model without touching its code.

Why this way: a function registered with `AttentionInterface` under our own name can call the family's own `eager_attention_forward` and
note what passed. Outputs then equal eager's to the last bit, with soft-capping, sinks, position biases and grouped-query heads included.
The eager mask must be registered under the same name, or transformers passes no mask and a decoder looks into the future. Layers are
found as the `GradientCheckpointingLayer`s that run, and are counted by call: ALBERT calls one module L times, and several families have
no usable layer index.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask
from transformers.modeling_layers import GradientCheckpointingLayer

from glocal.errors import UnseenLayersError

BACKEND = "glocal"


class Enough(BaseException):
    """What a watcher raises to stop a run once it has what it wants; catch it outside."""


@dataclass(frozen=True)
class AttentionCall:
    """What the family hands to its attention, and that attention itself, as a function of query, key and value."""

    query: Tensor  # [1, H, n, d_qk]
    key: Tensor  # [1, H_kv, n, d_qk]
    value: Tensor  # [1, H_kv, n, d_v]
    softcap: float | None
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]  # -> head outputs [1, n, H, d_v]


class Watcher:
    """What a run reports to; each method may return a replacement for what passed, and changes nothing here."""

    def word_vectors(self, embedded: Tensor) -> Tensor:
        """The output [1, n, d] of the word embedding table."""
        return embedded

    def layer_input(self, index: int, hidden: Tensor) -> Tensor:
        """The hidden states [1, n, d] entering the layer call number `index` (from 0)."""
        return hidden

    def layer_output(self, index: int, hidden: Tensor) -> Tensor:
        """The hidden states [1, n, d] leaving it."""
        return hidden

    def layer_call(self, index: int, module: nn.Module, args: tuple, kwargs: dict) -> None:
        """The layer call `index` as the model makes it, for running that layer alone later."""

    def before_attention(self, index: int, call: AttentionCall) -> Tensor | None:
        """Asked before the attention of layer call `index`; head outputs [1, n, H, d_v] take its place, and it is not computed."""
        return None

    def attention(self, index: int, weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
        """Attention weights [1, H, n, n], values [1, H_kv, n, d_v] and head outputs [1, n, H, d_v] of the layer call `index`."""
        return output


class _Run:
    """The state of one watched run: which layer call we are in, and who listens."""

    def __init__(self, watcher: Watcher):
        self.watcher = watcher
        self.calls = 0
        self.stack: list[int] = []


_run: ContextVar[_Run | None] = ContextVar("glocal_run", default=None)


def current_layer() -> int | None:
    """The index (from 0) of the layer call that is running in a watched run, if one is."""
    run = _run.get()
    return run.stack[-1] if run is not None and run.stack else None


def _eager_of(module: nn.Module) -> Callable:
    for cls in type(module).__mro__:
        eager = getattr(sys.modules.get(cls.__module__), "eager_attention_forward", None)
        if eager is not None:
            return eager
    raise UnseenLayersError(
        f"{type(module).__name__} has no eager attention that could be observed.",
        found=f"module {type(module).__module__} without `eager_attention_forward`",
        do="use a family that follows transformers' attention interface",
    )


def _watched_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    eager = _eager_of(module)
    run = _run.get()
    if run is not None and run.stack:
        attend = lambda q, k, v: eager(module, q, k, v, mask, *args, **kwargs)[0]  # noqa: E731
        given = run.watcher.before_attention(run.stack[-1], AttentionCall(query, key, value, kwargs.get("softcap"), attend))
        if given is not None:
            return given, None
    output, weights = eager(module, query, key, value, mask, *args, **kwargs)
    if run is not None and run.stack:
        output = run.watcher.attention(run.stack[-1], weights, value, output)
    return output, weights


AttentionInterface.register(BACKEND, _watched_attention)
AttentionMaskInterface.register(BACKEND, eager_mask)


def _after_embedding(module: nn.Module, args: tuple, output: Tensor) -> Tensor | None:
    run = _run.get()
    return None if run is None else run.watcher.word_vectors(output)


def _before_layer(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    run = _run.get()
    if run is None:
        return None
    index, run.calls = run.calls, run.calls + 1
    run.stack.append(index)
    run.watcher.layer_call(index, module, args, kwargs)
    if args:
        return (run.watcher.layer_input(index, args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": run.watcher.layer_input(index, kwargs["hidden_states"])}


def _after_layer(module: nn.Module, args: tuple, output: Any) -> Any:
    run = _run.get()
    if run is None:
        return None
    index = run.stack.pop()
    if isinstance(output, tuple):
        return (run.watcher.layer_output(index, output[0]), *output[1:])
    return run.watcher.layer_output(index, output)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Runs of an instrumented model inside this context report to `watcher`."""
    token = _run.set(_Run(watcher))
    try:
        yield
    finally:
        _run.reset(token)


@contextmanager
def instrumented(model: PreTrainedModel) -> Iterator[None]:
    """Make `model` observable and deterministic (eval mode), and leave it exactly as found, whatever happens inside.

    Restored: attention and expert backends of every sub-configuration, the training flag of every module, hooks.
    Gradient flags, dtype and device are never changed. Threads that use one model take turns. Raises `UnseenLayersError` where the family
    refuses to switch.
    """
    with ExitStack() as undo:
        undo.enter_context(_turn_of(model.base_model))
        undo.enter_context(_configurations_restored(model))
        undo.enter_context(_training_flags_restored(model))
        _switch(model)
        model.eval()
        table = model.get_input_embeddings()
        undo.callback(table.register_forward_hook(_after_embedding).remove)
        for module in layer_modules(model):
            undo.callback(module.register_forward_pre_hook(_before_layer, with_kwargs=True).remove)
            undo.callback(module.register_forward_hook(_after_layer).remove)
        yield


_turns: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_turns_lock = RLock()


def _turn_of(model: nn.Module) -> RLock:
    with _turns_lock:
        return _turns.setdefault(model, RLock())


def layer_modules(model: nn.Module) -> list[nn.Module]:
    """The modules whose calls are the layers: transformers marks them as `GradientCheckpointingLayer`.

    A family without the mark (ALBERT) keeps its layers in the innermost module lists.
    """
    marked: list[nn.Module] = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if marked:
        return marked
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    innermost = [each for each in lists if not any(inside in lists for inside in list(each.modules())[1:])]
    return [member for each in innermost for member in each]


def _switch(model: PreTrainedModel) -> None:
    refusing = sorted(
        {type(part).__name__ for part in model.modules() if isinstance(part, PreTrainedModel) and not part._can_set_attn_implementation()}
    )
    if refusing:
        raise UnseenLayersError(
            f"The attention of {type(model).__name__} cannot be observed.",
            asked=f"family {model.config.model_type!r}, {layers_expected(model.config) or 'all'} layers",
            found=f"{', '.join(refusing)} does not use transformers' attention interface: all layers are missed",
            allowed="families whose attention goes through AttentionInterface (BERT, RoBERTa, GPT-2, Llama, ...)",
            do="use such a family, or load the same weights in one (MPNet, DeBERTa and BLOOM have no such form yet)",
        )
    model.set_attn_implementation(BACKEND)
    if hasattr(model, "set_experts_implementation") and getattr(model.config, "_experts_implementation", None):
        model.set_experts_implementation("eager")  # the grouped kernel has no forward derivative


_BACKEND_FIELDS = ("_attn_implementation_internal", "_experts_implementation_internal")


def _configurations(model: PreTrainedModel) -> list[Any]:
    found: dict[int, Any] = {}
    queue = [part.config for part in model.modules() if isinstance(part, PreTrainedModel)]
    while queue:
        config = queue.pop()
        if config is None or id(config) in found:
            continue
        found[id(config)] = config
        queue += [getattr(config, key, None) for key in getattr(config, "sub_configs", {})]
    return list(found.values())


@contextmanager
def _configurations_restored(model: PreTrainedModel) -> Iterator[None]:
    saved = [
        (config, field, vars(config)[field]) for config in _configurations(model) for field in _BACKEND_FIELDS if field in vars(config)
    ]
    try:
        yield
    finally:
        for config, field, value in saved:
            setattr(config, field, value)


@contextmanager
def _training_flags_restored(model: nn.Module) -> Iterator[None]:
    saved = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in saved:
            module.training = training


def is_leaf(module: nn.Module) -> bool:
    """Whether a module has no children, so that it computes something itself."""
    return next(module.children(), None) is None


def layers_expected(config: Any) -> int | None:
    """The number of layers that the configuration announces, if it does."""
    for field in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"):
        value = getattr(config, field, None)
        if isinstance(value, int):
            return value
    return None
