"""One text -> Story: the whole pipeline, top to bottom."""

import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from time import perf_counter
from typing import Any

import xarray

import glocal
from glocal import registry
from glocal.compare import discrepancies, ladder_discrepancies
from glocal.models.encode import encode, several
from glocal.models.instrument import instrumented
from glocal.models.load import in_precision, load, weights_fingerprint
from glocal.models.observe import PreTrainedModel, body, observe
from glocal.models.tokens import Tokens
from glocal.progress import Choice, tracker
from glocal.request import Made, Request, Work, bytes_of, seconds_of
from glocal.results.label import label

Names = Sequence[str | Callable] | Mapping[str, Mapping[str, Any]]


def analyze(
    text: Any,
    model: Any = "minilm",
    tokenizer: Any = None,
    *,
    methods: Names = ("attention", "attribution"),
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
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    targets: Sequence[int] | None = None,
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
    `precision`: None as the model is; "float64" and "float32" on a copy if need be; "reduced_products" (bfloat16 or TF32 products of a
    float32 model) and "bfloat16" (tangents carried in it) are faster, and note their difference along a few directions.
    `memory`: budget beyond the model and what the process holds. `progress`: None, True, False or a function (done, total).

    Returns the Story (see the schema in docs/story.md). The model is left exactly as found, also after an exception.
    Raises `TextError`, `ModelError`, `ChoiceError`, `MemoryBudgetError`, each saying what to do.
    """
    request = Request(
        of, origin, source_layer, tuple(freeze), norm, times_input, engine, probes,
        _numbers(layers), _numbers(heads), _numbers(targets), seed, bytes_of(memory), error, seconds_of(time), precision,
    )  # fmt: skip
    chosen = {name: (registry.get("methods", name), options) for name, options in _options(methods)}
    compared = {registry.name_of(name): partial(registry.get("measures", name), **opts) for name, opts in _options(measures)}
    network, tokenizer, name = load(model, tokenizer, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
    settings = {
        "methods": [registry.name_of(each) for each in chosen],
        "measures": list(compared),
        "ladder": ladder,
        "truncation": truncation,
    }
    network = body(network)
    known = {"model": name, "weights_fingerprint": weights_fingerprint(network)}
    network = in_precision(network, precision)
    one = partial(_one, network, tokenizer, request, chosen, compared, settings, progress, known)
    texts = several(text)
    return one(text) if texts is None else [one(each) for each in texts]


def _one(
    network: PreTrainedModel,
    tokenizer: Any,
    request: Request,
    methods: Mapping[str, tuple[Callable, Mapping[str, Any]]],
    measures: Mapping[str, Callable],
    settings: dict[str, Any],
    progress: Choice,
    known: dict[str, Any],
    text: Any,
) -> xarray.Dataset:
    begun = perf_counter()
    tokens = encode(text, network, tokenizer, truncation=settings["truncation"])
    with instrumented(network):
        seen = observe(network, tokens.inputs)
        request = request.resolved(seen)
        work = Work(network, seen, request, partial(tracker, progress))
        made = [method(work, **options) for method, options in methods.values()]
        variables = {name: value for each in made for name, value in each.variables.items()}
        variables |= discrepancies(variables, measures)
        if settings["ladder"]:
            variables |= ladder_discrepancies(work, measures)
    facts = _facts(network, tokens, request, made, settings) | known | {"causal": seen.causal}
    facts["seconds"] = perf_counter() - begun
    return label(
        variables,
        tokens,
        layers=request.layers or (),
        heads=request.heads if request.of != "hidden" or "attention" in variables else None,
        targets=request.targets or (),
        attributes=facts,
    )


def _facts(network: PreTrainedModel, tokens: Tokens, request: Request, made: Sequence[Made], settings: dict[str, Any]) -> dict[str, Any]:
    parameter = next(network.parameters())
    asked = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(request).items()}
    facts: dict[str, Any] = {
        "glocal_version": glocal.__version__,
        "torch_version": version("torch"),
        "transformers_version": version("transformers"),
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
        "notes": list(tokens.notes),
    }
    for each in made:
        facts |= each.facts | {"notes": facts["notes"] + each.facts.get("notes", [])}
    if request.of == "hidden" and settings["measures"]:
        facts["notes"].append("Attribution of hidden states has no head dimension, so no discrepancy with attention was computed.")
    return facts


def _options(names: Names) -> list[tuple[Any, dict[str, Any]]]:
    if isinstance(names, Mapping):
        return [(name, dict(options or {})) for name, options in names.items()]
    return [(name, {}) for name in ([names] if isinstance(names, str) or callable(names) else names)]


def _numbers(values: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)
