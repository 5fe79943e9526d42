"""Texts -> which explanations to trust."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import xarray

from glocal import registry
from glocal.choices import BINS, FRACTIONS
from glocal.corpus.texts import Columns, Item, items
from glocal.errors import ChoiceError, TextError
from glocal.evaluation.importance import Row
from glocal.evaluation.maps import REFERENCE, evaluate_maps
from glocal.evaluation.outputs import Settings, evaluate_outputs
from glocal.evaluation.perturbation import Perturbation
from glocal.job import Names
from glocal.models.explaining import CHOICES, check_kind
from glocal.models.load import load
from glocal.progress import Choice, tracker

# What is compared unless methods are given: per head with of="head", per layer with of="hidden".
METHODS = {
    "head": ("attention", "effective_attention", "attn_n_head", "attribution"),
    "hidden": ("rollout", "alti_rollout", "globenc_rollout", "value_zeroing_rollout", "attribution"),
}
TO_OUTPUT = ("gradient_x_input", "integrated_gradients", "occlusion")
# Beside these: the first needs an output that is linear in logits, the others an output whose row in a map is known.
LINEAR, MAPS = ("decompx_output",), ("attention", "rollout", "alti_rollout", "globenc_rollout", "attribution")
_MEASURES, _REPLACE = ("spearman", "jsd"), {False: "zero", True: "delete"}


def evaluate(
    texts: Any,
    model: Any = "minilm",
    tokenizer: Any = None,
    *,
    explain: str | Callable | None = None,
    methods: Names | None = None,
    measures: Names | None = None,
    metrics: Names | None = None,
    of: str | None = None,
    replace: str | None = None,
    special: bool = False,
    rounding: str = "ceil",
    bins: Sequence[float] = BINS,
    fractions: Sequence[float] = FRACTIONS,
    scale: str | None = None,
    row: Row = None,
    saliency: str = "gradient_x_input",
    text: str = "text",
    pair: str | None = None,
    label: str | None = None,
    cue: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: Choice = None,
) -> xarray.Dataset:
    """Rank explanations: of heads (or layers) by what happens to these, of an output by what happens to it, when tokens are taken away.

    `texts`: as in `study`. Columns `text`, `pair`, `label`, `cue`. `options`: further arguments of `analyze`, such as {"probes": 16}.

    Without `explain`: see `evaluate_maps`. `measures` between a map's rows and those of `head_occlusion`; `of`: "head", "head_output",
    or "hidden" (per layer); `replace`: a word vector by "zero" (default) or "mean".

    With `explain` (as in `analyze`; "class:{label}" is the true class, "similarity:{pair}" the likeness to the row's second text): see
    `evaluate_outputs`. `metrics` (`glocal metrics`) of the tokens with the highest scores. What changes numbers: `replace`: "delete"
    (default) or "mask"; `special`: whether special tokens may go; `rounding` of `bins` and `fractions` of the tokens: "ceil", "floor",
    "round"; `scale`: "probability" (default where there is one), "logit", "output"; `row`: which target's row of a map counts;
    `saliency`: the reference of saliency_agreement; `cue`: a column with the part of the text that is known to matter.

    Returns the Dataset of `ranking` and more, with all choices in its attributes. Texts without a word are not what a model was trained
    on, whatever is made of them. Raises what `analyze` raises.
    """
    given = {key: value for key, value in locals().items() if key not in ("texts", "model", "tokenizer")}
    _check(given)
    rows = list(items(texts, Columns(text, pair, None, label, cue), limit=limit, sample=sample, seed=seed))
    if not rows:
        raise TextError("There is no text to evaluate on.", asked=str(texts)[:80], found="no rows", do="pass texts")
    network, tokenizer, called = load(model, tokenizer, explain=explain)
    make = _maps if explain is None else _outputs
    with tracker(progress, len(rows), 3.0 * len(rows), "evaluate") as advance:
        found, settings = make(rows, network, tokenizer, given, advance)
    plain = {"seed": seed, "options": {key: repr(value) for key, value in (options or {}).items()}}
    return found.assign_attrs(settings={"model": called, **settings, **plain}, texts=len(rows))


# Arguments that mean something with an output alone.
_OF_OUTPUTS = ("metrics", "special", "rounding", "bins", "fractions", "scale", "row", "saliency", "label", "cue")


def _check(given: Mapping[str, Any]) -> None:
    """Refuse arguments that would be ignored."""
    explain = given["explain"]
    if explain is not None:
        check_kind(explain)
    parameters = inspect.signature(evaluate).parameters
    for name in _OF_OUTPUTS if explain is None else ("measures",):
        if given[name] != parameters[name].default:
            raise ChoiceError(
                f"{name} has no meaning {'without' if explain is None else 'with'} explain.",
                asked=f"{name}={given[name]!r}, explain={explain!r}",
                allowed="metrics with explain, measures without it",
                do=f"leave {name} out, or " + ("pass explain=..." if explain is None else "leave explain out"),
            )


def _maps(rows: list[Item], model: Any, tokenizer: Any, given: Mapping[str, Any], advance: Any) -> tuple[xarray.Dataset, dict[str, Any]]:
    of, replace = given["of"] or "head", given["replace"] or _REPLACE[False]
    if given["methods"] is None and of not in METHODS:
        raise ChoiceError(f"of={of!r} has no default methods.", asked="methods=None", allowed=", ".join(METHODS), do="pass methods")
    found = evaluate_maps(
        [item.text if item.pair is None else (item.text, item.pair) for item in rows], model, tokenizer,
        methods=METHODS[of] if given["methods"] is None else given["methods"],
        measures=_MEASURES if given["measures"] is None else given["measures"],
        of=of, replace=replace, seed=given["seed"], options=dict(given["options"] or {}), advance=advance,
    )  # fmt: skip
    return found.assign_attrs(reference=REFERENCE), {"of": of, "replace": replace}


def _outputs(rows: list[Item], model: Any, tokenizer: Any, given: Mapping[str, Any], advance: Any) -> tuple[xarray.Dataset, dict[str, Any]]:
    explain, replace = given["explain"], given["replace"] or _REPLACE[True]
    choice = isinstance(explain, str) and explain.partition(":")[0] in CHOICES
    perturbation = Perturbation(
        replace, given["special"], given["rounding"], tuple(given["bins"]), tuple(given["fractions"]),
        given["scale"] or ("probability" if choice else "output"),
    )  # fmt: skip
    metrics = given["metrics"]
    if metrics is None:
        metrics = tuple(name for name, card in registry.cards("metrics").items() if card.default)
    of = given["of"] or "hidden"
    methods = _default_methods(explain) if given["methods"] is None else given["methods"]
    options = {"of": of, **(given["options"] or {})}
    settings = Settings(explain, methods, metrics, perturbation, given["row"], given["saliency"], given["seed"], options)
    found = evaluate_outputs(rows, model, tokenizer, settings, advance)
    named = explain if isinstance(explain, str) else registry.name_of(explain)
    return found.assign_attrs(reference="output"), {
        "explain": named, "of": of, **vars(perturbation), "row": given["row"], "saliency": given["saliency"],
    }  # fmt: skip


def _default_methods(explain: str | Callable) -> tuple[str, ...]:
    if callable(explain):
        return TO_OUTPUT
    linear = () if explain.startswith("probability") else LINEAR
    known = () if explain.startswith("difference") else MAPS
    return (*TO_OUTPUT, *linear, *known)
