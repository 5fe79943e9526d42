"""Texts that are too long, as encodings that are not."""

from typing import Any

from glocal.errors import TextError


def first_part(text: Any, tokenizer: Any, largest: int) -> dict[str, Any]:
    """The encoding of a text or pair cut to `largest` tokens, special tokens included."""
    _check(tokenizer, largest, isinstance(text, tuple))
    return dict(tokenizer(*_parts(text), truncation=True, max_length=largest, verbose=False))


def windows(text: Any, tokenizer: Any, largest: int) -> list[dict[str, Any]]:
    """Encodings of at most `largest` tokens that follow one another, each with its own special tokens.

    Raises `TextError` for pairs, and where the tokenizer is a slow one, which has no such windows.
    """
    if isinstance(text, tuple):
        raise TextError("A pair of texts cannot be cut into windows.", allowed="single texts", do="skip long pairs, or truncate them")
    if not getattr(tokenizer, "is_fast", False):
        raise TextError("This tokenizer cannot cut windows.", found=type(tokenizer).__name__, allowed="a fast one", do="truncate instead")
    _check(tokenizer, largest, False)
    made = tokenizer(text, truncation=True, max_length=largest, return_overflowing_tokens=True, verbose=False)
    kept = [name for name in made if name != "overflow_to_sample_mapping"]
    return [{name: made[name][number] for name in kept} for number in range(len(made["input_ids"]))]


def _parts(text: Any) -> tuple[str, ...]:
    return text if isinstance(text, tuple) else (text,)


def _check(tokenizer: Any, largest: int, pair: bool) -> None:
    special = tokenizer.num_special_tokens_to_add(pair=pair)
    if largest <= special:
        raise TextError(
            "So few tokens leave no room for the text.", asked=f"{largest} tokens", allowed=f"more than {special}", do="allow more tokens"
        )
