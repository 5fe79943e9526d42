"""Two maps -> one number per layer, head and target."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.measures._rows import normalise_rows
from glocal.methods.attention import attention
from glocal.methods.attribution import attribution
from glocal.request import Work

# Noisy copies of a sketch from which the bias of a discrepancy is estimated.
DRAWS = 16


def discrepancy(measure: Callable, local: Float[Tensor, "*rows source"], overall: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """The measure between two maps, row by row, in float64; rows are normalised first, undefined ones give NaN."""
    return measure(normalise_rows(local.double()), normalise_rows(overall.double()))


def discrepancies(variables: Mapping[str, Tensor], measures: Mapping[str, Callable]) -> dict[str, Tensor]:
    """`discrepancy_<measure>` [layer, head, target], where both maps have heads; nothing otherwise."""
    local, overall = variables.get("attention"), variables.get("attribution")
    if local is None or overall is None or local.dim() != overall.dim():
        return {}
    return {f"discrepancy_{name}": discrepancy(measure, local, overall).to(overall.dtype) for name, measure in measures.items()}


def noise_biases(variables: Mapping[str, Tensor], measures: Mapping[str, Callable], *, inflation: float, seed: int) -> dict[str, Tensor]:
    """`bias_<measure>` [layer, head, target]: by how much the noise of a sketch is expected to move the discrepancy; nothing if exact.

    The mean over DRAWS of D(attention, noisy again) - D(attention, sketch), where the sketch's norms are given noise of their standard
    errors (without their `inflation`) once more. Subtract it to correct; divergences come out too large, since noise makes any two rows
    less alike. To first order in the variance; noisy itself for one target, steady in means.
    """
    wanted = ("attention", "attribution_norm", "attribution_norm_se")
    if any(name not in variables for name in wanted) or variables["attention"].dim() != variables["attribution_norm"].dim():
        return {}
    local, norm, error = (variables[name].double() for name in wanted)
    generator = torch.Generator().manual_seed(seed)
    moved = {name: torch.zeros(norm.shape[:-1], dtype=torch.float64, device=norm.device) for name in measures}
    for _ in range(DRAWS):
        noise = torch.randn(norm.shape, generator=generator, dtype=torch.float64).to(norm.device)
        again = (norm + noise * error / inflation).abs()
        for name, measure in measures.items():
            moved[name] += discrepancy(measure, local, again) - discrepancy(measure, local, norm)
    return {f"bias_{name}": (value / DRAWS).to(variables["attribution_norm"].dtype) for name, value in moved.items()}


def ladder_discrepancies(work: Work, measures: Mapping[str, Callable]) -> dict[str, Tensor]:
    """`ladder_<measure>` [layer, head, source_layer]: mean over targets of the discrepancy with the attribution to every layer below.

    source_layer = layer - 1 is the head's own input: what remains there is the query/key path alone. NaN where source_layer >= layer.
    Targets whose discrepancy is undefined are left out of the mean.
    """
    request = work.request
    assert request.layers and request.heads
    result = {
        f"ladder_{name}": torch.full((len(request.layers), len(request.heads), work.seen.layers), torch.nan, dtype=torch.float64)
        for name in measures
    }
    for source_layer in range(max(request.layers)):
        above = tuple(layer for layer in request.layers if layer > source_layer)
        origin = request.origin if source_layer == 0 else "embedding_output"
        step = replace(request, of="head", source_layer=source_layer, layers=above, origin=origin)
        below = work._replace(request=step)
        read, used = attention(below).variables["attention"], attribution(below).variables["attribution"]
        for name, measure in measures.items():
            mean = discrepancy(measure, read, used).nanmean(-1).cpu()
            for row, layer in enumerate(above):
                result[f"ladder_{name}"][request.layers.index(layer), :, source_layer] = mean[row]
    return result
