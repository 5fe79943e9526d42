"""Sources taken together."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def sum_groups(values: Float[Tensor, "*rows source"], groups: Sequence[int]) -> Float[Tensor, "*rows group"]:
    """Sums over the sources of every group; `groups[j]` is the group of source j, from 0."""
    total = values.new_zeros(*values.shape[:-1], max(groups) + 1)
    return total.index_add_(-1, torch.tensor(groups, device=values.device), values)
