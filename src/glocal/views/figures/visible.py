"""Texts that a person can see and that no console or page interprets."""

import unicodedata

_SYMBOLS = {number: chr(0x2400 + number) for number in range(32)} | {127: "␡"}


def visible(text: str) -> str:
    """`text` with control and invisible characters made visible: C0 as their symbols, a lone space as ␠, others as escapes."""
    if text and text.isspace():
        return "".join(_SYMBOLS.get(ord(each), "␠") for each in text)
    return "".join(_shown(each) for each in text)


def _shown(character: str) -> str:
    if ord(character) in _SYMBOLS:
        return _SYMBOLS[ord(character)]
    # Joiners and variation selectors belong to emoji and scripts; overrides of direction would reorder what is around them.
    overrides = "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"
    if overrides or unicodedata.category(character) in {"Cc", "Cs", "Co", "Cn"}:
        return f"\\u{ord(character):04x}"
    return character
