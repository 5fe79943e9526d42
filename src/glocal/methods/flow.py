"""Attention flow: how much can flow from a token to a target through a network of pipes as wide as attention."""

from collections.abc import Iterator

import numpy
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from glocal.groups import sum_groups
from glocal.methods.rollout import check_residual
from glocal.registry import registered
from glocal.request import Made, Work

# Capacities are whole numbers for scipy; those of a row sum to this, so that a flow is off by at most one part in it for every edge.
_WHOLE = 2**30


@registered(
    summary="largest flow from each token to the target, with attention and residual connection as capacities (global)",
    source="Abnar and Zuidema 2020 (2005.00928)",
    needs="one pass",
    cost="a maximum flow per layer, target and source, over all layers below: for short texts",
    limits="takes attention for the whole of a layer; an upper bound on what may come through, not what does",
    extra=(("unit", "share"),),
)
def flow(work: Work, *, residual: float = 0.5) -> Made:
    """F[layer, target, source]: maximum flow from (layer, target) to (0, source), divided by the sum over sources (shares).

    The edge from target i of layer l to source j of layer l - 1 has capacity M_l[i, j], M = (1 - r) mean over heads of A + r I.
    Capacities are rounded to 2**-30: shares are exact to about 1e-6 for hundreds of tokens. Of sources that are groups of tokens, the
    sum.
    """
    check_residual(residual)
    request, seen = work.request, work.seen
    assert request.layers and request.targets
    tokens = len(seen.hidden[0])
    weights = numpy.stack([each.mean(0).double().cpu().numpy() for each in seen.attention])
    capacities = numpy.rint(((1 - residual) * weights + residual * numpy.eye(tokens)) * _WHOLE).astype(numpy.int64)
    found = numpy.zeros((len(request.layers), len(request.targets), tokens))
    with work.track(found.size, 0.0, f"flow: {found.size} maximum flows") as advance:
        for place, values in enumerate(_flows(capacities, request.layers, request.targets)):
            found[numpy.unravel_index(place, found.shape[:2])] = values
            advance(tokens)
    shares = torch.tensor(found / found.sum(-1, keepdims=True), dtype=seen.hidden[0].dtype, device=seen.hidden[0].device)
    return Made({"flow": shares if request.groups is None else sum_groups(shares, request.groups)}, {})


def _flows(capacities: numpy.ndarray, layers: tuple[int, ...], targets: tuple[int, ...]) -> Iterator[numpy.ndarray]:
    """Maximum flows to every source, for each layer and target; layer 0 has the sources."""
    tokens = capacities.shape[1]
    for layer in layers:
        rows, columns, values = [], [], []
        for number in range(layer):
            targets_there, sources_there = numpy.nonzero(capacities[number])
            rows.append(targets_there + (number + 1) * tokens)
            columns.append(sources_there + number * tokens)
            values.append(capacities[number][targets_there, sources_there])
        graph = csr_array(
            (numpy.concatenate(values).astype(numpy.int32), (numpy.concatenate(rows), numpy.concatenate(columns))),
            shape=((layer + 1) * tokens,) * 2,
        )
        for target in targets:
            yield numpy.array([maximum_flow(graph, layer * tokens + target, source).flow_value for source in range(tokens)], dtype=float)
