"""Which methods find the tokens that an output of the model hangs on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy
import xarray
from numpy.typing import NDArray

from glocal import registry
from glocal.corpus.texts import Item
from glocal.dims import EXPLANATION, FRACTION, METRIC, TEXT
from glocal.errors import ChoiceError, GlocalError, TextError
from glocal.evaluation.importance import Row, importance
from glocal.evaluation.order import count, highest, shuffled
from glocal.evaluation.perturbation import Outcome, Perturbation, outcomes, removable
from glocal.evaluation.ranking import interval, ranking
from glocal.job import Names, named
from glocal.metrics._evidence import Evidence
from glocal.models.encode import encode
from glocal.models.explained import Explained
from glocal.models.explaining import explained_of
from glocal.models.instrument import instrumented
from glocal.models.observe import PreTrainedModel, body
from glocal.models.tokens import Tokens
from glocal.pipeline import analyze

RANDOM = "random"
_TOGETHER = 32
Scores = NDArray[numpy.float64]


class Settings(NamedTuple):
    """One evaluation of an output."""

    explain: str | Callable
    methods: Names
    metrics: Names
    perturbation: Perturbation
    row: Row
    saliency: str | None  # the reference of saliency agreement; None: not asked for
    seed: int
    options: Mapping[str, Any]


class _Told(NamedTuple):
    """Of one text: values [metric, explanation] and with scores negated, falls [two, explanation, fraction]."""

    values: Scores
    inverse: Scores
    falls: Scores


def evaluate_outputs(
    rows: Sequence[Item], model: PreTrainedModel, tokenizer: Any, settings: Settings, advance: Callable[[int], None]
) -> xarray.Dataset:
    """Metrics of every method's scores, and of `random` orders, ranked.

    See `ranking`; beside it `inverse` [metric, explanation, text], `inverse_mean`, `_low` and `_high`: the same with all scores negated
    (NaN for random), and `fall_removed`, `fall_kept` [explanation, fraction] with `_low`, `_high`: mean of f(x) - f(x without the top K),
    and of f(x) - f(the top K alone). Raises what `analyze` raises, saying for which text.
    """
    methods = dict(named("methods", settings.methods))
    names = [registry.name_of(each) for each in methods]
    metrics = {registry.name_of(each): (registry.get("metrics", each), options) for each, options in named("metrics", settings.metrics)}
    reference = settings.saliency if "saliency_agreement" in metrics else None
    if reference is not None and reference not in names:
        methods[reference] = {}
    told: list[_Told] = []
    for item, story, tokens, explained in _stories(rows, model, tokenizer, settings, methods):
        try:
            with instrumented(model):
                evidence = _evidence(item, len(told), story, tokens, explained, names, reference, settings)
        except GlocalError as error:
            raise error.at(f"Text {item.number}") from error
        told.append(_told(evidence, names, metrics, settings.perturbation))
        advance(1)
    return _ranked(told, names, metrics, settings)


def _stories(
    rows: Sequence[Item], model: PreTrainedModel, tokenizer: Any, settings: Settings, methods: dict
) -> Iterator[tuple[Item, xarray.Dataset, Tokens, Explained]]:
    """Texts whose target is named alike are analysed together."""
    network = body(model)
    for target, group in groupby(rows, key=lambda item: target_of(settings.explain, item)):
        some = list(group)
        for start in range(0, len(some), _TOGETHER):
            part = some[start : start + _TOGETHER]
            texts = [_text(settings.explain, item) for item in part]
            options = {"of": "hidden", "seed": settings.seed, "progress": False, **settings.options}
            stories = analyze(texts, model, tokenizer, methods=methods, measures=(), explain=target, **options)
            for item, text, story in zip(part, texts, stories, strict=True):
                tokens = encode(text, network, tokenizer, truncation=bool(options.get("truncation")))
                with instrumented(model):
                    explained = explained_of(target, model, network, tokenizer, tokens)
                yield item, story, tokens, explained


def target_of(explain: str | Callable, item: Item) -> str | Callable:
    """The target of one row: "{label}" and "{pair}" stand for its label and its second text."""
    if callable(explain):
        return explain
    for field, value in (("label", item.label), ("pair", item.pair)):
        if f"{{{field}}}" in explain and not value:
            raise ChoiceError(
                f"Row {item.number} has no {field}.", asked=f"explain={explain!r}", found=f"{field}={value!r}",
                allowed="a corpus with that column", do=f"name the column: {field}=...",
            )  # fmt: skip
    # In one step, so that a label which looks like a field stays what it is.
    parts = explain.split("{label}")
    return str(item.label).join(part.replace("{pair}", str(item.pair)) for part in parts)


def _text(explain: str | Callable, item: Item) -> Any:
    apart = item.pair is None or (isinstance(explain, str) and "{pair}" in explain)
    return item.text if apart else (item.text, item.pair)


def _evidence(
    item: Item, number: int, story: xarray.Dataset, tokens: Tokens, explained: Explained, names: list[str], reference: str | None,
    settings: Settings,
) -> dict[tuple[str, bool], Evidence]:  # fmt: skip
    """By method and whether its scores are negated."""
    perturbation = settings.perturbation
    places = removable(tokens, explained, special=perturbation.special)
    if not places:
        raise TextError(
            "There is no token that may be taken away.", asked=item.text, found=f"tokens {' '.join(tokens.raw_token)}",
            do="leave the text out, or pass special=True",
        )  # fmt: skip
    scores = {(name, False): importance(story, name, explained, settings.row)[places] for name in names}
    scores |= {(name, True): -values for (name, _), values in scores.items()}
    scores[RANDOM, False] = shuffled(len(places), settings.seed, number)
    counts = {
        each: count(len(places), each, perturbation.rounding) for each in dict.fromkeys((0.0, *perturbation.bins, *perturbation.fractions))
    }
    whole, everything = frozenset(), frozenset(places)
    top = {key: {each: _places(values, counts[each], places) for each in counts} for key, values in scores.items()}
    single = [frozenset({place}) for place in places]
    wanted = {whole, *single, *(some for sets in top.values() for some in sets.values())}
    wanted |= {everything - some for sets in top.values() for some in sets.values()}
    found = outcomes(explained, tokens, wanted, perturbation)
    saliency = None if reference is None else importance(story, reference, explained, settings.row)[places]
    cues = _cues(item, tokens, places)
    return {
        key: Evidence(
            scores=values,
            whole=found[whole].value,
            removed={each: found[some].value for each, some in top[key].items()},
            kept={each: found[everything - some].value for each, some in top[key].items()},
            bins=perturbation.bins,
            fractions=perturbation.fractions,
            right=_right(found, top[key]),
            single=numpy.array([found[some].value for some in single]),
            saliency=saliency,
            cues=cues,
        )
        for key, values in scores.items()
    }


def _places(scores: Scores, number: int, places: list[int]) -> frozenset[int]:
    return frozenset(places[each] for each in highest(scores, number))


def _right(found: Mapping[frozenset[int], Outcome], top: Mapping[float, frozenset[int]]) -> dict[float, bool]:
    each = {fraction: found[some].right for fraction, some in top.items()}
    return {fraction: right for fraction, right in each.items() if right is not None}


def _cues(item: Item, tokens: Tokens, places: list[int]) -> NDArray[numpy.bool_] | None:
    """Tokens of the first text that lie in an occurrence of the row's cue."""
    if not item.cue:
        return None
    known = numpy.zeros(len(tokens), dtype=bool)
    start = tokens.text.find(item.cue)
    while start >= 0:
        end = start + len(item.cue)
        known |= [
            segment == 0 and low >= 0 and low < end and high > start
            for low, high, segment in zip(tokens.start, tokens.end, tokens.segment, strict=True)
        ]
        start = tokens.text.find(item.cue, end)
    if not known[places].any():
        raise TextError(
            "The cue is not in the text.", asked=f"cue {item.cue!r}", found=tokens.text[:80], do="write it as it is in the text"
        )
    return known[places]


def _told(evidence: Mapping[tuple[str, bool], Evidence], names: list[str], metrics: Mapping, perturbation: Perturbation) -> _Told:
    def values(key: tuple[str, bool]) -> list[float]:
        mine = evidence.get(key)
        if mine is None or not numpy.isfinite(mine.scores).any():
            return [float("nan")] * len(metrics)
        return [float(metric(mine, **options)) for metric, options in metrics.values()]

    all_names = [*names, RANDOM]
    curves = [[getattr(evidence[name, False], which) for name in all_names] for which in ("removed", "kept")]
    whole = next(iter(evidence.values())).whole
    falls = [[[whole - curve[each] for each in perturbation.fractions] for curve in some] for some in curves]
    return _Told(
        numpy.array([values((name, False)) for name in all_names]).T,
        numpy.array([values((name, True)) for name in all_names]).T,
        numpy.array(falls),
    )


def _ranked(told: list[_Told], names: list[str], metrics: Mapping, settings: Settings) -> xarray.Dataset:
    direction = {
        name: dict(getattr(metric, "card", registry.Card("", "")).extra).get("better", "higher") for name, (metric, _) in metrics.items()
    }
    values = numpy.stack([each.values for each in told], -1)
    found = ranking(values, [*names, RANDOM], direction, seed=settings.seed)
    inverse = numpy.stack([each.inverse for each in told], -1)
    found["inverse"] = ((METRIC, EXPLANATION, TEXT), inverse)
    for name, each in zip(("inverse_mean", "inverse_low", "inverse_high"), interval(inverse, seed=settings.seed), strict=True):
        found[name] = ((METRIC, EXPLANATION), each)
    falls = interval(numpy.stack([each.falls for each in told], -1), seed=settings.seed)
    for number, which in enumerate(("fall_removed", "fall_kept")):
        for suffix, each in zip(("", "_low", "_high"), falls, strict=True):
            found[which + suffix] = ((EXPLANATION, FRACTION), each[number])
    return found.assign_coords({FRACTION: list(settings.perturbation.fractions)})
