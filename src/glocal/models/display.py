"""Tokens as people read them: whole characters, words, categories."""

import unicodedata
from collections.abc import Sequence
from typing import Any

Span = tuple[int, int]

REPLACEMENT = "�"


def from_text(text: str, span: Span, raw: str) -> str:
    """What the span shows in the text, without the space before it; pieces of one character all show the whole character."""
    piece = text[span[0] : span[1]]
    return piece.strip() or piece or raw


def from_decoder(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Display forms without a text: ids that only together make a character are decoded together, and each shows all of it."""
    shown: list[str] = []
    start = 0
    while start < len(ids):
        piece, stop = tokenizer.decode([ids[start]]), start + 1
        if not _whole(piece):
            piece, stop = _grouped(tokenizer, ids, start)
        shown += [piece.strip() or piece or str(tokenizer.convert_ids_to_tokens(int(i))) for i in ids[start:stop]]
        start = stop
    return shown


def _whole(piece: str) -> bool:
    """Whether a decoded piece is text: decoders mark half a character, or drop it."""
    return bool(piece) and REPLACEMENT not in piece


def _grouped(tokenizer: Any, ids: Sequence[int], start: int) -> tuple[str, int]:
    """The character that begins at `start` and where it ends; an empty text, one token long, if there is none."""
    for stop in range(start + 2, min(start + 5, len(ids) + 1)):  # a character has at most four bytes
        piece = tokenizer.decode(list(ids[start:stop]))
        if _whole(piece) and len(piece.strip()) == 1:
            return piece, stop
    return "", start + 1


def words_from_ids(word_ids: Sequence[int | None], segments: Sequence[int]) -> list[int]:
    """Word numbers that go on counting in the second segment; -1 for special tokens."""
    words: list[int] = []
    previous: tuple[int, int] | None = None
    count = -1
    for word, segment in zip(word_ids, segments, strict=True):
        if word is None:
            words.append(-1)
            previous = None
            continue
        if (segment, word) != previous:
            count += 1
        previous = (segment, word)
        words.append(count)
    return words


def words_from_spans(texts: Sequence[str], spans: Sequence[Span], segments: Sequence[int], special: Sequence[bool]) -> list[int]:
    """Word numbers from character offsets: a new word begins after white space, and around every punctuation mark."""
    words: list[int] = []
    count, last = -1, None
    for span, segment, is_special in zip(spans, segments, special, strict=True):
        if is_special:
            words.append(-1)
            last = None
            continue
        text = texts[segment]
        alone = is_punctuation(text[span[0] : span[1]].strip())
        joined = (
            last is not None and last[1] == segment and not (alone or last[2]) and not any(map(str.isspace, text[last[0] : span[0] + 1]))
        )
        count += 0 if joined else 1
        words.append(count)
        last = (span[1], segment, alone)
    return words


def is_punctuation(piece: str) -> bool:
    """Whether every character is of a Unicode punctuation category."""
    return bool(piece) and all(unicodedata.category(character).startswith("P") for character in piece)


def categories(ids: Sequence[int], shown: Sequence[str], tokenizer: Any) -> list[str]:
    """`first_special` (special tokens before any other), `separator`, `special`, `punctuation` or `word`; by id, never by position.

    Unknown and mask tokens stand for text, so they are words.
    """
    special = special_ids(tokenizer)
    separators = {getattr(tokenizer, f"{name}_token_id", None) for name in ("sep", "eos")}
    result: list[str] = []
    opening = True
    for number, piece in zip(ids, shown, strict=True):
        if number in special:
            first = opening and (not result or number not in separators)
            result.append("first_special" if first else "separator" if number in separators else "special")
        else:
            opening = False
            result.append("punctuation" if is_punctuation(piece) else "word")
    return result


def special_ids(tokenizer: Any) -> set[int]:
    """Ids of special tokens, without those that stand for text (unknown, mask)."""
    if tokenizer is None:
        return set()
    stand_for_text = {getattr(tokenizer, f"{name}_token_id", None) for name in ("unk", "mask")}
    by_role = {getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep", "bos", "eos", "pad")}
    # GPT-2 has one id for everything; an id that is also a beginning, end or separator is special whatever else it is.
    return (set(tokenizer.all_special_ids) - (stand_for_text - by_role)) - {None}
