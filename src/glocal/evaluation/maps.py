"""Which maps of heads or layers agree with what happens when tokens are taken away."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy
import torch
import xarray
from numpy.typing import NDArray
from torch import Tensor

from glocal import registry
from glocal.dims import EXPLANATION, HEAD, LAYER, METRIC, SOURCE
from glocal.errors import ChoiceError
from glocal.evaluation.ranking import ranking
from glocal.job import Names, named
from glocal.pipeline import analyze

REFERENCE, RANDOM = "head_occlusion", "random"
# Texts that are analysed together.
_TOGETHER = 32


def evaluate_maps(
    texts: Sequence[Any],
    model: Any,
    tokenizer: Any,
    *,
    methods: Names,
    measures: Names,
    of: str,
    replace: str,
    seed: int,
    options: Mapping[str, Any],
    advance: Any = lambda done: None,
) -> xarray.Dataset:
    """Agreement of the methods' maps with occlusion of the same outputs, ranked.

    `value` [metric, explanation, text] is the mean over layers, heads and targets of a measure between a row of the map and the row of
    `head_occlusion`, both divided by their sums; `by_layer` [metric, explanation, layer] its mean over texts. Beside the methods stands
    `random`: rows drawn evenly from all distributions. See `ranking` for the rest. Raises what `analyze` raises.
    """
    asked = dict(named("methods", methods))
    chosen = {registry.name_of(name): partial(registry.get("measures", name), **given) for name, given in named("measures", measures)}
    names = [registry.name_of(each) for each in asked]
    generator = torch.Generator().manual_seed(seed)
    values: list[NDArray] = []
    wanted = {**asked, REFERENCE: {"replace": replace}}
    for start in range(0, len(texts), _TOGETHER):
        some = list(texts[start : start + _TOGETHER])
        for story in analyze(some, model, tokenizer, methods=wanted, measures=(), of=of, seed=seed, progress=False, **options):
            values.append(_of_one(story, names, chosen, generator))
            advance(1)
    by_layer = numpy.stack(values, -1)  # metric, explanation, layer, text
    metrics = {name: "lower" if _larger_is(name) == "more different" else "higher" for name in chosen}
    found = ranking(_mean(by_layer, 2), [*names, RANDOM], metrics, seed=seed)
    found["by_layer"] = ((METRIC, EXPLANATION, LAYER), _mean(by_layer, 3))
    return found.assign_coords({LAYER: numpy.arange(1, by_layer.shape[2] + 1)})


def _of_one(story: xarray.Dataset, methods: list[str], measures: Mapping[str, Callable], generator: torch.Generator) -> NDArray:
    """Values [metric, explanation, layer] of one text."""
    reference = _rows(story, REFERENCE)
    maps = [_rows(story, name) for name in methods]
    for name, each in zip(methods, maps, strict=True):
        if each.shape != reference.shape:
            heads = "one map per head" if HEAD in story[REFERENCE].dims else "one map per layer"
            raise ChoiceError(
                f"{name} has no maps that can be compared with occlusion of these outputs.",
                asked=f"methods with {name!r}, and of={story.attrs['settings']['of']!r}, which has {heads}",
                found=f"dimensions {', '.join(map(str, story[name].dims))}",
                allowed="methods per head with of='head', methods per layer with of='hidden'",
                do="choose one of these",
            )
    maps.append(torch.rand(reference.shape, generator=generator, dtype=torch.float64).log().neg())
    maps[-1] /= maps[-1].sum(-1, keepdim=True)
    return numpy.stack([[_by_layer(measure(each, reference)) for each in maps] for measure in measures.values()])


def _rows(story: xarray.Dataset, name: str) -> Tensor:
    """Absolute values, every row divided by its sum."""
    found = torch.tensor(story[name].values).double().abs()
    assert story[name].dims[-1] == SOURCE
    return found / found.sum(-1, keepdim=True)


def _by_layer(values: Tensor) -> NDArray:
    return values.flatten(1).nanmean(1).numpy()


def _mean(values: NDArray, axis: int) -> NDArray:
    """Over what is defined; NaN of nothing."""
    valid = numpy.isfinite(values)
    with numpy.errstate(invalid="ignore"):
        return numpy.where(valid, values, 0).sum(axis) / valid.sum(axis)


def _larger_is(measure: str) -> str:
    """What the card says; own functions count as distances."""
    known = measure in registry.names("measures")
    return dict(registry.cards("measures")[measure].extra)["larger_is"] if known else "more different"
