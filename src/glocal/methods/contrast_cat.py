"""Contrast-CAT: AttCAT against the activations of other texts."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.methods._cat import slopes, weighed
from glocal.methods._output import Output, facts_of, refuse, rows_at_once
from glocal.models.explained import Explained
from glocal.models.observe import observe
from glocal.models.without import deleted
from glocal.registry import registered
from glocal.request import Made, Work

FRACTIONS = tuple(number / 10 for number in range(1, 11))


@registered(
    summary="AttCAT against the activations of texts of another class (to an output)",
    source="Han et al. 2025 (Contrast-CAT, 2507.21186)",
    needs="explain=..., `references`: texts for which the output is small",
    cost="one gradient, and a pass and a deletion curve for every reference",
    limits="as good as its references; scores are scaled to 0 to 1 and have no sign",
    extra=(("unit", "share of the range"), ("to", "output")),
)
def contrast_cat(work: Work, *, references: Sequence[Any] = ()) -> Made:
    """Mean over the references r that are kept of S_r scaled to 0 to 1, scaled again, where

    S_r[source] = sum_l a_source^l sum_d (dy / dh_{source,d}^l) (h_{source,d}^l - r_{source,d}^l), r^l the layer inputs of the reference,
    cut or filled with zeros to the length of the text. Kept are those whose deletion score (the mean fall of the output without the
    highest 10, 20, ... 100 % of the tokens that are not special) is at least the mean of all plus one standard deviation, or the best one.
    Facts: `references`, how many there were, and `kept`. Raises `ChoiceError` without `explain` or references, with a source layer,
    `freeze` or `groups`; `MemoryBudgetError`, and what the references as texts raise.
    """
    refuse(work, "contrast_cat", source_layer=0, freeze=(), groups=None)
    output = Output(work, "contrast_cat")
    if isinstance(references, str) or not len(references):
        raise ChoiceError(
            "contrast_cat compares with other texts.", asked=f"references={references!r}", allowed="a list of texts of another class",
            do='pass methods={"contrast_cat": {"references": [...]}}',
        )  # fmt: skip
    y, gradients = slopes(work, output)
    assert output.explained.encode is not None
    with torch.no_grad():
        maps = [_scaled(weighed(work, gradients, _reference(work, output.explained, text))) for text in references]
        scores = _deletion(work, output.explained, maps, y[0])
        bound = scores.mean() + scores.std(correction=0)
        kept = [each for each, score in zip(maps, scores, strict=True) if score >= bound] or [maps[int(scores.argmax())]]
    made = _scaled(torch.stack(kept).mean(0))
    return Made({"contrast_cat": made}, facts_of("contrast_cat", references=len(maps), kept=len(kept)))


def _scaled(values: Tensor) -> Tensor:
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else torch.zeros_like(values)


def _reference(work: Work, explained: Explained, text: Any) -> list[Tensor]:
    assert explained.encode is not None
    seen = observe(work.model, explained.encode(text).inputs)
    tokens = len(work.seen.hidden[0])
    return [torch.nn.functional.pad(each[:tokens], (0, 0, 0, max(0, tokens - len(each)))) for each in seen.hidden[:-1]]


def _deletion(work: Work, explained: Explained, maps: list[Tensor], y: Tensor) -> Float[Tensor, " reference"]:
    """Mean fall of the output without the highest-scoring tokens of every map; special tokens and the one that is read at stay."""
    tokens = len(work.seen.hidden[0])
    fixed = {place for place in range(tokens) if work.special[place]} | ({explained.place} - {None})
    orders = [[place for place in each.argsort(descending=True, stable=True).tolist() if place not in fixed] for each in maps]
    size, falls = rows_at_once(work, "contrast_cat", gradient=False), []
    for fraction in FRACTIONS:
        gone = [set(order[: round(fraction * len(order))]) for order in orders]
        if len(gone[0]) == tokens:
            continue
        values = []
        for start in range(0, len(gone), size):
            shorter, places = deleted(explained, work.seen.inputs, gone[start : start + size])
            values.append(explained.values(shorter, places=places))
        falls.append(y - torch.cat(values))
    return torch.stack(falls).mean(0) if falls else y.new_zeros(len(maps))
