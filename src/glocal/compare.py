"""Two maps -> one number per layer, head and target."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.measures._rows import normalise_rows
from glocal.methods.attribution import attribution
from glocal.request import Work


def discrepancy(
    measure: Callable, attention: Float[Tensor, "*rows source"], attribution: Float[Tensor, "*rows source"]
) -> Float[Tensor, "*rows"]:
    """The measure between two maps, row by row, in float64; rows are normalised first, undefined ones give NaN."""
    return measure(normalise_rows(attention.double()), normalise_rows(attribution.double()))


def discrepancies(variables: Mapping[str, Tensor], measures: Mapping[str, Callable]) -> dict[str, Tensor]:
    """`discrepancy_<measure>` [layer, head, target], where both maps have heads; nothing otherwise."""
    local, overall = variables.get("attention"), variables.get("attribution")
    if local is None or overall is None or local.dim() != overall.dim():
        return {}
    return {f"discrepancy_{name}": discrepancy(measure, local, overall).to(overall.dtype) for name, measure in measures.items()}


def ladder_discrepancies(work: Work, measures: Mapping[str, Callable]) -> dict[str, Tensor]:
    """`ladder_<measure>` [layer, head, source_layer]: mean over targets of the discrepancy with the attribution to every layer below.

    source_layer = layer - 1 is the head's own input: what remains there is the query/key path alone. NaN where source_layer >= layer.
    Targets whose discrepancy is undefined are left out of the mean.
    """
    request, seen = work.request, work.seen
    assert request.layers and request.heads and request.targets
    result = {
        f"ladder_{name}": torch.full((len(request.layers), len(request.heads), seen.layers), torch.nan, dtype=torch.float64)
        for name in measures
    }
    targets = torch.tensor(request.targets, device=seen.attention[0].device)
    for source_layer in range(max(request.layers)):
        above = tuple(layer for layer in request.layers if layer > source_layer)
        origin = request.origin if source_layer == 0 else "embedding_output"
        step = replace(request, of="head", source_layer=source_layer, layers=above, origin=origin)
        maps = attribution(work._replace(request=step)).variables["attribution"]
        heads = [head - 1 for head in request.heads]
        attention = torch.stack([seen.attention[layer - 1][heads] for layer in above]).index_select(2, targets)
        for name, measure in measures.items():
            mean = discrepancy(measure, attention, maps).nanmean(-1).cpu()
            for row, layer in enumerate(above):
                result[f"ladder_{name}"][request.layers.index(layer), :, source_layer] = mean[row]
    return result
