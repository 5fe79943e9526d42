"""The bounds and the joined networks of attention flow give what one maximum flow after the other gives."""

import numpy
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from glocal.methods import flow

LARGE = 2**30


def one_by_one(maps, layer):
    """Flows [target, source] in the graph of all layers up to this one."""
    tokens = maps.shape[1]
    dense = numpy.zeros(((layer + 1) * tokens,) * 2, dtype=numpy.int32)
    for number, each in enumerate(maps[:layer]):
        dense[(number + 1) * tokens : (number + 2) * tokens, number * tokens : (number + 1) * tokens] = numpy.rint(each * LARGE)
    graph = csr_array(dense)
    return numpy.array([[maximum_flow(graph, layer * tokens + i, j).flow_value / LARGE for j in range(tokens)] for i in range(tokens)])


def maps_of(kind, residual, layers=6, tokens=7):
    random = numpy.random.default_rng(len(kind) + int(8 * residual))
    scores = random.normal(size=(layers, tokens, tokens)) * {"even": 0.1, "sharp": 4.0, "causal": 2.0}[kind]
    weights = numpy.exp(scores) * (numpy.tril(numpy.ones((tokens, tokens))) if kind == "causal" else 1)
    weights /= weights.sum(-1, keepdims=True)
    return (1 - residual) * weights + residual * numpy.eye(tokens)


@pytest.mark.parametrize("residual", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["even", "sharp", "causal"])
@pytest.mark.parametrize("edges", [1, 2**15], ids=["alone", "together"])
def test_flows_are_those_of_one_pair_after_the_other(kind, residual, edges, monkeypatch):
    monkeypatch.setattr(flow, "_EDGES", edges)
    maps, told = maps_of(kind, residual), []
    layers, targets = (1, 2, 3, 4, 5, 6), tuple(range(7))
    found = list(flow._flows(maps, layers, targets, told.append))
    for layer, each in zip(layers, found, strict=True):
        numpy.testing.assert_allclose(each, one_by_one(maps, layer), atol=3e-7)
    assert sum(told) == 6 * 7 * 7
    some = list(flow._flows(maps, (4, 6), (5, 2), told.append))
    for one, layer in zip(some, (4, 6), strict=True):
        numpy.testing.assert_allclose(one, found[layer - 1][[5, 2]], atol=3e-7)


@pytest.mark.parametrize("kind", ["even", "sharp", "causal"])
def test_bounds_hold_and_settle_something(kind):
    maps, settled = maps_of(kind, 0.5), 0
    for layer in range(3, 7):
        below, here = one_by_one(maps, layer - 1), one_by_one(maps, layer)
        low, high = flow._bounds(maps[layer - 1], below, below, maps[0].sum(0))
        assert (low <= here + 1e-7).all() and (here <= high + 1e-7).all()
        settled += (high - low <= 1e-9).sum()
    assert settled > 0
