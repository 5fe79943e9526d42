"""One text -> Story: the whole pipeline, top to bottom."""

import inspect
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from time import perf_counter
from typing import Any, SupportsIndex

import torch
import xarray
from torch import Tensor

import glocal
from glocal import registry
from glocal.discrepancy import discrepancies, ladder_discrepancies, noise_biases
from glocal.errors import ChoiceError, GlocalError
from glocal.jacobian.plan import Plan
from glocal.job import Asked, Job, Names, prepared, request_of
from glocal.methods.attribution import attribution, attribution_together, plan_attribution, room_for_others
from glocal.models.encode import encode, several
from glocal.models.explaining import explained_of
from glocal.models.groups import group_numbers, grouped
from glocal.models.instrument import instrumented
from glocal.models.observe import PreTrainedModel, observe
from glocal.models.tokens import Tokens
from glocal.progress import Choice, tracker
from glocal.request import Made, Work
from glocal.results.label import label


def analyze(
    text: Any,
    model: Any = "minilm",
    tokenizer: Any = None,
    *,
    methods: Names = ("attention", "attribution"),
    explain: str | Callable | None = None,
    measures: Names = ("jsd",),
    of: str = "head",
    origin: str = "embedding_output",
    source_layer: int = 0,
    freeze: Sequence[str] = (),
    ladder: bool = False,
    norm: str = "frobenius",
    times_input: bool = False,
    engine: str = "auto",
    probes: int | str | None = None,
    error: float = 0.02,
    time: float | str | None = 60.0,
    layers: Iterable[SupportsIndex] | None = None,
    heads: Iterable[SupportsIndex] | None = None,
    targets: Iterable[SupportsIndex] | None = None,
    groups: str | Iterable[SupportsIndex] | None = None,
    seed: int = 0,
    memory: str | int = "4GiB",
    precision: str | None = None,
    progress: Choice = None,
    truncation: bool = False,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> Any:
    """Tell what every head reads (attention) and what its output depends on (attribution), for one text.

    `text`: a text, a (text, text) pair, ids, or an encoding; a list of these gives a list of Stories, each as if run alone.
    `explain`: the output that methods to an output explain: "class:NAME", "predicted_class", "probability:NAME", "next_token[:TEXT]",
    "token:POSITION", "masked_token[:TEXT]", "difference:A/B", "similarity:TEXT", or a function of the model's outputs to one number.
    `of`: "head" (z, before the output projection), "head_output" (o, after its slice of it), "hidden" (layer outputs, no head dimension).
    `origin`: "embedding_output" (after the embedding block) or "word" (the word vector alone).
    `source_layer`: attribution to the input of layer m + 1 (0: the embeddings); heads of layers above m only.
    `freeze`: any of "attention", "norm", "activation" held constant; none gives the true Jacobian.
    `ladder`: adds `ladder_<measure>`, the mean discrepancy with the attribution to every layer below.
    `norm`: "frobenius", or "summed" for comparison with code that differentiates the sum of the components.
    `times_input`: Jacobian columns scaled by the input's components.
    `engine`: "auto" takes the fastest that fits; or "straight", "collapsed" (exact too), "reverse" (for few targets).
    `probes`: None is exact; k sketches with k orthonormal directions per source and gives standard errors; "auto" adds directions until
    the estimated `error` (mean total variation of a row) is met.
    `time`: seconds that exact results may take with engine "auto"; beyond that a sketch of `error` is made, with a notice. None: no limit.
    `layers`, `heads` count from 1, `targets` are positions from 0; None is all.
    `groups`: sources taken together: "word", "sentence", "segment", or a number for every token. A sketch then costs as many directions as
    there are groups. Norms are those of the whole block, attention is summed.
    `precision`: None as the model is; "float64" and "float32" on a copy if need be; "reduced_products" (bfloat16 or TF32 products of a
    float32 model) and "bfloat16" (tangents carried in it) are faster, and note their difference along a few directions.
    `memory`: budget beyond the model and what the process holds. `progress`: None, True, False or a function (done, total).

    Returns the Story (see the schema in docs/story.md). The model is left exactly as found, also after an exception.
    Raises `TextError`, `ModelError`, `ChoiceError`, `MemoryBudgetError`, each saying what to do.
    """
    request = request_of(locals())
    job = prepared(
        request, model, tokenizer, Asked(methods, measures, ladder, groups, truncation, progress, explain), trust_remote_code,
        allow_pickle,
    )  # fmt: skip
    texts = several(text)
    return _story(job, _encoded(job, text)) if texts is None else _stories(job, _all_encoded(job, texts))


def plan(text: Any, model: Any = "minilm", tokenizer: Any = None, **options: Any) -> Any:
    """How `analyze` with the same arguments would compute the attribution: engine, directions, chunks, estimated seconds and bytes.

    The network runs a few times, for measuring. Returns a `Plan`, or a list of them for a list of texts; raises what `analyze` raises.
    """
    asked = inspect.signature(analyze).bind(text, model, tokenizer, **options)
    asked.apply_defaults()
    given = asked.arguments
    job = prepared(
        request_of(given),
        model,
        tokenizer,
        Asked((), (), False, given["groups"], given["truncation"], False),
        given["trust_remote_code"],
        given["allow_pickle"],
    )
    texts = several(text)
    return _plan(job, _encoded(job, text)) if texts is None else [_plan(job, each) for each in _all_encoded(job, texts)]


def _look(job: Job, tokens: Tokens) -> Work:
    """One pass of an instrumented network."""
    seen = observe(job.network, tokens.inputs)
    request = job.request.resolved(seen)
    if job.settings["groups"] is not None:
        request = replace(request, groups=group_numbers(tokens, job.settings["groups"]))
    explained = None
    if job.explain is not None:
        explained = explained_of(job.explain, job.whole, job.network, job.tokenizer, tokens)
    return Work(job.network, seen, request, partial(tracker, job.progress), job.learnt, explained, tuple(word < 0 for word in tokens.word))


def _encoded(job: Job, text: Any) -> Tokens:
    return encode(text, job.network, job.tokenizer, truncation=job.settings["truncation"])


def _all_encoded(job: Job, texts: Sequence[Any]) -> list[Tokens]:
    """Of a list; an error says which of its texts it is about."""
    encoded = []
    for number, text in enumerate(texts):
        try:
            encoded.append(_encoded(job, text))
        except GlocalError as error:
            raise error.at(f"Text {number} of the list (counted from 0)") from error
    return encoded


def _plan(job: Job, tokens: Tokens) -> Plan:
    with instrumented(job.whole):
        return plan_attribution(_look(job, tokens))


def _stories(job: Job, texts: Sequence[Tokens]) -> list[xarray.Dataset]:
    """One Story per text; short texts of one length share their pushes, the longest first, so that costs are measured once."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for number, tokens in enumerate(texts):
        by_length[len(tokens)].append(number)
    stories: dict[int, xarray.Dataset] = {}
    for length, places in sorted(by_length.items(), reverse=True):
        room = _room(job, length)
        for start in range(0, len(places), room):
            some = places[start : start + room]
            stories |= zip(some, _together(job, [texts[number] for number in some]), strict=True)
    return [stories[number] for number in range(len(texts))]


def _room(job: Job, length: int) -> int:
    probes = job.request.probes
    if attribution not in (method for method, _ in job.methods.values()) or isinstance(probes, str):
        return 1
    table: Any = job.network.get_input_embeddings()
    return room_for_others(length, table.weight.shape[1], probes)


def _together(job: Job, texts: Sequence[Tokens]) -> list[xarray.Dataset]:
    begun = perf_counter()
    with instrumented(job.whole):
        works = [_look(job, tokens) for tokens in texts]
        made = attribution_together(works) if len(works) > 1 else None
        share = (perf_counter() - begun) / len(texts)
        ready: Sequence[Made | None] = made or [None] * len(works)
        return [_told(job, work, tokens, mine, share) for work, tokens, mine in zip(works, texts, ready, strict=True)]


def _story(job: Job, tokens: Tokens) -> xarray.Dataset:
    return _together(job, [tokens])[0]


def _told(job: Job, work: Work, tokens: Tokens, ready: Made | None, spent: float) -> xarray.Dataset:
    """The Story of one text, on which `spent` seconds have gone already; `ready` is its attribution, if it was computed with others'."""
    begun = perf_counter() - spent
    made = [
        ready if ready is not None and method is attribution and not options else _checked(method, method(work, **options))
        for method, options in job.methods.values()
    ]
    variables = {name: value for each in made for name, value in each.variables.items()}
    variables |= discrepancies(variables, job.measures)
    estimates = [each.facts.get("error_estimate", {}) for each in made]
    inflation = next((each["inflation_of_standard_errors"] for each in estimates if "inflation_of_standard_errors" in each), 1.0)
    biases = noise_biases(variables, job.measures, inflation=inflation, seed=job.request.seed)
    if job.settings["ladder"]:
        variables |= ladder_discrepancies(work, job.measures)
    request = work.request
    facts: dict[str, Any] = _facts(job.network, tokens, work, made, job.settings) | job.known | {"causal": work.seen.causal}
    for name, value in biases.items():
        facts["error_estimate"][f"mean_{name}"] = value[value.isfinite()].mean().item()
    facts["seconds"] = perf_counter() - begun
    return label(
        variables | biases,
        tokens,
        sources=tokens if request.groups is None else grouped(tokens, request.groups),
        layers=request.layers or (),
        heads=request.heads if request.of != "hidden" or "attention" in variables else None,
        targets=request.targets or (),
        attributes=facts,
    )


def _checked(method: Callable, made: Any) -> Made:
    if not isinstance(made, Made) or not all(isinstance(value, Tensor) for value in made.variables.values()):
        raise ChoiceError(
            f"The method {registry.name_of(method)!r} does not return what a method must.",
            found=f"an object of type {type(made).__name__}",
            allowed="glocal.request.Made({name: tensor}, {fact: value})",
            do="see methods/attention.py for the smallest example",
        )
    return made


@cache
def _versions() -> dict[str, str]:
    return {f"{name}_version": version(name) for name in ("torch", "transformers")}


def _facts(network: PreTrainedModel, tokens: Tokens, work: Work, made: Sequence[Made], settings: dict[str, Any]) -> dict[str, Any]:
    request = work.request
    parameter = next(network.parameters())
    asked = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(request).items()}
    asked["groups"] = settings["groups"]
    facts: dict[str, Any] = {
        "glocal_version": glocal.__version__,
        **_versions(),
        "python_version": platform.python_version(),
        "text": tokens.text,
        "text_pair": tokens.pair,
        "family": network.config.model_type,
        "dtype": str(parameter.dtype).removeprefix("torch."),
        "device": str(parameter.device),
        "truncated": tokens.truncated,
        "settings": asked | settings,
        "engine": "none",
        "plan": {},
        "seed": request.seed,
        "error_estimate": {},
        "explained": _explained(work, tokens),
        "notes": list(tokens.notes),
    }
    for each in made:
        joined = {"notes": facts["notes"] + each.facts.get("notes", []), "explained": facts["explained"] | each.facts.get("explained", {})}
        facts |= each.facts | joined
    if request.of == "hidden" and settings["measures"]:
        facts["notes"].append("Attribution of hidden states has no head dimension, so no discrepancy with attention was computed.")
    return facts


def _explained(work: Work, tokens: Tokens) -> dict[str, Any]:
    """Name and value of the output that is explained, with its probability where it has one; empty without one."""
    explained = work.explained
    if explained is None:
        return {}
    with torch.no_grad():
        found: dict[str, Any] = {"name": explained.name, "value": explained.values(tokens.inputs).item()}
        if explained.probability is not None:
            found["probability"] = explained.values(tokens.inputs, scale="probability").item()
    return found
