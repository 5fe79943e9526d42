"""Reverse mode for few targets, exactly and sketched on the output side."""

import pytest
import torch

from glocal.errors import ChoiceError
from glocal.jacobian.features import feature_maps
from glocal.jacobian.reverse import make_cotangents, reverse, variance_of_sum
from glocal.jacobian.shares import errors

SOURCES, WIDTH, HEADS, HEAD_WIDTH = 3, 6, 2, 8
WEIGHTS = torch.randn(SOURCES, HEADS, HEAD_WIDTH, SOURCES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
X = torch.randn(SOURCES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def squares(probes=None, seed=0, norm="frobenius", scale=None, chunk=7):
    maps = feature_maps(norm, width=HEAD_WIDTH, like=X)
    cotangents = make_cotangents(maps, heads=[1], width=HEAD_WIDTH, probes=probes, seed=seed, like=X)
    return reverse(
        lambda x: (torch.einsum("thcsw,sw->thc", WEIGHTS, x),), X, [cotangents], heads=[1], targets=[2, 0], scale=scale, chunk=chunk
    )


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_the_frobenius_norm_of_what_was_asked_for(chunk):
    expected = WEIGHTS[[2, 0], 1].square().sum((1, 3))[None]
    torch.testing.assert_close(squares(chunk=chunk).value[0], expected)


def test_the_summed_norm_and_input_scaling():
    torch.testing.assert_close(squares(norm="summed").value[0], WEIGHTS[[2, 0], 1].sum(1).square().sum(-1)[None])
    torch.testing.assert_close(squares(scale=X).value[0], (WEIGHTS[[2, 0], 1] * X).square().sum((1, 3))[None])


def test_the_sketch_is_unbiased_and_its_intervals_cover():
    exact = squares().value[0]
    runs = [squares(probes=4, seed=seed) for seed in range(800)]
    values = torch.stack([run.value[0] for run in runs])
    error = values.std(0) / len(runs) ** 0.5
    assert bool(((values.mean(0) - exact).abs() < 4.5 * error).all())
    found = [errors(run)[0] for run in runs]
    share = values.sqrt() / values.sqrt().sum(-1, keepdim=True)
    for value, truth, stated in (
        (values.sqrt(), exact.sqrt(), torch.stack([each.of_norm for each in found])),
        (share, exact.sqrt() / exact.sqrt().sum(-1, keepdim=True), torch.stack([each.of_share for each in found])),
    ):
        inside = ((value - truth).abs() <= 1.96 * stated).double().mean()
        assert 0.92 < inside < 0.99, inside


def test_the_variance_from_pairs_is_unbiased():
    generator = torch.Generator().manual_seed(0)
    k, d = 3, 7
    matrix = torch.randn(d, d, generator=generator, dtype=torch.float64)
    matrix = matrix + matrix.T  # shares combine squares with both signs
    drawn = torch.linalg.qr(torch.randn(20000, d, k, generator=generator, dtype=torch.float64))[0] * (d / k) ** 0.5
    grams = drawn.transpose(1, 2) @ matrix @ drawn
    sums = grams.diagonal(dim1=1, dim2=2).sum(-1)
    torch.testing.assert_close(sums.mean(), matrix.trace(), rtol=0, atol=4 * (sums.std() / 20000**0.5).item())
    torch.testing.assert_close(variance_of_sum(grams, d).mean(), sums.var(), rtol=0.05, atol=0)


def test_all_directions_are_exact():
    result = squares(probes=HEAD_WIDTH)
    torch.testing.assert_close(result.value[0], squares().value[0])
    assert result.variance is None


@pytest.mark.parametrize("probes", [0, 1, 9])
def test_impossible_numbers_of_probes_are_refused(probes):
    with pytest.raises(ChoiceError, match=f"probes={probes}.*reverse"):
        squares(probes=probes)
