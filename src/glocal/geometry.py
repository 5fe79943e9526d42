"""What hidden states look like: small, separate functions of plain tensors.

Hidden states come from `model(..., output_hidden_states=True).hidden_states`, without padding.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import ChoiceError

DISTANCES = ("cosine", "l2")


def identification_rate(
    states: Float[Tensor, "token width"], inputs: Float[Tensor, "token width"], *, distance: str = "cosine"
) -> Float[Tensor, ""]:
    """Share of tokens whose input is the nearest one of all inputs of the text to the hidden state at their position.

    mean over i of [argmin_j distance(states_i, inputs_j) = i], `distance` "cosine" (1 - cos) or "l2"; of equal distances (a token that
    occurs twice without positions) one is enough. Brunner et al. 2020 (1908.04211), their untrained ("naive") map; a trained map g is
    applied beforehand: pass g(states). Raises `ChoiceError` for another distance. NaN vectors identify nothing.
    """
    if distance not in DISTANCES:
        raise ChoiceError(
            "There is no such distance.", asked=f"distance={distance!r}", allowed=", ".join(DISTANCES), do="choose one of these"
        )
    far = 1 - _unit(states) @ _unit(inputs).T if distance == "cosine" else torch.cdist(states, inputs)
    return (far.diagonal() <= far.min(-1).values).to(states.dtype).mean()


def cone_size(states: Float[Tensor, "token width"]) -> Float[Tensor, ""]:
    """Mean cosine of the hidden states of two different tokens: 0 where directions are spread evenly, 1 where all are one.

    Zhao et al. 2021 (2101.04547). Raises `ChoiceError` for fewer than two tokens.
    """
    tokens = len(states)
    if tokens < 2:
        raise ChoiceError("A cone needs two tokens.", asked=f"{tokens} tokens", allowed="two or more", do="pass a longer text, or several")
    cosines = _unit(states) @ _unit(states).T
    return (cosines.sum() - cosines.diagonal().sum()) / (tokens * (tokens - 1))


def linearity(
    inputs: Float[Tensor, "token width"],
    outputs: Float[Tensor, "token out"],
    held_inputs: Float[Tensor, "held width"],
    held_outputs: Float[Tensor, "held out"],
    *,
    ridge: float = 1e-6,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """How well an affine map replaces a component: (gamma, gamma corrected for the cone of the outputs), on held-out tokens.

    gamma = mean cos(f(e), f*(e)); corrected (gamma - cone) / (1 - cone), 1 for an affine f, about 0 for a map that knows the mean direction
    only. f* is the least-squares fit with `ridge` times the mean variance of the inputs (Zhao et al. 2021, 2101.04547, train it with a
    cosine loss). It needs several times as many tokens as the width.
    """
    mean_in, mean_out = inputs.mean(0), outputs.mean(0)
    x, y = inputs - mean_in, outputs - mean_out
    gram = x.T @ x
    gram = gram + ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=x.dtype, device=x.device)
    fitted = (held_inputs - mean_in) @ torch.linalg.solve(gram, x.T @ y) + mean_out
    gamma = (_unit(fitted) * _unit(held_outputs)).sum(-1).mean()
    cone = cone_size(held_outputs)
    return gamma, (gamma - cone) / (1 - cone)


def commutativity(
    first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor], states: Float[Tensor, "token width"]
) -> Float[Tensor, ""]:
    """Mean over tokens of cos(second(first(states)), first(second(states))): 1 where the order of two components does not matter.

    After Zhao et al. 2021 (2101.04547), who exchange whole layers. Components are functions [token, width] -> [token, width].
    """
    return (_unit(second(first(states))) * _unit(first(second(states)))).sum(-1).mean()


def expansion_rate(
    value: Float[Tensor, "inner width"], output: Float[Tensor, "width inner"], bias: Float[Tensor, " inner"] | None = None
) -> Float[Tensor, ""]:
    """Root mean square of the singular values of a value-output circuit: how much longer vectors get in it, on average.

    ||[output value, output bias]||_F / sqrt(width + 1): the circuit of all heads jointly, its bias as one more column (without one,
    sqrt(width)). `value` and `output` as in torch's Linear.weight. Kobayashi et al. 2021 (2109.07152), from their code: weights only.
    Expected length of f(x) for x of independent components of unit variance, divided by that of x.
    """
    circuit = output @ value
    if bias is not None:
        circuit = torch.cat([circuit, (output @ bias)[:, None]], 1)
    return circuit.norm() / circuit.shape[1] ** 0.5


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)
