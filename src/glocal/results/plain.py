"""What JSON and UTF-8 can store, so that attributes and tokens come back as they were."""

import math
from typing import Any

from glocal.errors import StoryError

_NUMBER = "glocal:number"
_ALLOWED = "text, whole numbers, numbers, True, False, None, and lists and dicts (with text keys) of these"


def check_json(where: str, value: Any) -> None:
    """Raise `StoryError` unless `value` comes back identical from JSON: exact types only, so no tuples and no numpy numbers."""
    if type(value) is dict and all(type(key) is str and key != _NUMBER for key in value):
        for key, inner in value.items():
            check_text(where, key)
            check_json(f"{where}, key {key!r}", inner)
    elif type(value) is list:
        for number, inner in enumerate(value):
            check_json(f"{where}, entry {number}", inner)
    elif type(value) is str:
        check_text(where, value)
    elif type(value) not in (int, float, bool, type(None)):
        raise StoryError(
            f"{where} cannot be stored as JSON.",
            found=f"{value!r} ({type(value).__name__})",
            allowed=_ALLOWED,
            do="convert it, for example with list(), float() or str()",
        )


def check_text(where: str, text: str) -> None:
    """Raise `StoryError` if `text` holds half a character, which UTF-8 cannot store."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StoryError(
            f"{where} holds half a character (a lone surrogate), which UTF-8 cannot store.",
            found=ascii(text),
            allowed="text of whole characters",
            do="decode the text again from its bytes, or replace the half: text.encode('utf-8', 'replace').decode()",
        ) from error


def to_strict(value: Any) -> Any:
    """`value` with NaN and infinities, which JSON does not have, as {"glocal:number": "nan"}."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_NUMBER: str(value)}
    if isinstance(value, dict):
        return {key: to_strict(inner) for key, inner in value.items()}
    return [to_strict(inner) for inner in value] if isinstance(value, list) else value


def from_strict(value: Any) -> Any:
    """The inverse of `to_strict`."""
    if isinstance(value, dict):
        return float(value[_NUMBER]) if value.keys() == {_NUMBER} else {key: from_strict(inner) for key, inner in value.items()}
    return [from_strict(inner) for inner in value] if isinstance(value, list) else value
