"""What all measures share: rows that are distributions, and sources that can be reached."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def normalise_rows(rows: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows source"]:
    """Every row divided by its sum; a row that is all zero, or has a NaN, becomes NaN."""
    return rows / rows.sum(-1, keepdim=True)


def reachable(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Bool[Tensor, "*rows source"]:
    """Sources that at least one of the two draws on; the future of a causal model is not among them."""
    return (attention != 0) | (attribution != 0)


def masked_rows(attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]) -> Bool[Tensor, "*rows"]:
    """Rows in which either distribution has a NaN."""
    return (attention.isnan() | attribution.isnan()).any(-1)


def relative_entropy(p: Float[Tensor, "*rows source"], q: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """KL(p || q) = sum over sources of p ln(p / q), with 0 ln 0 = 0 (nats); infinite where q is zero and p is not."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1).clamp(min=0)


def places(
    values: Float[Tensor, "*rows source"], among: Bool[Tensor, "*rows source"]
) -> tuple[Int[Tensor, "*rows source"], Int[Tensor, "*rows source"]]:
    """For every source in `among`, how many of them have a smaller value, and how many a value that is not larger (itself included).

    Sorts, so memory is linear in sources. What stands elsewhere means nothing.
    """
    filled = torch.where(among, values, torch.inf).contiguous()
    ordered = filled.sort(-1).values
    return torch.searchsorted(ordered, filled, right=False), torch.searchsorted(ordered, filled, right=True)


def average_ranks(values: Float[Tensor, "*rows source"], among: Bool[Tensor, "*rows source"]) -> Float[Tensor, "*rows source"]:
    """Ranks from 1 among the sources in `among`, ties averaged; 0 elsewhere."""
    smaller, not_larger = places(values, among)
    return torch.where(among, (smaller + not_larger + 1).double() / 2, 0.0)


def correlation(
    one: Float[Tensor, "*rows source"], other: Float[Tensor, "*rows source"], among: Bool[Tensor, "*rows source"]
) -> Float[Tensor, "*rows"]:
    """Pearson's correlation over the sources in `among`; NaN where one of the two does not vary there."""
    (a, a_varies), (b, b_varies) = _centred(one.double(), among), _centred(other.double(), among)
    value = (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    return torch.where(a_varies & b_varies, value.clamp(-1, 1), torch.nan)


def _centred(
    values: Float[Tensor, "*rows source"], among: Bool[Tensor, "*rows source"]
) -> tuple[Float[Tensor, "*rows source"], Bool[Tensor, "*rows"]]:
    """Differences from the mean over the sources in `among`, 0 elsewhere, and the rows that have any."""
    kept = torch.where(among, values, 0.0)
    centred = torch.where(among, kept - kept.sum(-1, keepdim=True) / among.sum(-1, keepdim=True), 0.0)
    # A row that is constant up to rounding does not vary.
    return centred, centred.abs().amax(-1) > 1e-12 * kept.abs().amax(-1)
