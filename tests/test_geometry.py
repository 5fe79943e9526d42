"""Functions of hidden states: values by hand, exact cases, and the trained model."""

import pytest
import torch

from glocal.errors import ChoiceError
from glocal.geometry import commutativity, cone_size, expansion_rate, identification_rate, linearity

D = torch.float64


def random(*shape):
    return torch.randn(*shape, dtype=D)


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_states_that_are_their_inputs_are_all_identified(distance):
    x = random(7, 5)
    assert identification_rate(x, x, distance=distance) == 1
    assert identification_rate(x[[1, 0, 2, 3, 4, 5, 6]], x, distance=distance) == 5 / 7


def test_length_matters_to_one_distance_only():
    inputs = torch.tensor([[1.0, 0.0], [3.0, 1.0]], dtype=D)
    states = torch.tensor([[4.0, 0.0], [3.0, 1.0]], dtype=D)
    assert identification_rate(states, inputs) == 1 and identification_rate(states, inputs, distance="l2") == 0.5


def test_the_cone_by_hand():
    states = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=D)
    assert torch.isclose(cone_size(states), torch.tensor(2 * 0.5**0.5 / 3, dtype=D))
    assert torch.isclose(cone_size(torch.tensor([[1.0, 1.0], [2.0, 2.0]], dtype=D)), torch.ones((), dtype=D))


def test_an_affine_map_is_linear_and_a_square_is_not():
    x, weight, bias = random(200, 6), random(6, 6), random(6)
    affine = lambda x: x @ weight + bias  # noqa: E731
    gamma, corrected = linearity(x[:150], affine(x[:150]), x[150:], affine(x[150:]))
    assert torch.allclose(torch.stack([gamma, corrected]), torch.ones(2, dtype=D), atol=1e-6)
    gamma, corrected = linearity(x[:150], (x[:150] ** 2), x[150:], x[150:] ** 2)
    assert corrected < 0.5 < gamma < 1


def test_scalings_commute_and_rotations_with_a_bend_do_not():
    x, turn = random(20, 4), torch.linalg.qr(random(4, 4))[0]
    assert torch.isclose(commutativity(lambda x: 2 * x, torch.relu, x.abs() + 1), torch.ones((), dtype=D))
    assert commutativity(lambda x: x @ turn, lambda x: torch.tanh(3 * x), x) < 0.95


def test_the_expansion_rate_is_the_root_mean_square_of_singular_values():
    value, output, bias = random(6, 5), random(5, 6), random(6)
    whole = torch.cat([output @ value, (output @ bias)[:, None]], 1)
    expected = torch.linalg.svdvals(whole).square().sum().sqrt() / 6**0.5
    assert torch.isclose(expansion_rate(value, output, bias), expected)
    x = random(200000, 5)
    ratio = (x @ (output @ value).T).square().sum(-1).mean().sqrt() / x.square().sum(-1).mean().sqrt()
    assert torch.isclose(expansion_rate(value, output), ratio, rtol=0.01)


def test_refusals():
    with pytest.raises(ChoiceError, match="cosine, l2"):
        identification_rate(random(3, 2), random(3, 2), distance="far")
    with pytest.raises(ChoiceError, match="two tokens"):
        cone_size(random(1, 2))


def test_tokens_of_the_trained_model_are_identified_in_its_first_layer(minilm):
    model, tokenizer = minilm
    with torch.no_grad():
        states = model(
            **tokenizer("The quick brown fox jumps over a lazy dog.", return_tensors="pt"), output_hidden_states=True
        ).hidden_states
    rates = [identification_rate(each[0], states[0][0]).item() for each in states]
    assert rates[0] == 1 and rates[1] > 0.5 and all(0 <= rate <= 1 for rate in rates)
    layer = model.encoder.layer[0].attention
    rate = expansion_rate(layer.self.value.weight, layer.output.dense.weight, layer.self.value.bias)
    assert 0.05 < rate.item() < 5
