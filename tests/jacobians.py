"""The oracle: Jacobian blocks by plain reverse mode, one output component at a time."""

import torch
from torch import Tensor

from glocal.models.instrument import instrumented
from glocal.models.observe import Pass, observe
from glocal.models.outputs import Origin, outputs_function


def encoding(numbers: list[int]) -> dict[str, Tensor]:
    """Model inputs of one unpadded text."""
    ids = torch.tensor([numbers])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def look(model, numbers: list[int]) -> Pass:
    """One observed pass."""
    with instrumented(model):
        return observe(model, encoding(numbers))


def reverse_mode(function, x: Tensor) -> list[Tensor]:
    """Full Jacobian per layer, [target, head, component, source, width]; layer outputs count as one head."""
    x = x.detach().requires_grad_()
    jacobians = []
    with torch.enable_grad():
        for output in function(x):
            flat = output.reshape(len(output), -1) if output.dim() == 2 else output
            rows = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in flat.reshape(-1)]
            shape = output.shape if output.dim() == 3 else (len(output), 1, output.shape[-1])
            jacobians.append(torch.stack(rows).reshape(*shape, *x.shape))
    return jacobians


def blocks(model, numbers: list[int], *, of="head", source_layer=0, word=False, freeze=()) -> list[Tensor]:
    """Jacobian blocks of all layers above `source_layer` by reverse mode."""
    with instrumented(model):
        seen = observe(model, encoding(numbers))
        origin = Origin(word, source_layer)
        layers = range(source_layer + 1, seen.layers + 1)
        return reverse_mode(outputs_function(model, seen, origin=origin, of=of, layers=layers, freeze=freeze), origin.point(seen))


def frobenius(jacobian: Tensor) -> Tensor:
    """Norms [head, target, source] of blocks [target, head, component, source, width]."""
    return jacobian.square().sum((2, 4)).sqrt().permute(1, 0, 2)
