"""Cheaper tangents are the same tangents."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import jvp, vmap

from glocal.jacobian.rules import CheapTangents

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(1, 3, 8, dtype=torch.float64, generator=GENERATOR)
WEIGHT, BIAS = torch.randn(6, 8, dtype=torch.float64, generator=GENERATOR), torch.randn(6, dtype=torch.float64, generator=GENERATOR)
GAIN, SHIFT = torch.randn(8, dtype=torch.float64, generator=GENERATOR), torch.randn(8, dtype=torch.float64, generator=GENERATOR)
TANGENTS = torch.randn(5, *X.shape, dtype=torch.float64, generator=GENERATOR)

FUNCTIONS = {
    "linear": lambda x: F.linear(x, WEIGHT, BIAS),
    "linear without bias": lambda x: F.linear(x, WEIGHT),
    "linear by name": lambda x: F.linear(x, weight=WEIGHT, bias=BIAS),
    "addmm": lambda x: torch.addmm(BIAS, x[0], WEIGHT.T),
    "layer norm": lambda x: F.layer_norm(x, (8,), GAIN, SHIFT, 1e-3),
    "layer norm without gain": lambda x: F.layer_norm(x, (8,)),
    "layer norm over two dimensions": lambda x: F.layer_norm(x, (3, 8)),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "tanh as a method": lambda x: x.tanh(),
    "sigmoid": torch.sigmoid,
    "one after another": lambda x: F.layer_norm(x + F.linear(F.gelu(F.linear(x, WEIGHT, BIAS)), WEIGHT.T), (8,), GAIN, SHIFT),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_tangents_are_the_same(name):
    function = FUNCTIONS[name]
    plain = vmap(lambda t: jvp(function, (X,), (t,)))(TANGENTS)
    with CheapTangents():
        cheap = vmap(lambda t: jvp(function, (X,), (t,)))(TANGENTS)
    assert torch.equal(plain[0], cheap[0])
    torch.testing.assert_close(cheap[1], plain[1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_without_tangents_are_untouched(name):
    with CheapTangents():
        assert torch.equal(FUNCTIONS[name](X), FUNCTIONS[name](X.clone()))


def test_half_precision_layer_norms_keep_their_own_rule():
    half = X.to(torch.bfloat16)
    function = lambda x: F.layer_norm(x, (8,), GAIN.bfloat16(), SHIFT.bfloat16())  # noqa: E731
    with CheapTangents():
        moved = vmap(lambda t: jvp(function, (half,), (t,))[1])(TANGENTS.bfloat16())
    assert torch.equal(moved, vmap(lambda t: jvp(function, (half,), (t,))[1])(TANGENTS.bfloat16()))
