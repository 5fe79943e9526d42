"""Class activations of tokens, which AttCAT and Contrast-CAT weigh."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.methods._output import Output, gradient_of, rows_at_once
from glocal.request import Work


def slopes(work: Work, output: Output) -> tuple[Tensor, tuple[Float[Tensor, "source width"], ...]]:
    """y, and its gradient with respect to the input of every layer."""
    rows_at_once(work, output.name, gradient=True)
    with torch.enable_grad():
        entry = output.entry(output.x.detach().clone().requires_grad_(True)[None])
        y = output.explained.values(work.seen.inputs, watcher=entry)
        found = gradient_of(y, entry.inputs[: work.seen.layers], output.explained.name)
    return y.detach(), tuple(each[0] for each in found)


def weighed(
    work: Work, gradients: Sequence[Tensor], reference: Sequence[Tensor] | None = None, *, attention: bool = True
) -> Float[Tensor, " token"]:
    """sum over layers of a_i sum_d (dy/dh_i,d) (h_i,d - r_i,d); a_i is what all tokens and heads of the layer give token i on average."""
    total = torch.zeros_like(gradients[0][:, 0])
    for layer, gradient in enumerate(gradients):
        from_here = work.seen.hidden[layer] - (0 if reference is None else reference[layer])
        score = (gradient * from_here).sum(-1)
        total = total + (score * work.seen.attention[layer].mean((0, 1)) if attention else score)
    return total
