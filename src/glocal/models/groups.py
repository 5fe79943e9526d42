"""Sources taken together: words, sentences, or any segments of a text."""

from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import numpy

from glocal.errors import ChoiceError
from glocal.models.tokens import Tokens

SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "؟", "।")


def group_numbers(tokens: Tokens, groups: str | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The group of every token, counted from 0 in order of appearance.

    "word": tokens of one word; "sentence": up to a token that ends one (. ! ? and their like); "segment": the texts of a pair. Special
    tokens are groups of their own. Or any sequence with one number per token; equal numbers are one group. Raises `ChoiceError`.
    """
    if isinstance(groups, str):
        rules = {"word": _words, "sentence": _sentences, "segment": _segments}
        if groups not in rules:
            raise _refused(repr(groups), tokens)
        return _counted(rules[groups](tokens))
    if not isinstance(groups, Iterable):
        raise _refused(repr(groups), tokens)
    numbers = [int(each) if isinstance(each, numpy.integer) else each for each in groups]
    if len(numbers) != len(tokens) or any(isinstance(each, bool) or not isinstance(each, int) for each in numbers):
        raise _refused(f"{len(numbers)} entries" if len(numbers) != len(tokens) else str(numbers), tokens)
    return _counted(numbers)


def grouped(tokens: Tokens, numbers: Sequence[int]) -> Tokens:
    """One entry per group: its text, raw tokens and offsets; word, segment and category where all tokens agree, else -1 or "word"."""
    members = [[place for place, number in enumerate(numbers) if number == group] for group in range(max(numbers) + 1)]
    same = lambda values, inside, other: values[inside[0]] if len({values[place] for place in inside}) == 1 else other  # noqa: E731
    return Tokens(
        inputs=tokens.inputs,
        token=tuple(_text(tokens, inside) for inside in members),
        raw_token=tuple(" ".join(tokens.raw_token[place] for place in inside) for inside in members),
        token_id=tuple(tokens.token_id[inside[0]] if len(inside) == 1 else -1 for inside in members),
        word=tuple(same(tokens.word, inside, -1) for inside in members),
        segment=tuple(same(tokens.segment, inside, -1) for inside in members),
        category=tuple(same(tokens.category, inside, "word") for inside in members),
        start=tuple(min(tokens.start[place] for place in inside) for inside in members),
        end=tuple(max(tokens.end[place] for place in inside) for inside in members),
        text=tokens.text,
        pair=tokens.pair,
        truncated=tokens.truncated,
        notes=tokens.notes,
    )


def _text(tokens: Tokens, inside: Sequence[int]) -> str:
    first, last = inside[0], inside[-1]
    text = tokens.pair if tokens.segment[first] == 1 else tokens.text
    together = list(inside) == list(range(first, last + 1)) and tokens.segment[first] == tokens.segment[last]
    if text and together and tokens.start[first] >= 0 and tokens.end[last] >= 0:
        return text[tokens.start[first] : tokens.end[last]]
    return " ".join(tokens.token[place] for place in inside)


def _words(tokens: Tokens) -> list[tuple[int, ...]]:
    return [(tokens.segment[place], word) if word >= 0 else (-1, -1, place) for place, word in enumerate(tokens.word)]


def _sentences(tokens: Tokens) -> list[tuple[int, ...]]:
    found, sentence = [], 0
    for place, category in enumerate(tokens.category):
        special = category not in ("word", "punctuation")
        sentence += special
        found.append((-1, place) if special else (sentence,))
        sentence += not special and tokens.token[place].strip() in SENTENCE_ENDS
    return found


def _segments(tokens: Tokens) -> list[tuple[int, ...]]:
    return [
        (tokens.segment[place],) if category in ("word", "punctuation") else (-1, place) for place, category in enumerate(tokens.category)
    ]


def _counted(names: Sequence[object]) -> tuple[int, ...]:
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return tuple(order[name] for name in names)


def _refused(asked: str, tokens: Tokens) -> ChoiceError:
    return ChoiceError(
        "The groups do not fit the text.",
        asked=f"groups={asked}",
        found=f"{len(tokens)} tokens",
        allowed='"word", "sentence", "segment", or one whole number for every token',
        do="choose one of these",
    )
