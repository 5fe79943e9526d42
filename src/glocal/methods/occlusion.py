"""How an output changes without a token."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from glocal.methods._output import Output, facts_of, refuse, rows_at_once, sources_of
from glocal.models.explained import Explained
from glocal.models.without import deleted, masked
from glocal.registry import registered
from glocal.request import Made, Work, one_of

REPLACEMENTS = ("zero", "mean", "mask", "delete")


@registered(
    summary="how far the output falls without each token (to an output)",
    source="Zeiler and Fergus 2014; blank-out of Abnar and Zuidema 2020 (2005.00928); leave-one-out",
    needs="explain=..., a pass for every source token",
    cost="n passes, in batches; no gradient",
    limits="one token at a time misses what tokens do together; a text without a word is not what the model was trained on",
    extra=(("unit", "output"), ("to", "output")),
)
def occlusion(work: Work, *, replace: str = "zero") -> Made:
    """s[source] = y(x) - y(x without source), signed, in units of y.

    `replace`: the word vector by "zero" or by the "mean" of the table (position and type stay), the token by the tokenizer's "mask" token,
    or "delete" (the text without it, positions counted anew). The token that the output is read at cannot be deleted: its score is NaN.
    Groups are taken away together. Raises `ChoiceError` without `explain`, with a source layer or without a mask token;
    `MemoryBudgetError`.
    """
    one_of("replace", replace, REPLACEMENTS)
    refuse(work, "occlusion", source_layer=0, freeze=())
    output = Output(work, "occlusion")
    explained = output.explained
    gone = [row.nonzero().flatten().tolist() for row in sources_of(work)]
    found = torch.full((len(gone),), float("nan"), dtype=output.x.dtype, device=output.x.device)
    with torch.no_grad(), work.track(len(gone), 0.0, f"occlusion: {len(gone)} passes") as advance:
        whole = explained.values(work.seen.inputs)[0]
        for rows in _batches(work, gone, replace):
            found[rows] = whole - _without(work, explained, [gone[row] for row in rows], replace)
            advance(len(rows))
    return Made({"occlusion": found}, facts_of("occlusion", value=whole.item()))


def _batches(work: Work, gone: list[list[int]], replace: str) -> list[list[int]]:
    """Numbers of sources that run together: of one size where their tokens are deleted, without those that cannot be."""
    explained, tokens = work.explained, len(work.seen.hidden[0])
    assert explained is not None
    size = rows_at_once(work, "occlusion", gradient=False)
    sets: dict[int, list[int]] = {}
    for number, places in enumerate(gone):
        if replace != "delete":
            sets.setdefault(0, []).append(number)
        elif explained.place not in places and len(places) < tokens:
            sets.setdefault(len(places), []).append(number)
    return [numbers[start : start + size] for numbers in sets.values() for start in range(0, len(numbers), size)]


def _without(work: Work, explained: Explained, gone: list[list[int]], replace: str) -> Tensor:
    inputs = work.seen.inputs
    if replace == "delete":
        shorter, places = deleted(explained, inputs, gone)
        return explained.values(shorter, places=places)
    if replace == "mask":
        return explained.values(masked(explained, inputs, gone))
    words = work.seen.embedding
    table: Any = work.model.get_input_embeddings()
    instead = torch.zeros_like(words[0]) if replace == "zero" else table.weight.detach().mean(0).to(words)
    rows = words.repeat(len(gone), 1, 1)
    for row, places in enumerate(gone):
        rows[row, places] = instead
    return Output(work._replace(request=dataclasses.replace(work.request, origin="word")), "occlusion")(rows)
