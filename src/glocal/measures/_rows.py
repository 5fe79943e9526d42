"""What all measures share: rows that are distributions, and sources that can be reached."""

import torch
from jaxtyping import Bool, Float
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


def average_ranks(values: Float[Tensor, "*rows source"], among: Bool[Tensor, "*rows source"]) -> Float[Tensor, "*rows source"]:
    """Ranks from 1 among the sources in `among`, ties averaged; 0 elsewhere. Sorts, so memory is linear in sources."""
    filled = torch.where(among, values, torch.full_like(values, torch.inf))
    ordered = filled.sort(-1).values
    below = torch.searchsorted(ordered, filled, right=False)
    not_above = torch.searchsorted(ordered, filled, right=True)
    return torch.where(among, (below + not_above + 1).double() / 2, torch.zeros((), dtype=torch.float64, device=values.device))


def correlation(
    one: Float[Tensor, "*rows source"], other: Float[Tensor, "*rows source"], among: Bool[Tensor, "*rows source"]
) -> Float[Tensor, "*rows"]:
    """Pearson's correlation over the sources in `among`; NaN where one of the two does not vary there."""
    count = among.sum(-1, keepdim=True)
    centre = lambda x: torch.where(among, x - torch.where(among, x, 0.0).sum(-1, keepdim=True) / count, 0.0)  # noqa: E731
    a, b = centre(one.double()), centre(other.double())
    # A row that is constant up to rounding does not vary.
    varies = lambda centred, x: centred.abs().amax(-1) > 1e-12 * torch.where(among, x, 0.0).abs().amax(-1)  # noqa: E731
    value = (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    return torch.where(varies(a, one) & varies(b, other), value.clamp(-1, 1), torch.nan)
