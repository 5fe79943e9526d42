"""Texts -> which explanations to trust."""

from collections.abc import Mapping
from typing import Any

import xarray

from glocal.corpus.texts import Columns, items
from glocal.errors import ChoiceError, TextError
from glocal.evaluation.maps import evaluate_maps
from glocal.job import Names
from glocal.models.load import load
from glocal.progress import Choice, tracker

# What is compared unless methods are given: per head with of="head", per layer with of="hidden".
METHODS = {
    "head": ("attention", "effective_attention", "attn_n_head", "attribution"),
    "hidden": ("rollout", "alti_rollout", "globenc_rollout", "value_zeroing_rollout", "attribution"),
}


def evaluate(
    texts: Any,
    model: Any = "minilm",
    tokenizer: Any = None,
    *,
    methods: Names | None = None,
    measures: Names = ("spearman", "jsd"),
    of: str = "head",
    replace: str = "zero",
    text: str = "text",
    pair: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: Choice = None,
) -> xarray.Dataset:
    """Rank maps of heads (or of layers) by how well they agree with what happens to the same outputs when a token is taken away.

    For every text, layer, head and target: a measure between a method's row and the row of `head_occlusion` (the change of that head's
    output when a source's word vector is replaced), both as shares; averaged, with paired bootstrap intervals over texts. `methods`: per
    head for `of="head"` or "head_output", per layer for `of="hidden"` (there all maps must reach down to the tokens to be comparable:
    rollouts and attribution). `replace`: "zero" or "mean". `texts`: as in `study`. `options`: further arguments of `analyze`, such as
    {"probes": 16}.

    Returns a Dataset: see `glocal.evaluation.ranking.ranking`, and `by_layer` [metric, explanation, layer]. Occlusion is no ground truth:
    texts without a word are not what the model was trained on. Raises what `analyze` raises.
    """
    rows = list(items(texts, Columns(text, pair), limit=limit, sample=sample, seed=seed))
    if not rows:
        raise TextError("There is no text to evaluate on.", asked=str(texts)[:80], found="no rows", do="pass texts")
    if methods is None and of not in METHODS:
        raise ChoiceError(f"of={of!r} has no default methods.", asked="methods=None", allowed=", ".join(METHODS), do="pass methods")
    chosen: Names = METHODS[of] if methods is None else methods
    network, tokenizer, called = load(model, tokenizer)
    some = [row.text if row.pair is None else (row.text, row.pair) for row in rows]
    with tracker(progress, len(some), 3.0 * len(some), "evaluate") as advance:
        found = evaluate_maps(
            some, network, tokenizer, methods=chosen, measures=measures, of=of, replace=replace, seed=seed,
            options=dict(options or {}), advance=advance,
        )  # fmt: skip
    settings = {
        "model": called,
        "of": of,
        "replace": replace,
        "seed": seed,
        "options": {key: repr(value) for key, value in (options or {}).items()},
    }
    return found.assign_attrs(reference="head_occlusion", settings=settings, texts=len(some))
