"""How alike heads are: distances between their rows, a map of them, clusters, and whether two such maps agree."""

from typing import Any

import numpy
from numpy.typing import NDArray
from scipy import stats
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

Array = NDArray[numpy.float64]

# Clusters are cut from the tree so that there are at most so many.
CLUSTERS = 8
PERMUTATIONS = 999
# Numbers alive at once while distances are computed.
_CELLS = 1 << 22


def head_distances(maps: NDArray) -> Array:
    """Mean over targets of the Jensen-Shannon divergence (nats) between the rows of every two heads.

    D[p, q] = mean_i JSD(A^p_i, A^q_i) for `maps` [head, target, source] -> [head, head], where heads are those of all layers. Targets with
    a row that is not finite are left out, pair by pair; NaN where none remains. Clark et al. 2019 sum over rows instead, which is a scale.
    """
    rows = numpy.asarray(maps, dtype=numpy.float32)
    total = rows.sum(-1, keepdims=True)
    rows = rows / numpy.where(total > 0, total, numpy.nan)
    valid: NDArray[numpy.bool_] = numpy.asarray(numpy.isfinite(rows).all(-1))  # [head, target]
    rows = numpy.where(valid[..., None], rows, 0)
    own = _entropy(rows)
    step = max(1, _CELLS // rows.size)
    made = numpy.full((len(rows), len(rows)), numpy.nan)
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        both = valid[some, None] & valid[None]
        apart = _entropy((rows[some, None] + rows[None]) / 2) - (own[some, None] + own[None]) / 2
        count = both.sum(-1)
        made[some] = numpy.where(count > 0, numpy.where(both, apart, 0).sum(-1) / numpy.maximum(count, 1), numpy.nan)
    numpy.fill_diagonal(made, numpy.where(valid.any(-1), 0, numpy.nan))
    return numpy.maximum(made, 0)


def _entropy(rows: NDArray) -> NDArray:
    return -(rows * numpy.log(numpy.where(rows > 0, rows, 1))).sum(-1)


def places(distance: Array) -> Array:
    """Classical scaling (Torgerson 1952) of the square roots of `distance` [head, head] -> [head, 2]; NaN where one is undefined.

    The square root of a Jensen-Shannon divergence is a metric. Signs are fixed so that the largest coordinate of each axis is positive.
    """
    if not numpy.isfinite(distance).all():
        return numpy.full((len(distance), 2), numpy.nan)
    centring = numpy.eye(len(distance)) - 1 / len(distance)
    values, vectors = numpy.linalg.eigh(-centring @ distance @ centring / 2)
    made = numpy.zeros((len(distance), 2))
    for axis, number in enumerate(numpy.argsort(values)[::-1][:2]):
        vector = vectors[:, number] * numpy.sqrt(max(values[number], 0))
        made[:, axis] = vector * (numpy.sign(vector[numpy.abs(vector).argmax()]) or 1)
    return made


def clusters(distance: Array, most: int = CLUSTERS) -> NDArray[numpy.int64]:
    """Average linkage of the square roots of `distance`, cut into at most `most` clusters.

    Numbered from 1 by first appearance; 0 where a distance is undefined.
    """
    if not numpy.isfinite(distance).all() or len(distance) < 2:
        return numpy.full(len(distance), int(numpy.isfinite(distance).all()), dtype=numpy.int64)
    symmetric = numpy.sqrt((distance + distance.T) / 2)
    numpy.fill_diagonal(symmetric, 0)
    found = fcluster(linkage(squareform(symmetric, checks=False), "average"), most, "maxclust")
    order = {number: place for place, number in enumerate(dict.fromkeys(found.tolist()), start=1)}
    return numpy.array([order[number] for number in found.tolist()], dtype=numpy.int64)


def mantel(one: Array, other: Array, *, seed: int) -> dict[str, Any] | None:
    """How alike two matrices of distances are: Spearman's correlation over pairs of heads, and its share among shuffled heads.

    `p` is (1 + number of shuffles with a correlation at least as large) / (1 + shuffles). None with fewer than four heads, where a distance
    is undefined, or where all are equal. Mantel 1967.
    """
    if len(one) < 4 or not (numpy.isfinite(one).all() and numpy.isfinite(other).all()):
        return None
    upper = numpy.triu_indices(len(one), 1)
    if numpy.ptp(one[upper]) == 0 or numpy.ptp(other[upper]) == 0:
        return None
    ranks, fixed = numpy.zeros_like(one), _standard(stats.rankdata(other[upper]))
    ranks[upper] = _standard(stats.rankdata(one[upper]))
    ranks += ranks.T
    found = float(ranks[upper] @ fixed)
    generator = numpy.random.default_rng(seed)
    larger = 0
    for _ in range(PERMUTATIONS):
        order = generator.permutation(len(one))
        larger += bool(ranks[order][:, order][upper] @ fixed >= found - 1e-12)
    return {"correlation": found, "p": (1 + larger) / (1 + PERMUTATIONS), "permutations": PERMUTATIONS}


def _standard(values: Array) -> Array:
    centred = values - values.mean()
    return centred / numpy.linalg.norm(centred)
