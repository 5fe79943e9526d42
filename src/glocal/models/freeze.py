"""Hold the normalisers' statistics and the activations' slopes of this very pass constant, without touching model code.

`.detach()` inside forward mode drops the tangent and keeps the value. A forward hook may therefore replace a module's output by one
that has the same value and the tangent of the frozen, linear map. Nothing is looked up by class: what a normaliser does is found by
feeding it three known vectors, and checked on this pass before anything is computed. An activation whose output is multiplied by
something before the next module reads it belongs to a gated unit: there the gate is held constant, as attention weights are, because a
slope alone would leave a product of two linear maps.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from transformers import activations

from glocal.errors import FreezeError
from glocal.models.instrument import current_layer, is_leaf

_TORCH_ACTIVATIONS = (
    nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.LeakyReLU, nn.Mish, nn.ReLU6, nn.Hardswish, nn.Softplus
)  # fmt: skip
_ACTIVATIONS = _TORCH_ACTIVATIONS + tuple(
    each for each in vars(activations).values() if isinstance(each, type) and issubclass(each, nn.Module)
)
_FUNCTIONS = (torch.tanh, Tensor.tanh, nn.functional.gelu, nn.functional.relu, nn.functional.silu, torch.relu, Tensor.relu)
_EPSILON_NAMES = ("eps", "variance_epsilon", "epsilon", "norm_eps", "layer_norm_epsilon")


def with_tangent_of(value: Tensor, linear: Tensor) -> Tensor:
    """The value of `value` with the tangent of `linear`."""
    tangent = forward_ad.unpack_dual(linear).tangent
    if tangent is not None:
        return forward_ad.make_dual(value.detach(), tangent)
    return value.detach() + (linear - linear.detach())


@dataclass(frozen=True)
class Norm:
    """y = gain * (x - centred * mean(x)) / sqrt(mean((x - centred * mean(x))^2) + epsilon) + bias."""

    gain: Tensor
    bias: Tensor
    centred: bool
    epsilon: float

    def frozen(self, x: Tensor) -> Tensor:
        """The normaliser as a linear map of `x`, with the statistics of `x` held constant."""
        return self._centred(x) * (self.gain * self.scale(x.detach())) + self.bias

    def scale(self, x: Tensor) -> Tensor:
        """One over the root of the mean square."""
        return (self._centred(x).pow(2).mean(-1, keepdim=True) + self.epsilon).rsqrt()

    def _centred(self, x: Tensor) -> Tensor:
        wide = x.to(self.gain.dtype)
        return wide - wide.mean(-1, keepdim=True) if self.centred else wide


def norm_of(module: nn.Module, x: Tensor) -> Norm:
    """What the normaliser does, found by feeding it three known vectors of the size of `x`'s."""
    epsilon = next((getattr(module, name) for name in _EPSILON_NAMES if isinstance(getattr(module, name, None), float)), 0.0)
    size = x.shape[-1]
    options: dict[str, Any] = {"dtype": x.dtype, "device": x.device}
    signs = torch.ones(size, **options)
    signs[1::2] = -1
    shape = x.shape[-2:] if x.dim() > 3 else x.shape[-1:]  # per-head gains need the head dimension
    feed = lambda vector: module.forward(vector.expand(shape).contiguous())  # noqa: E731
    bias = feed(torch.zeros(size, **options))
    gain = (feed(signs) - bias) * signs * (1 + epsilon) ** 0.5
    centred = bool(((feed(torch.ones(size, **options)) - bias).abs() <= 1e-3 * gain.abs() + 1e-6).all())
    return Norm(gain, bias, centred, epsilon)


class _Freezer:
    """The hooks of one frozen model: `learn_*` on a pass of plain tensors, `freeze_*` under forward mode."""

    def __init__(self) -> None:
        self.norms: dict[nn.Module, Norm] = {}
        self.met: dict[str, set[int | None]] = {"norm": set(), "activation": set()}
        self.gates: set[nn.Module] = set()
        self.at_zero: dict[nn.Module, Tensor] = {}  # slopes; asked for beforehand, as forward mode does not nest
        self.open: tuple[nn.Module, Tensor, int | None] | None = None  # the last activation, until somebody reads what came of it
        self.read: dict[nn.Module, Tensor] = {}  # what a module that is running has read

    def learn_norm(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.met["norm"].add(current_layer())
        norm = self.norms.setdefault(module, norm_of(module, args[0]))
        error = (norm.frozen(args[0]) - output).abs().max()
        tolerance = 50 * torch.finfo(output.dtype).eps if output.dtype != torch.float64 else 1e-5
        if not error <= tolerance * output.abs().max().clamp(min=1e-6):
            raise FreezeError(
                f"The normaliser {type(module).__name__} cannot be frozen: its output would change.",
                asked="freeze=('norm',)",
                found=f"largest change {error.item():.2e}",
                allowed="layer norms and root-mean-square norms",
                do="leave 'norm' out of freeze for this family",
            )

    def hide(self, module: nn.Module, args: tuple) -> tuple:
        """The hook before a module to be frozen: its own derivative, which nobody will use, is not computed."""
        self.read[module] = args[0]
        return (args[0].detach(), *args[1:])

    def freeze_norm(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor:
        return with_tangent_of(output, self.norms[module].frozen(self.read.pop(module)).to(output.dtype))

    def learn_activation(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self._require_reader()
        self.met["activation"].add(current_layer())
        self.open = (module, output, current_layer())
        here = torch.zeros(1, dtype=output.dtype, device=output.device)
        self.at_zero[module] = torch.func.jvp(module.forward, (here,), (torch.ones_like(here),))[1].detach()

    def learn_reader(self, module: nn.Module, args: tuple) -> None:
        if isinstance(module, _ACTIVATIONS):
            return
        if self.open is None or not args or not isinstance(args[0], Tensor) or args[0].shape != self.open[1].shape:
            return
        if not torch.equal(args[0], self.open[1]):
            self.gates.add(self.open[0])
        self.open = None

    def finish(self, kinds: Collection[str], layers: int) -> None:
        """Raise `FreezeError` unless every layer showed a module of every kind, and every activation who reads it."""
        self._require_reader()
        for kind in kinds:
            missed = [layer + 1 for layer in range(layers) if layer not in self.met[kind]]
            if missed:
                raise FreezeError(
                    f"Not every layer shows a module of kind {kind!r}.",
                    asked=f"freeze=({kind!r},)",
                    found=f"none in layers {', '.join(map(str, missed))}: the family calls a function there, which cannot be hooked",
                    do=f"leave {kind!r} out of freeze for this family",
                )

    def _require_reader(self) -> None:
        if self.open is not None and self.open[2] is not None:
            raise FreezeError(
                f"Whether {type(self.open[0]).__name__} belongs to a gated unit cannot be seen.",
                asked="freeze=('activation',)",
                found="no module reads its output (experts, for example, multiply plain weights)",
                do="leave 'activation' out of freeze for this family",
            )

    def freeze_activation(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor:
        x = self.read.pop(module)
        if module in self.gates:
            return output.detach()
        return with_tangent_of(output, x * _slope(x.detach(), output.detach(), self.at_zero[module]))


class FunctionsConstant(TorchFunctionMode):
    """While it is entered, activations called as functions keep their slope f(x) / x constant: RoBERTa's heads call them past all hooks."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Any call of a function of torch."""
        output = func(*args, **(kwargs or {}))
        if func not in _FUNCTIONS:
            return output
        x = args[0]
        return with_tangent_of(output, x * _slope(x.detach(), output.detach(), torch.ones((), dtype=x.dtype, device=x.device)))


def _slope(x: Tensor, y: Tensor, at_zero: Tensor) -> Tensor:
    """y / x, and `at_zero` where x is 0."""
    return torch.where(x == 0, at_zero, y / torch.where(x == 0, torch.ones_like(x), x))


def is_norm(module: nn.Module) -> bool:
    """Whether a module normalises, by the one convention all families share: its class name says so."""
    return "norm" in type(module).__name__.lower() and is_leaf(module)


def is_activation(module: nn.Module) -> bool:
    """Whether a module is one of the elementwise nonlinearities that can be held constant."""
    return isinstance(module, _ACTIVATIONS)


@contextmanager
def _learning(model: nn.Module, kinds: Collection[str], freezer: _Freezer) -> Iterator[None]:
    with _hooks(model, kinds, freezer.learn_norm, freezer.learn_activation), ExitStack() as undo:
        for module in filter(is_leaf, model.modules()):
            undo.callback(module.register_forward_pre_hook(freezer.learn_reader).remove)
        yield


@contextmanager
def _hooks(model: nn.Module, kinds: Collection[str], on_norm: Any, on_activation: Any, before: Any = None) -> Iterator[None]:
    with ExitStack() as undo:
        for module in model.modules():
            norm, activation = "norm" in kinds and is_norm(module), "activation" in kinds and isinstance(module, _ACTIVATIONS)
            if not norm and not activation:
                continue
            if before is not None:
                undo.callback(module.register_forward_pre_hook(before).remove)
            undo.callback(module.register_forward_hook(on_norm if norm else on_activation).remove)
        yield


@contextmanager
def frozen(model: nn.Module, kinds: Collection[str], run_once: Any) -> Iterator[None]:
    """Freeze `kinds` ("norm", "activation") of `model` inside this context; `run_once()` runs the model on plain tensors.

    Raises `FreezeError` where freezing would change an output or where no such module was met.
    """
    kinds = set(kinds) & {"norm", "activation"}
    freezer = _Freezer()
    if kinds:
        with torch.no_grad(), _learning(model, kinds, freezer):
            seen = run_once()
        freezer.finish(kinds, seen.layers)
    with _hooks(model, kinds, freezer.freeze_norm, freezer.freeze_activation, freezer.hide):
        yield
