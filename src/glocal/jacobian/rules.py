"""Cheaper tangents for the operations that transformers are made of; values are computed by the very same operations as before.

Why: under `vmap(jvp)` torch adds a tangent of zeros for every bias (two passes over memory for each linear map), spreads a layer norm's
tangent over a dozen passes, and evaluates an activation's slope again for every tangent. On processors with fast matrix units that is
more than half of the time. The mathematics is unchanged, and every law is tested with these rules in force.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.func import jvp
from torch.overrides import TorchFunctionMode


class _Linear(Function):
    """y = x W^T + b, whose tangent is dx W^T."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def jvp(ctx: Any, x: Tensor, *_: Any) -> Tensor:
        return F.linear(x, ctx.saved_tensors[0])


class _Addmm(Function):
    """y = b + x W, whose tangent is dx W."""

    generate_vmap_rule = True

    @staticmethod
    def forward(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return torch.addmm(bias, x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def jvp(ctx: Any, _bias: Any, x: Tensor, *_: Any) -> Tensor:
        return x @ ctx.saved_tensors[0]


class _Elementwise(Function):
    """y = f(x) component by component, whose tangent is dx f'(x); the slope is found once, for all tangents."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, function = inputs
        ctx.save_for_forward(jvp(function, (x,), (torch.ones_like(x),))[1])

    @staticmethod
    def jvp(ctx: Any, x: Tensor, *_: Any) -> Tensor:
        return x * ctx.saved_tensors[0]


class _ScaleMinusProjections(Function):
    """dx * scale - (dx @ rows) @ columns for every token, in three passes over memory whatever the number of tangents."""

    @staticmethod
    def forward(x: Tensor, scale: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return x * scale - (x.unsqueeze(-2) @ rows @ columns).squeeze(-2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple, x: Tensor, scale: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, int]:
        width = x.shape[-1]
        tangents = x.movedim(in_dims[0], 0).reshape(info.batch_size, -1, width)
        rows, columns = rows.reshape(-1, width, 2), columns.reshape(-1, 2, width)
        result = tangents * scale.reshape(-1, width)
        by_token = result.transpose(0, 1)
        by_token.baddbmm_(torch.bmm(tangents.transpose(0, 1), rows), columns, alpha=-1)
        return result.reshape(info.batch_size, *x.movedim(in_dims[0], 0).shape[1:]), 0


class _LayerNorm(Function):
    """Layer norm over the last dimension; tangent gain / s (dx - mean(dx) - xhat mean(xhat dx))."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        return F.layer_norm(x, shape, weight, bias, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, _, weight, _, eps = inputs
        centred = x - x.mean(-1, keepdim=True)
        inverse = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
        scale = inverse.expand_as(x) if weight is None else inverse * weight
        normal = centred * inverse
        ones = torch.ones_like(normal)
        rows = torch.stack((ones, normal), -1) / x.shape[-1]
        columns = torch.stack((scale, scale * normal), -2)
        ctx.save_for_forward(scale, rows, columns)

    @staticmethod
    def jvp(ctx: Any, x: Tensor, *_: Any) -> Tensor:
        return _ScaleMinusProjections.apply(x, *ctx.saved_tensors)


def _linear(func: Any, args: tuple, kwargs: dict) -> Tensor:
    x, weight, bias = (*args, *kwargs.values(), None)[:3]
    return _Linear.apply(x, weight, bias)


def _addmm(func: Any, args: tuple, kwargs: dict) -> Tensor:
    if kwargs or len(args) != 3:
        return func(*args, **kwargs)
    return _Addmm.apply(*args)


def _elementwise(func: Any, args: tuple, kwargs: dict) -> Tensor:
    return _Elementwise.apply(args[0], lambda x: func(x, *args[1:], **kwargs))


def _layer_norm(func: Any, args: tuple, kwargs: dict) -> Tensor:
    def named(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
        if len(shape) != 1 or x.dtype not in (torch.float32, torch.float64):  # statistics in half precision would lose digits
            return func(x, shape, weight, bias, eps)
        return _LayerNorm.apply(x, shape, weight, bias, eps)

    return named(*args, **kwargs)


_RULES: dict[Any, Callable] = {
    F.linear: _linear,
    torch.addmm: _addmm,
    F.layer_norm: _layer_norm,
    **dict.fromkeys((F.gelu, F.silu, torch.tanh, Tensor.tanh, F.tanh, torch.sigmoid), _elementwise),
}


class CheapTangents(TorchFunctionMode):
    """While active, linear maps, layer norms and activations of the network use the rules above.

    Their weights must not carry tangents themselves: only the network's input does. Calling a rule costs more than it saves on few
    tangents: `worth_it` says from where on.
    """

    @staticmethod
    def worth_it(token_tangents: int) -> bool:
        """Whether the rules pay for this many tangents times tokens (measured: from about 1,500 on)."""
        return token_tangents >= 1536

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        rule = _RULES.get(func)
        return func(*args, **(kwargs or {})) if rule is None else rule(func, args, kwargs or {})
