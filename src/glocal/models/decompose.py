"""Every vector of a pass as a sum of vectors, one for each token of the text, carried through all layers and the head.

Lane k starts with the tangent x_k at token k and nothing elsewhere; with attention weights, normalisers and activations held constant
everything between is a linear map plus biases, so that the tangents of all lanes add up to the vector itself, but for the biases. What a
module's bias leaves missing is shared out right behind it. The lanes are carried by `vmap` beside one pass of the text: what concerns
all of them at once are the two functions below, which `vmap` hands all lanes.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import jvp, vmap

from glocal.errors import FreezeError
from glocal.models.explained import Explained
from glocal.models.freeze import FunctionsConstant, frozen, is_activation, is_norm, with_tangent_of
from glocal.models.instrument import Watcher, current_layer, is_leaf, watching
from glocal.models.observe import Pass, call_arguments
from glocal.models.outputs import attend

BIASES = ("absdot", "norm", "equal", "source", "none")


@dataclass
class Decomposed:
    """Vectors by lane: a lane per token, and one more for biases where they are an own source. They sum to `hidden` and to `output`."""

    layers: dict[int, Float[Tensor, "lane target width"]] = field(default_factory=dict)
    output: Float[Tensor, " lane"] | None = None
    largest_gap: float = 0.0  # of any sum, relative to the vector itself


class _Total(torch.autograd.Function):
    """The sum over all lanes."""

    @staticmethod
    def forward(tangent: Tensor) -> Tensor:
        raise AssertionError("lanes are always carried by vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], tangent: Tensor) -> tuple[Tensor, None]:
        lane = in_dims[0]
        return (tangent * info.batch_size if lane is None else tangent.sum(lane)), None


class _Shared(torch.autograd.Function):
    """The lanes with what is missing of their sum shared out among them."""

    @staticmethod
    def forward(tangent: Tensor, missing: Tensor, bias: str, causal: bool) -> Tensor:
        raise AssertionError("lanes are always carried by vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple, tangent: Tensor, missing: Tensor, bias: str, causal: bool) -> tuple[Tensor, int]:
        lanes = tangent.expand(info.batch_size, *tangent.shape) if in_dims[0] is None else tangent.movedim(in_dims[0], 0)
        return torch.addcmul(lanes, _weights(lanes, missing, bias, causal).unsqueeze(-1), missing), 0


def _weights(lanes: Float[Tensor, "lane *place width"], missing: Float[Tensor, "*place width"], bias: str, causal: bool) -> Tensor:
    """Share of the bias for every lane [lane, *place], the lanes of future tokens always left out."""
    if bias in ("source", "none"):
        weights = torch.zeros_like(lanes[..., 0])
        weights[-1] = 1
        return weights
    lengths = lanes.norm(dim=-1)
    seen = (lengths > 0).to(lengths)
    if bias == "equal":
        if causal and missing.numel() == missing.shape[-1] * len(lanes):
            seen = torch.ones(len(lanes), len(lanes), dtype=lengths.dtype, device=lengths.device).triu().reshape(lengths.shape)
        elif not causal or missing.numel() == missing.shape[-1]:
            seen = torch.ones_like(lengths)
        return seen / seen.sum(0).clamp(min=1)
    sizes = torch.linalg.vecdot(lanes, missing).abs() if bias == "absdot" else lengths
    total = sizes.sum(0)
    even = seen / seen.sum(0).clamp(min=1)
    return torch.where(total > 0, sizes / torch.where(total > 0, total, torch.ones_like(total)), even)


class _Shares(Watcher):
    """Starts the lanes, keeps attention constant, shares biases out, and notes what leaves every layer."""

    def __init__(self, x: Tensor, bias: str, causal: bool, keep: bool):
        self.x, self.bias, self.causal, self.keep = x, bias, causal, keep
        self.layers: dict[int, Tensor] = {}
        self.largest_gap = 0.0
        self.waiting = False  # in a layer whose attention has not run yet
        self.incomplete = False  # what comes next reads values whose own bias was not shared out yet
        self.read: dict[nn.Module, Any] = {}  # what a module that is running has read

    def layer_input(self, index: int, hidden: Tensor) -> Tensor:
        self.waiting = True
        return self.x[None] if index == 0 else hidden

    def attention(self, index: int, weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
        self.waiting, self.incomplete = False, True
        return with_tangent_of(output, attend(weights.detach(), values))

    def layer_output(self, index: int, hidden: Tensor) -> Tensor:
        primal, tangent = _taken(hidden)
        self.require(primal, tangent, f"layer {index + 1}")
        if self.keep:
            self.layers[index + 1] = hidden[0]
        return hidden

    def before(self, module: nn.Module, args: tuple) -> None:
        """The hook before every module that may add a bias."""
        self.read[module] = args[0] if args else None

    def after(self, module: nn.Module, args: tuple, output: Any) -> Any:
        """The hook behind every module that may add a bias."""
        read = self.read.pop(module)
        if not isinstance(output, Tensor) or not isinstance(read, Tensor):
            return None
        primal, tangent = forward_ad.unpack_dual(output)
        if tangent is None:
            return None
        # Queries and keys are constants; the values' bias goes with the output projection's, as in the formula.
        if self.waiting and current_layer() is not None and not (is_norm(module) and self._complete(read)):
            return None
        if not self.incomplete and not self._complete(read):
            raise self._refusal(type(module).__name__, "its input is no sum of the sources' vectors")
        self.incomplete = False
        missing = primal - _Total.apply(tangent)
        if not bool(missing.any()):
            return None
        return forward_ad.make_dual(primal, _Shared.apply(tangent, missing, self.bias, self.causal))

    def require(self, primal: Tensor, tangent: Tensor, where: str) -> None:
        """Raise `FreezeError` unless the lanes add up to the vectors."""
        gap = (primal - _Total.apply(tangent)).norm(dim=-1) / primal.norm(dim=-1).clamp(min=1e-12)
        self.largest_gap = max(self.largest_gap, float(gap.max()))
        if not bool((gap <= _tolerance(primal)).all()):
            raise self._refusal(where, f"the sources' vectors miss it by {float(gap.max()):.1e} of its length")

    def _complete(self, x: Tensor) -> bool:
        primal, tangent = forward_ad.unpack_dual(x)
        if tangent is None:
            return False
        gap = (primal - _Total.apply(tangent)).norm(dim=-1)
        return bool((gap <= _tolerance(primal) * primal.norm(dim=-1).clamp(min=1e-12)).all())

    def _refusal(self, where: str, found: str) -> FreezeError:
        return FreezeError(
            "The pass cannot be taken apart exactly.",
            asked="a decomposition into the tokens' vectors",
            found=f"{where}: {found}",
            allowed="models made of linear maps, normalisers, activations that are modules, and attention",
            do="use integrated_gradients, gradient_x_input or occlusion for this model and output",
        )


def _tolerance(primal: Tensor) -> float:
    return max(1e-5, 8 * torch.finfo(primal.dtype).eps)


def _taken(value: Tensor) -> tuple[Tensor, Tensor]:
    primal, tangent = forward_ad.unpack_dual(value)
    return primal, torch.zeros_like(primal) if tangent is None else tangent


def decompose(model: nn.Module, seen: Pass, *, bias: str = "absdot", explained: Explained | None = None, keep: bool = True) -> Decomposed:
    """Decompose one pass of an instrumented `model` (the whole one, if `explained` is given), from the embedding block's output.

    `bias`: "absdot" shares a bias b by |b . v_k|, v_k the lanes' vectors right there; "norm" by ||v_k||; "equal"; "source" gives it to a
    lane of its own, "none" too, for callers that leave that lane out. `keep`: whether every layer's vectors are kept.
    Raises `FreezeError` where something is not linear or sums do not reproduce layers and output (relative 1e-5).
    """
    x = seen.hidden[0]
    tangents = x.new_zeros(len(x) + (bias in ("source", "none")), *x.shape)
    places = torch.arange(len(x), device=x.device)
    tangents[places, places] = x
    shares = _Shares(x, bias, seen.causal, keep)

    def run(point: Tensor) -> tuple[dict[int, Tensor], Tensor]:
        shares.x = point
        if explained is None:
            with watching(shares):
                model(**call_arguments(model, seen.inputs))  # pyright: ignore[reportArgumentType]
            return shares.layers, point.sum()
        with FunctionsConstant():
            output = explained.values(seen.inputs, watcher=shares, frozen=True)
        value, lanes = _taken(output)
        shares.require(value[:, None], lanes[:, None], explained.name)
        return shares.layers, output[0]

    constant = frozen(model, ("norm", "activation"), lambda: _run_once(model, seen))
    with constant, _sharing(model, shares), torch.no_grad():
        layers, output = vmap(lambda tangent: jvp(run, (x,), (tangent,))[1])(tangents)
    return Decomposed(layers, None if explained is None else output, shares.largest_gap)


def _run_once(model: Any, seen: Pass) -> Pass:
    with watching(Watcher()):
        model(**call_arguments(model, seen.inputs))
    return seen


@contextmanager
def _sharing(model: nn.Module, shares: _Shares) -> Iterator[None]:
    with ExitStack() as undo:
        for module in model.modules():
            if is_leaf(module) and not is_activation(module):
                # First of all: a hook that freezes hides what the module reads.
                undo.callback(module.register_forward_pre_hook(shares.before, prepend=True).remove)
                undo.callback(module.register_forward_hook(shares.after).remove)
        yield
