"""Texts that a person can see and that no console or page interprets."""

import unicodedata

_SYMBOLS = {number: chr(0x2400 + number) for number in range(32)} | {127: "␡"}
# They join emoji and letters of many scripts; alone they show nothing.
_JOINERS = "\u200c\u200d"
_ESCAPED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def visible(text: str) -> str:
    """`text` with nothing hidden: control characters as their symbols, lone spaces as ␠, others without a glyph as escapes.

    Joiners and variation selectors stay inside a text, where emoji and scripts need them; a combining mark that comes first sits on ◌.
    """
    if text and text.isspace():
        return "".join(_SYMBOLS.get(ord(each), "␠") for each in text)
    if text and all(unicodedata.category(each) in _ESCAPED or _selector(each) for each in text):
        return "".join(_SYMBOLS.get(ord(each)) or _escape(each) for each in text)
    shown = "".join(_shown(each) for each in text)
    return f"◌{shown}" if text and unicodedata.category(text[0]).startswith("M") else shown


def shortened(text: str, most: int) -> str:
    """At most about `most` characters of `text`, cut between words where there are any, with an ellipsis."""
    if len(text) <= most:
        return text
    kept = text[: most - 1]
    return (kept.rpartition(" ")[0] or kept).rstrip() + " …" if " " in kept[most // 2 :] else kept + "…"


def right_to_left(text: str) -> bool:
    """Whether the first letter with a direction runs from right to left."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in {"L", "R", "AL"}:
            return direction != "L"
    return False


def _shown(character: str) -> str:
    if ord(character) in _SYMBOLS:
        return _SYMBOLS[ord(character)]
    return _escape(character) if character not in _JOINERS and unicodedata.category(character) in _ESCAPED else character


def _selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f"


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
