"""Every vector of a pass as a sum of vectors, one for each token of the text, carried through all layers and the head.

As many copies of the text run together as it has tokens. Copy k starts with the tangent x_k at token k and nothing elsewhere; with
attention weights, normalisers and activations held constant everything between is a linear map plus biases, so that the tangents of all
copies add up to the vector itself, but for the biases. What a module's bias leaves missing is shared out right behind it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad

from glocal.errors import FreezeError
from glocal.models.explained import Explained, rows_of
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


class _Shares(Watcher):
    """Starts the lanes, keeps attention constant, shares biases out, and notes what leaves every layer."""

    def __init__(self, x: Tensor, tangent: Tensor, bias: str, causal: bool, keep: bool):
        self.x, self.tangent, self.bias, self.causal, self.keep = x, tangent, bias, causal, keep
        self.found = Decomposed()
        self.waiting = False  # in a layer whose attention has not run yet
        self.incomplete = False  # what comes next reads values whose own bias was not shared out yet

    def layer_input(self, index: int, hidden: Tensor) -> Tensor:
        self.waiting = True
        return forward_ad.make_dual(self.x.expand_as(self.tangent).clone(), self.tangent) if index == 0 else hidden

    def attention(self, index: int, weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
        self.waiting, self.incomplete = False, True
        return with_tangent_of(output, attend(weights.detach(), values))

    def layer_output(self, index: int, hidden: Tensor) -> Tensor:
        primal, tangent = _taken(hidden)
        self.require(primal, tangent, f"layer {index + 1}")
        if self.keep:
            self.found.layers[index + 1] = tangent
        return hidden

    def after(self, module: nn.Module, args: tuple, output: Any) -> Any:
        """The hook behind every module that may add a bias."""
        if not isinstance(output, Tensor) or not args or not isinstance(args[0], Tensor):
            return None
        primal, tangent = self._lanes(output)
        if tangent is None:
            return None
        complete = self._complete(args[0])
        # Queries and keys are constants; the values' bias goes with the output projection's, as in the formula.
        if self.waiting and current_layer() is not None and not (is_norm(module) and complete):
            return None
        if not complete and not self.incomplete:
            raise self._refusal(type(module).__name__, "its input is no sum of the sources' vectors")
        self.incomplete = False
        missing = primal[0] - tangent.sum(0)
        if not bool(missing.any()):
            return None
        made = tangent + self._weights(missing, tangent).unsqueeze(-1) * missing
        return forward_ad.make_dual(primal.reshape(output.shape), made.reshape(output.shape))

    def _lanes(self, value: Tensor) -> tuple[Tensor, Tensor | None]:
        """Value and tangent by lane; some families put texts and tokens into one dimension on the way."""
        primal, tangent = forward_ad.unpack_dual(value)
        lanes = len(self.tangent)
        if tangent is None or len(primal) == lanes:
            return primal, tangent
        return primal.reshape(lanes, -1, primal.shape[-1]), tangent.reshape(lanes, -1, primal.shape[-1])

    def require(self, primal: Tensor, tangent: Tensor, where: str) -> None:
        """Raise `FreezeError` unless the lanes add up to the vectors."""
        gap = (primal[0] - tangent.sum(0)).norm(dim=-1) / primal[0].norm(dim=-1).clamp(min=1e-12)
        self.found.largest_gap = max(self.found.largest_gap, float(gap.max()))
        if not bool((gap <= _tolerance(primal)).all()):
            raise self._refusal(where, f"the sources' vectors miss it by {float(gap.max()):.1e} of its length")

    def _complete(self, x: Tensor) -> bool:
        primal, tangent = self._lanes(x)
        if tangent is None:
            return False
        return bool(((primal[0] - tangent.sum(0)).norm(dim=-1) <= _tolerance(primal) * primal[0].norm(dim=-1).clamp(min=1e-12)).all())

    def _weights(self, missing: Tensor, tangent: Tensor) -> Tensor:
        """Share of the bias for every lane [lane, ...], the lanes of future tokens always left out."""
        if self.bias in ("source", "none"):
            weights = torch.zeros_like(tangent[..., 0])
            weights[-1] = 1
            return weights
        lengths = tangent.norm(dim=-1)
        seen = (lengths > 0).to(lengths)
        if self.bias == "equal":
            if self.causal and missing.dim() > 1 and len(missing) == len(tangent):
                seen = torch.ones_like(lengths).triu()
            elif not self.causal or missing.dim() == 1:
                seen = torch.ones_like(lengths)
            return seen / seen.sum(0).clamp(min=1)
        sizes = (tangent * missing).sum(-1).abs() if self.bias == "absdot" else lengths
        total = sizes.sum(0)
        even = seen / seen.sum(0).clamp(min=1)
        return torch.where(total > 0, sizes / torch.where(total > 0, total, torch.ones_like(total)), even)

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
    lanes = len(x) + (bias in ("source", "none"))
    tangent = x.new_zeros(lanes, *x.shape)
    places = torch.arange(len(x), device=x.device)
    tangent[places, places] = x
    shares = _Shares(x, tangent, bias, seen.causal, keep)
    inputs = rows_of(seen.inputs, lanes)
    constant = frozen(model, ("norm", "activation"), lambda: _run_once(model, seen))
    with constant, _sharing(model, shares), torch.no_grad(), forward_ad.dual_level():
        if explained is None:
            with watching(shares):
                model(**call_arguments(model, inputs))  # pyright: ignore[reportArgumentType]
        else:
            with FunctionsConstant():
                value, found = _taken(explained.values(inputs, watcher=shares, frozen=True))
            shares.require(value[:, None], found[:, None], explained.name)
            shares.found.output = found
    return shares.found


def _run_once(model: Any, seen: Pass) -> Pass:
    with watching(Watcher()):
        model(**call_arguments(model, seen.inputs))
    return seen


@contextmanager
def _sharing(model: nn.Module, shares: _Shares) -> Iterator[None]:
    with ExitStack() as undo:
        for module in model.modules():
            if is_leaf(module) and not is_activation(module):
                undo.callback(module.register_forward_hook(shares.after).remove)
        yield
