"""The arguments of `analyze`, checked and looked up once for all texts of a call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

from glocal import registry
from glocal.models.explaining import check_kind
from glocal.models.load import in_precision, load, weights_fingerprint
from glocal.models.observe import PreTrainedModel, body
from glocal.progress import Choice
from glocal.request import Request, bytes_of, listed, numbers, seconds_of

Names = Sequence[str | Callable] | Mapping[str, Mapping[str, Any]]


class Asked(NamedTuple):
    """What surrounds a request: which maps and measures, and how to treat texts and show progress."""

    methods: Names
    measures: Names
    ladder: bool
    groups: str | Iterable[SupportsIndex] | None
    truncation: bool
    progress: Choice
    explain: str | Callable | None = None


class Job(NamedTuple):
    """Everything that is the same for all texts of one call."""

    whole: PreTrainedModel  # with its head, where an output is explained
    network: PreTrainedModel
    tokenizer: Any
    request: Request
    methods: Mapping[str, tuple[Callable, Mapping[str, Any]]]
    measures: Mapping[str, Callable]
    settings: dict[str, Any]
    progress: Choice
    known: dict[str, Any]
    learnt: dict[Any, Any]
    explain: str | Callable | None = None


def request_of(given: Mapping[str, Any]) -> Request:
    """The request in the arguments of `analyze`; raises `ChoiceError`."""
    some: dict[str, Any] = {name: numbers(name, given[name]) for name in ("layers", "heads", "targets")}
    same: Any = ("of", "origin", "source_layer", "norm", "times_input", "engine", "probes", "seed", "error", "precision")
    return Request(
        **{name: given[name] for name in same},
        **some,
        freeze=listed("freeze", given["freeze"], "names"),
        memory=bytes_of(given["memory"]),
        time=seconds_of(given["time"]),
    )


def prepared(request: Request, model: Any, tokenizer: Any, asked: Asked, trust_remote_code: bool, allow_pickle: bool) -> Job:
    """Load the model and look up everything by name; raises `ModelError`, `ChoiceError`."""
    methods = {name: (registry.get("methods", name), options) for name, options in named("methods", asked.methods)}
    measures = {registry.name_of(name): partial(registry.get("measures", name), **opts) for name, opts in named("measures", asked.measures)}
    explain = asked.explain
    if explain is not None:
        check_kind(explain)
    whole, tokenizer, name = load(model, tokenizer, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle, explain=explain)
    whole = in_precision(body(whole) if explain is None else whole, request.precision)
    network = body(whole)
    return Job(
        whole=whole,
        network=network,
        tokenizer=tokenizer,
        request=request,
        methods=methods,
        measures=measures,
        settings={
            "methods": [registry.name_of(each) for each in methods],
            "method_options": _said(methods),
            "measures": list(measures),
            "ladder": asked.ladder,
            "truncation": asked.truncation,
            "groups": _plain(asked.groups),
            "explain": explain if explain is None or isinstance(explain, str) else registry.name_of(explain),
        },
        progress=asked.progress,
        known={"model": name, "weights_fingerprint": weights_fingerprint(whole, poolers=whole is not network)},
        learnt={},
        explain=explain,
    )


def _said(methods: Mapping[Any, tuple[Callable, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Options that were given, by method; what a file cannot hold as it is, in words."""
    plain = lambda value: value if value is None or isinstance(value, bool | int | float | str) else repr(value)  # noqa: E731
    return {registry.name_of(name): {key: plain(value) for key, value in given.items()} for name, (_, given) in methods.items() if given}


def _plain(groups: str | Iterable[SupportsIndex] | None) -> str | list[int] | None:
    if groups is None or isinstance(groups, str):
        return groups
    return list(numbers("groups", groups) or ())


def named(folder: str, names: Names) -> list[tuple[Any, dict[str, Any]]]:
    """(name or function, its options) of every choice; raises `ChoiceError` for names and options that do not exist."""
    if isinstance(names, Mapping):
        chosen = [(name, dict(options or {})) for name, options in names.items()]
    elif isinstance(names, str) or callable(names):
        chosen = [(names, {})]
    else:
        chosen = [(name, {}) for name in listed(folder, names, "names or functions")]
    for name, options in chosen:
        registry.check_options(folder, name, options)
    return chosen
