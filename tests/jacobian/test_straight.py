"""Straight forward mode on functions whose Jacobian is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glocal.jacobian.features import feature_maps, features
from glocal.jacobian.seeds import make_seeds
from glocal.jacobian.squares import Accumulator
from glocal.jacobian.straight import straight

SOURCES, WIDTH, HEADS, HEAD_WIDTH = 3, 6, 2, 4
WEIGHTS = torch.randn(SOURCES, HEADS, HEAD_WIDTH, SOURCES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
X = torch.randn(SOURCES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
PROJECTION = torch.randn(HEADS, 5, HEAD_WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def linear(x):
    return (torch.einsum("thcsw,sw->thc", WEIGHTS, x),)


def squares(chunk=100, probes=None, seed=0, heads=None, targets=range(SOURCES), norm="frobenius", projection=None):
    seeds = make_seeds(X, probes=probes, seed=seed, times_input=False)
    maps = feature_maps(norm, width=HEAD_WIDTH, like=X, projection=projection)
    total = Accumulator([maps], SOURCES, WIDTH)
    total.run(straight(linear, X, seeds), seeds, chunk)
    return total.squares(heads, targets, exact=probes is None)


@given(st.integers(1, 40))
def test_any_chunk_gives_the_frobenius_norm(chunk):
    torch.testing.assert_close(squares(chunk).value[0], WEIGHTS.square().sum((2, 4)).permute(1, 0, 2))


def test_the_summed_norm_is_that_of_the_summed_components():
    torch.testing.assert_close(squares(norm="summed").value[0], WEIGHTS.sum(2).square().sum(-1).permute(1, 0, 2))


@pytest.mark.parametrize("norm", ["frobenius", "summed"])
def test_a_projection_is_applied_before_the_norm(norm):
    projected = torch.einsum("hoc,thcsw->thosw", PROJECTION, WEIGHTS)
    expected = projected.square().sum((2, 4)) if norm == "frobenius" else projected.sum(2).square().sum(-1)
    torch.testing.assert_close(squares(norm=norm, projection=PROJECTION).value[0], expected.permute(1, 0, 2))


def test_heads_and_targets_are_chosen():
    torch.testing.assert_close(squares(targets=[2, 0], heads=[1]).value[0], squares().value[0][1:, [2, 0]])


@pytest.mark.parametrize("probes", [2, 4])
def test_the_sketch_is_unbiased_and_its_variance_is_what_it_says(probes, monkeypatch):
    monkeypatch.setattr("glocal.jacobian.squares._steadied", lambda value, variance, pairs: variance)
    exact = squares().value[0]
    runs = [squares(probes=probes, seed=seed) for seed in range(800)]
    values = torch.stack([run.value[0] for run in runs])
    variances = torch.stack([run.variance[0] for run in runs])
    standard_error = values.std(0) / len(runs) ** 0.5
    assert bool(((values.mean(0) - exact).abs() < 4.5 * standard_error).all())
    torch.testing.assert_close(variances.mean((0, 1, 2, 3)), values.var(0).mean(), rtol=0.07, atol=0)


def test_the_sketch_does_not_depend_on_the_chunk():
    """Pairs of directions are counted within chunks: values agree always, variances in expectation."""
    torch.testing.assert_close(squares(2, probes=4).value[0], squares(probes=4).value[0])
    torch.testing.assert_close(squares(8, probes=4).variance[0], squares(probes=4).variance[0])


def test_directions_may_come_in_rounds():
    total = Accumulator([None], SOURCES, WIDTH)
    for start, stop in ((0, 2), (2, 5)):
        seeds = make_seeds(X, probes=stop, seed=0, times_input=False).since(start)
        total.run(straight(linear, X, seeds), seeds, 100)
    torch.testing.assert_close(total.squares(None, range(SOURCES), exact=False).value[0], squares(probes=5).value[0])


def test_all_directions_leave_no_variance():
    result = squares(probes=WIDTH)
    torch.testing.assert_close(result.value[0], squares().value[0])
    torch.testing.assert_close(result.variance[0], torch.zeros_like(result.value[0]))


def test_half_precision_is_squared_and_summed_in_wider_types():
    huge = torch.full((1, 1, 4, 1), 3e4, dtype=torch.float16)
    assert features(huge, None).dtype == torch.float32
    assert features(huge, None).square().isfinite().all()


def test_progress_counts_every_tangent():
    done = []
    seeds = make_seeds(X, probes=None, seed=0, times_input=False)
    Accumulator([None], SOURCES, WIDTH).run(straight(linear, X, seeds), seeds, 7, done.append)
    assert done == [6, 6, 6]
