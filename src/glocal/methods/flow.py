"""Attention flow: how much can flow from a token to a target through a network of pipes as wide as attention."""

from collections.abc import Iterator

import numpy
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from glocal.groups import sum_groups
from glocal.methods.rollout import check_residual
from glocal.registry import registered
from glocal.request import Advance, Made, Work

Maps = NDArray[numpy.float64]  # [layer, target, source]
Flows = NDArray[numpy.float64]  # [target, source]
# Capacities are whole numbers for scipy, up to this: a flow is off by at most one part in it for every edge.
_WHOLE = 2**30
# Pairs are solved together until their networks have this many edges: scipy's own calls take longer than a small network's flow.
_EDGES = 2**15
# Bounds that are this near need no flow between them.
_NEAR = 1e-9


@registered(
    summary="largest flow from each token to the target, with attention and residual connection as capacities (global)",
    source="Abnar and Zuidema 2020 (2005.00928)",
    needs="one pass",
    cost="up to a maximum flow per layer, target and source, over all layers below: for short texts",
    limits="takes attention for the whole of a layer; an upper bound on what may come through, not what does",
    extra=(("unit", "share"),),
)
def flow(work: Work, *, residual: float = 0.5) -> Made:
    """F[layer, target, source]: maximum flow from (layer, target) to (0, source), divided by the sum over sources (shares).

    The edge from target i of layer l to source j of layer l - 1 has capacity M_l[i, j], M = (1 - r) mean over heads of A + r I. Flows that
    no bound settles are computed with capacities rounded to 2**-26 or less: shares are exact to about 1e-6 for hundreds of tokens. Of
    sources that are groups of tokens, the sum.
    """
    check_residual(residual)
    request, seen = work.request, work.seen
    assert request.layers and request.targets
    tokens = len(seen.hidden[0])
    weights = numpy.stack([each.mean(0).double().cpu().numpy() for each in seen.attention])
    maps = (1 - residual) * weights + residual * numpy.eye(tokens)
    count = len(request.layers) * len(request.targets) * tokens
    with work.track(count, 0.0, f"flow: up to {count} maximum flows") as advance:
        found = numpy.stack(list(_flows(maps, request.layers, request.targets, advance)))
    shares = torch.tensor(found / found.sum(-1, keepdims=True), dtype=seen.hidden[0].dtype, device=seen.hidden[0].device)
    return Made({"flow": shares if request.groups is None else sum_groups(shares, request.groups)}, {})


def _flows(maps: Maps, layers: tuple[int, ...], targets: tuple[int, ...], advance: Advance) -> Iterator[Flows]:
    """Maximum flows [target, source] from these targets, for each of these layers."""
    wanted = numpy.isin(numpy.arange(maps.shape[1]), targets)
    low = high = maps[0]
    for layer in range(1, max(layers) + 1):
        if layer == 2:
            low = high = numpy.stack([numpy.minimum(row[:, None], maps[0]).sum(0) for row in maps[1]])
        elif layer > 2:
            low, high = _bounds(maps[layer - 1], low, high, maps[0].sum(0))
        if layer not in layers:
            continue
        pairs = numpy.argwhere((high - low > _NEAR) & wanted[:, None])
        size = max(1, _EDGES // (layer * maps.shape[1] ** 2))
        for start in range(0, len(pairs), size):
            some = pairs[start : start + size]
            low[tuple(some.T)] = high[tuple(some.T)] = _solved(maps[:layer], some)
            advance(len(some))
        advance(len(targets) * maps.shape[1] - len(pairs))
        yield (low[list(targets)] + high[list(targets)]) / 2


def _bounds(top: Flows, low: Flows, high: Flows, entering: Flows) -> tuple[Flows, Flows]:
    """Lower and upper bounds [target, source] of a layer's flows, from those of the layer below.

    A flow from i is no larger than what comes in at the source, and than sum_k min(M[i, k], F[k]). It is a smallest cut, whose part below
    has the nodes S of the layer on its near side: sum_{k not in S} M[i, k] + (flow from all of S) >= 1 - sum_{k in S} M[i, k] +
    max_{k in S} F[k], least for an S of all nodes up to some F.
    """
    lower, upper = numpy.empty_like(low), numpy.empty_like(high)
    leaving = top.sum(1)
    for source in range(top.shape[1]):
        order = numpy.argsort(low[:, source], kind="stable")
        cuts = leaving[:, None] - numpy.cumsum(top[:, order], 1) + low[order, source]
        lower[:, source] = numpy.minimum(cuts.min(1), leaving)
        upper[:, source] = numpy.minimum(numpy.minimum(top, high[:, source]).sum(1), entering[source])
    upper = numpy.minimum(upper, leaving[:, None])
    return numpy.minimum(lower, upper), upper


def _solved(maps: Maps, pairs: numpy.ndarray) -> numpy.ndarray:
    """Maximum flows of several (target, source), as one network with a part for each."""
    layers, tokens, _ = maps.shape
    count, inner = len(pairs), (layers - 1) * tokens
    whole = _WHOLE >> (count - 1).bit_length()  # of all together scipy's numbers hold the sum
    numbers = numpy.rint(maps * whole).astype(numpy.int32)
    first = 2 + inner * numpy.arange(count)  # nodes: origin, end, and the inner ones of each pair, from its highest layer down
    below = first[:, None] + tokens + numpy.tile(numpy.arange(tokens), (layers - 2) * tokens)
    below += numpy.repeat(tokens * numpy.arange(layers - 2), tokens**2)
    between = numpy.broadcast_to(numbers[-2:0:-1].reshape(1, -1), below.shape)
    capacity = numpy.concatenate([between, numbers[0].T[pairs[:, 1]]], 1)
    into = numpy.concatenate([below, numpy.ones((count, tokens), int)], 1)
    edges = numpy.concatenate([numpy.full((layers - 2) * tokens, tokens), numpy.ones(tokens, int)])
    begins = numpy.cumsum(numpy.concatenate([[0, count * tokens, 0], numpy.tile(edges, count)]))
    leaving = numbers[-1][pairs[:, 0]]
    network = csr_array(
        (
            numpy.concatenate([leaving.ravel(), capacity.ravel()]),
            numpy.concatenate([(first[:, None] + numpy.arange(tokens)).ravel(), into.ravel()]).astype(numpy.int32),
            begins.astype(numpy.int32),
        ),
        shape=(2 + count * inner,) * 2,
    )
    network.eliminate_zeros()
    sent = maximum_flow(network, 0, 1).flow
    leaving = slice(sent.indptr[0], sent.indptr[1])
    return numpy.bincount((sent.indices[leaving] - 2) // inner, weights=sent.data[leaving], minlength=count) / whole
