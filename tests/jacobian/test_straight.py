"""Straight forward mode on functions whose Jacobian is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glocal.jacobian.energy import make_energy
from glocal.jacobian.seeds import make_seeds
from glocal.jacobian.straight import straight

SOURCES, WIDTH, HEADS, HEAD_WIDTH = 3, 6, 2, 4
WEIGHTS = torch.randn(SOURCES, HEADS, HEAD_WIDTH, SOURCES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
X = torch.randn(SOURCES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
PROJECTION = torch.randn(HEADS, 5, HEAD_WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def linear(x):
    return (torch.einsum("thcsw,sw->thc", WEIGHTS, x),)


def squares(chunk=100, probes=None, seed=0, **energy):
    seeds = make_seeds(X, probes=probes, seed=seed, times_input=False)
    kinds = {"norm": "frobenius", "targets": torch.arange(SOURCES), "heads": None} | energy
    return straight(linear, X, seeds, [make_energy(**kinds)], chunk=chunk)


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


def test_heads_and_targets_are_chosen_before_the_norm():
    part = squares(targets=torch.tensor([2, 0]), heads=torch.tensor([1])).value[0]
    torch.testing.assert_close(part, squares().value[0][1:, [2, 0]])


def test_the_sketch_is_unbiased_and_its_variance_is_what_it_says():
    exact = squares().value[0]
    runs = [squares(probes=2, seed=seed) for seed in range(600)]
    values = torch.stack([run.value[0] for run in runs])
    variances = torch.stack([run.variance[0] for run in runs])
    standard_error = values.std(0) / len(runs) ** 0.5
    assert bool(((values.mean(0) - exact).abs() < 4.5 * standard_error).all())
    torch.testing.assert_close(variances.mean((0, 1, 2, 3)), values.var(0).mean(), rtol=0.1, atol=0)


def test_all_directions_leave_no_variance():
    result = squares(probes=WIDTH)
    torch.testing.assert_close(result.value[0], squares().value[0])
    torch.testing.assert_close(result.variance[0], torch.zeros_like(result.value[0]))


def test_half_precision_is_squared_and_summed_in_wider_types():
    energy = make_energy("frobenius", targets=torch.arange(1), heads=None)
    huge = torch.full((1, 1, 1, 4), 3e4, dtype=torch.float16)
    assert energy(huge).dtype == torch.float32
    assert energy(huge).isfinite().all()


def test_progress_counts_every_tangent():
    done = []
    seeds = make_seeds(X, probes=None, seed=0, times_input=False)
    straight(linear, X, seeds, [make_energy("frobenius", targets=torch.arange(SOURCES), heads=None)], chunk=7, advance=done.append)
    assert done == [7, 7, 4]
