"""Seeds: unit vectors exactly, or orthonormal directions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glocal.errors import ChoiceError
from glocal.jacobian.seeds import make_seeds

X = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_exact_seeds_are_all_unit_vectors_of_every_source():
    seeds = make_seeds(X, probes=None, seed=0, times_input=False)
    assert torch.equal(seeds.tangents(0, seeds.total, X).reshape(24, 24), torch.eye(24, dtype=torch.float64))
    assert seeds.segments(0, seeds.total) == [(0, 0, 8), (1, 8, 16), (2, 16, 24)]


def test_chunks_join_to_the_whole():
    seeds = make_seeds(X, probes=5, seed=3, times_input=True)
    whole = seeds.tangents(0, seeds.total, X)
    parts = [seeds.tangents(start, min(start + 4, seeds.total), X) for start in range(0, seeds.total, 4)]
    assert torch.equal(torch.cat(parts), whole)


@given(st.integers(1, 30), st.sampled_from([None, 2, 5]))
def test_chunks_are_whole_sources_or_parts_of_one(size, probes):
    seeds = make_seeds(X, probes=probes, seed=0, times_input=False)
    chunks = seeds.chunks(size)
    assert [number for start, stop in chunks for number in range(start, stop)] == list(range(seeds.total))
    for start, stop in chunks:
        assert stop - start <= size
        segments = seeds.segments(start, stop)
        assert [(segments[0][1], segments[-1][2])] == [(0, stop - start)]
        assert len({last - first for _, first, last in segments}) == 1
        for source, first, last in segments:
            rows = seeds.tangents(start, stop, X)[first:last]
            assert not rows[:, [other for other in range(3) if other != source]].any()


def test_more_probes_only_add_directions():
    few, many = (make_seeds(X, probes=k, seed=0, times_input=False) for k in (3, 6))
    torch.testing.assert_close(many.directions[:, :3], few.directions)
    assert torch.equal(many.since(3).directions, many.directions[:, 3:])


def test_sketch_directions_are_orthonormal_and_independent_between_sources():
    seeds = make_seeds(X, probes=4, seed=0, times_input=False)
    gram = seeds.directions @ seeds.directions.transpose(1, 2)
    torch.testing.assert_close(gram, torch.eye(4, dtype=torch.float64).expand(3, 4, 4))
    assert not torch.equal(seeds.directions[0], seeds.directions[1])


def test_the_same_seed_gives_the_same_directions_and_another_does_not():
    one, same, other = (make_seeds(X, probes=4, seed=seed, times_input=False).directions for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_times_input_scales_by_the_input():
    plain, scaled = (make_seeds(X, probes=None, seed=0, times_input=times).tangents(0, 24, X) for times in (False, True))
    assert torch.equal(scaled, plain * X)


@pytest.mark.parametrize("probes", [-1, 0, 1, 9])
def test_impossible_numbers_of_probes_are_refused(probes):
    with pytest.raises(ChoiceError, match=f"probes={probes}"):
        make_seeds(X, probes=probes, seed=0, times_input=False)
