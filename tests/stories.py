"""Synthetic Stories that follow the schema, without a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import xarray
from torch import Tensor

from glocal.models.tokens import Tokens
from glocal.results.label import label

WORDS = ("The", "keys", "to", "the", "old", "cabinet", "are", "on", "a", "shelf")
SPECIAL = {"[CLS]": "first_special", "[SEP]": "separator"}


def make_tokens(n: int = 6, tokens: Sequence[str] | None = None) -> Tokens:
    """[CLS], words, a full stop and [SEP] (as far as `n` allows), or `tokens` joined by blanks; any text may stand in `tokens`."""
    if tokens is None:
        words = [WORDS[number % len(WORDS)] for number in range(max(0, n - 3))]
        tokens = (["[CLS]", *words, ".", "[SEP]"] if n > 2 else ["[CLS]", "[SEP]"])[:n]
    start, end, word, parts, position = [], [], [], [], 0
    for token in tokens:
        special = token in SPECIAL
        start.append(-1 if special else position)
        end.append(-1 if special else position + len(token))
        word.append(-1 if special else len(parts))
        if not special:
            parts.append(token)
            position += len(token) + 1
    count = len(tokens)
    ids = tuple(101 if token == "[CLS]" else 102 if token == "[SEP]" else 1000 + place for place, token in enumerate(tokens))
    return Tokens(
        inputs={"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, count, dtype=torch.long)},
        token=tuple(tokens),
        raw_token=tuple(tokens),
        token_id=ids,
        word=tuple(word),
        segment=(0,) * count,
        category=tuple(SPECIAL.get(token, "punctuation" if token in tuple(".,;:!?") else "word") for token in tokens),
        start=tuple(start),
        end=tuple(end),
        text=" ".join(parts),
    )


def make_attributes(tokens: Tokens, **changed: Any) -> dict[str, Any]:
    """All attributes that `label` is given."""
    return {
        "glocal_version": "0.1.0",
        "torch_version": "2.13.0",
        "transformers_version": "5.24.0",
        "python_version": "3.11.7",
        "text": tokens.text,
        "text_pair": tokens.pair,
        "model": "synthetic",
        "family": "bert",
        "weights_fingerprint": "0" * 16,
        "dtype": "float32",
        "device": "cpu",
        "causal": False,
        "truncated": tokens.truncated,
        "settings": {"of": "head", "freeze": [], "probes": None, "ladder": False},
        "engine": "straight",
        "plan": {
            "engine": "straight",
            "tangents": 128,
            "chunk": 64,
            "chunks": 2,
            "bytes": 1 << 20,
            "seconds": 0.5,
            "flops": 1e9,
            "reason": "synthetic",
        },
        "seed": 0,
        "seconds": 0.25,
        "error_estimate": {},
        "explained": {},
        "notes": list(tokens.notes),
    } | changed


def make_story(
    n: int = 6,
    layers: int = 2,
    heads: int = 3,
    *,
    seed: int = 0,
    tokens: Sequence[str] | None = None,
    causal: bool = False,
    sketch: bool = False,
    ladder: bool = False,
    of: str = "head",
    measures: Sequence[str] = ("jsd",),
    targets: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    variables: Mapping[str, Tensor] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> xarray.Dataset:
    """A Story of random maps; `variables` and `attributes` are added to it or replace its own.

    Every measure gets the Jensen-Shannon divergence of the two maps in bits. With `of="hidden"` the attribution has no head dimension.
    """
    described = make_tokens(n, tokens)
    n = len(described)
    rows = list(range(n)) if targets is None else sorted(targets)
    made = _maps(
        torch.Generator().manual_seed(seed), (layers, heads, len(rows), n), rows, causal=causal, sketch=sketch, hidden=of == "hidden"
    )
    if of != "hidden":
        divergence = _jensen_shannon(made["attention"], made["attribution"])
        made |= {f"discrepancy_{measure}": divergence for measure in measures}
        if ladder:
            made |= {f"ladder_{measure}": _ladder(divergence) for measure in measures}
    changed = {"causal": causal, "settings": {"of": of, "freeze": [], "probes": 8 if sketch else None, "ladder": ladder}, "seed": seed}
    if sketch:
        changed["error_estimate"] = {"mean_total_variation_of_a_row": made["attribution_se"].sum(-1).mean().item() / 2}
    return label(
        {name: value.to(dtype) for name, value in made.items()} | dict(variables or {}),
        described,
        layers=range(1, layers + 1),
        heads=range(1, heads + 1),
        targets=rows,
        attributes=make_attributes(described, **changed) | dict(attributes or {}),
    )


def _maps(
    generator: torch.Generator, shape: tuple[int, ...], rows: list[int], *, causal: bool, sketch: bool, hidden: bool
) -> dict[str, Tensor]:
    allowed = torch.ones(shape[-1], shape[-1], dtype=torch.float64)
    allowed = (allowed.tril() if causal else allowed)[rows]
    draw = lambda size: torch.rand(size, generator=generator, dtype=torch.float64).square() + 1e-3  # noqa: E731
    attention = draw(shape) * allowed
    norm = draw((shape[0], *shape[2:]) if hidden else shape) * allowed
    made = {
        "attention": attention / attention.sum(-1, keepdim=True),
        "attribution": norm / norm.sum(-1, keepdim=True),
        "attribution_norm": norm,
    }
    if sketch:
        made |= {"attribution_se": 0.1 * made["attribution"], "attribution_norm_se": 0.1 * norm}
    return made


def _jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    middle = (first + second) / 2
    return (
        sum(torch.special.xlogy(each, each / middle.where(middle > 0, 1)).sum(-1) for each in (first, second))
        / 2
        / torch.log(torch.tensor(2.0))
    )


def _ladder(divergence: Tensor) -> Tensor:
    """Falls from the embeddings to the head's own input; NaN where there is no such layer below the head."""
    layers = divergence.shape[0]
    below = torch.arange(layers, 0, -1) / layers
    whole = divergence.mean(-1)[..., None] * below
    return whole.where(torch.arange(layers) <= torch.arange(layers)[:, None, None], torch.nan)


def make_output_story(**options: Any) -> xarray.Dataset:
    """A Story that explains an output, with scores of both signs and one that is undefined."""
    story = make_story(**options)
    values = torch.linspace(-0.5, 1.0, story.sizes["source"]).numpy()
    values[1] = float("nan")
    attributes = {"long_name": "occlusion", "unit": "output", "method": "occlusion"}
    story["occlusion"] = ("source", values, attributes)
    facts = {"value": 1.25, "baseline": "[x]", "gap": 0.0125}
    story.attrs["explained"] = {"name": "class:[b]good", "value": 1.25, "probability": 0.75, "occlusion": facts}
    return story
