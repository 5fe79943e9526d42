"""Reverse mode for few targets, exactly and sketched on the output side."""

import pytest
import torch

from glocal.errors import ChoiceError
from glocal.jacobian.features import feature_maps
from glocal.jacobian.reverse import make_cotangents, reverse

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


def test_the_sketch_is_unbiased_and_its_variances_are_what_they_say():
    exact = squares().value[0]
    runs = [squares(probes=4, seed=seed) for seed in range(800)]
    values = torch.stack([run.value[0] for run in runs])
    error = values.std(0) / len(runs) ** 0.5
    assert bool(((values.mean(0) - exact).abs() < 4.5 * error).all())
    stated = torch.stack([run.variance[0] for run in runs]).mean(0)
    torch.testing.assert_close(stated.mean(), values.var(0).mean(), rtol=0.07, atol=0)
    share = values.sqrt() / values.sqrt().sum(-1, keepdim=True)
    of_share = torch.stack([run.share_variance[0] for run in runs]).mean(0)
    torch.testing.assert_close(of_share.mean(), share.var(0).mean(), rtol=0.2, atol=0)


def test_all_directions_are_exact():
    result = squares(probes=HEAD_WIDTH)
    torch.testing.assert_close(result.value[0], squares().value[0])
    assert result.variance is None


@pytest.mark.parametrize("probes", [0, 1, 9])
def test_impossible_numbers_of_probes_are_refused(probes):
    with pytest.raises(ChoiceError, match=f"probes={probes}.*reverse"):
        squares(probes=probes)
