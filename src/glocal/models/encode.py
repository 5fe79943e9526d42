"""A text, pair, ids or BatchEncoding -> `Tokens`, one per text, without padding."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from glocal.errors import GlocalWarning, TextError, TextTooLongError
from glocal.models import display
from glocal.models.tokens import Tokens

_PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def encode(text: Any, model: PreTrainedModel, tokenizer: Any, *, truncation: bool = False) -> Tokens:
    """The `Tokens` of one text, pair of texts, sequence of ids, or one-row encoding.

    Raises `TextError` for what cannot be a text, `TextTooLongError` for one longer than the model unless `truncation`.
    """
    if isinstance(text, str):
        text = (text,)
    if isinstance(text, tuple) and text and all(isinstance(part, str) for part in text) and len(text) <= 2:
        tokens = _from_text(text, model, tokenizer, truncation)
    else:
        tokens = _from_ids(_one_row(text), model, tokenizer, truncation)
    _check(tokens, model, tokenizer)
    return tokens


def several(text: Any) -> list[Any] | None:
    """The texts of a list of texts or of an encoding with several rows; None if `text` is one text."""
    if isinstance(text, Mapping) and "input_ids" in text:
        ids = torch.as_tensor(text["input_ids"])
        if ids.dim() == 2 and len(ids) != 1:
            rows = {key: torch.as_tensor(value) for key, value in text.items() if key in _PER_TOKEN}
            return [{key: value[row] for key, value in rows.items()} for row in range(len(ids))]
        return None
    if isinstance(text, Tensor | numpy.ndarray):
        return list(text) if text.ndim == 2 and len(text) != 1 else None
    if isinstance(text, list) and not (text and all(isinstance(part, int) for part in text)):
        return text
    return None


def limit(model: PreTrainedModel, tokenizer: Any) -> int | None:
    """The largest number of tokens that the model has positions for; None if it has no limit of its own."""
    limits = []
    size = getattr(model.config, "max_position_embeddings", None) or getattr(model.config, "n_positions", None)
    if isinstance(size, int) and size > 0:
        tables = [
            module.padding_idx
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding) and module.num_embeddings == size and "position" in name
        ]
        # RoBERTa counts positions from the padding index on.
        limits.append(size - max((index + 1 for index in tables if index is not None), default=0))
    length = getattr(tokenizer, "model_max_length", None)
    if isinstance(length, int) and 0 < length < 10**9:
        limits.append(length)
    return min(limits, default=None)


def _from_text(texts: tuple[str, ...], model: PreTrainedModel, tokenizer: Any, truncation: bool) -> Tokens:
    if tokenizer is None:
        raise TextError(
            "There is no tokenizer for this text.",
            asked=repr(texts[0][:40]),
            do="pass tokenizer=..., or ids instead of a text",
        )
    for part in texts:
        if not part.strip():
            raise TextError("The text is empty.", asked=repr(part), allowed="at least one visible character", do="pass a text")
    try:
        whole = tokenizer(*texts, verbose=False)
        largest = limit(model, tokenizer)
        cut = largest is not None and len(whole["input_ids"]) > largest
        encoding = tokenizer(*texts, verbose=False, truncation=True, max_length=largest) if cut and truncation else whole
    except (TypeError, UnicodeError) as error:
        raise TextError(
            "The tokenizer refuses this text.", asked=repr(texts[0][:40]), found=str(error), do="remove lone surrogates"
        ) from error
    ids = list(encoding["input_ids"])
    if cut and not truncation:
        raise _too_long(len(ids), largest)
    inputs = {key: value for key, value in encoding.items() if key in _PER_TOKEN}
    labels = _labels_from_text(texts, encoding, ids, tokenizer)
    return _tokens(inputs, ids, labels, texts, len(whole["input_ids"]) - len(ids), model, tokenizer)


def _labels_from_text(texts: tuple[str, ...], encoding: Any, ids: list[int], tokenizer: Any) -> dict[str, list]:
    raw = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    fast = encoding.encodings[0] if getattr(encoding, "encodings", None) else None
    if fast is None:
        return _labels_from_ids(ids, tokenizer) | {"segment": list(encoding.get("token_type_ids", [0] * len(ids)))}
    # A special token belongs to the segment before it.
    segments = list(accumulate(fast.sequence_ids, lambda before, part: before if part is None else part, initial=0))[1:]
    spans = list(fast.offsets)
    special = [part is None for part in fast.sequence_ids]
    shown = [
        token if is_special else display.from_text(texts[segment], span, token)
        for token, span, segment, is_special in zip(raw, spans, segments, special, strict=True)
    ]
    # A "[SEP]" written in the text is a special token by its id, but has a place in the text.
    by_id = display.special_ids(tokenizer)
    wordless = [alone or number in by_id for alone, number in zip(special, ids, strict=True)]
    words = display.words_from_ids([None if s else w for s, w in zip(wordless, fast.word_ids, strict=True)], segments)
    if max(words, default=-1) < len(texts) and any(any(map(str.isspace, part.strip())) for part in texts):
        words = display.words_from_spans(texts, spans, segments, wordless)  # no pre-tokenizer: all is one "word"
    spans = [(-1, -1) if is_special else span for span, is_special in zip(spans, special, strict=True)]
    return {"token": shown, "raw_token": raw, "word": words, "segment": segments, "span": spans}


def _labels_from_ids(ids: list[int], tokenizer: Any) -> dict[str, list]:
    unknown = {"segment": [0] * len(ids), "span": [(-1, -1)] * len(ids)}
    if tokenizer is None:
        numbers = [str(number) for number in ids]
        return {"token": numbers, "raw_token": numbers, "word": list(range(len(ids)))} | unknown
    raw = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    special = display.special_ids(tokenizer)
    plain = [number for number in ids if number not in special]
    shown = iter(display.from_decoder(tokenizer, plain))
    token = [raw[i] if number in special else next(shown) for i, number in enumerate(ids)]
    continues = [piece.startswith("##") for piece in raw]
    marked = any(piece.startswith(("Ġ", "▁")) for piece in raw)
    words, count = [], -1
    for number, piece, continued in zip(ids, raw, continues, strict=True):
        starts = piece.startswith(("Ġ", "▁")) if marked else not continued
        count += number not in special and (starts or count < 0 or (bool(words) and words[-1] == -1))
        words.append(-1 if number in special else count)
    return {"token": token, "raw_token": raw, "word": words} | unknown


def _one_row(text: Any) -> dict[str, Tensor]:
    fields = {key: value for key, value in text.items() if key in _PER_TOKEN} if isinstance(text, Mapping) else {"input_ids": text}
    try:
        given = {key: torch.as_tensor(value) for key, value in fields.items()}
        ids = given["input_ids"]
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TextError(
            "This is no text.",
            asked=f"an object of type {type(text).__name__}",
            allowed="a text, a pair (tuple) of texts, a list of texts, ids, or an encoding with input_ids",
            do="pass one of these",
        ) from error
    if ids.numel() and (ids.is_floating_point() or ids.dtype == torch.bool):
        raise TextError("Ids must be whole numbers.", found=str(ids.dtype), do="pass ids as integers")
    shapes = {key: tuple(value.shape) for key, value in given.items()}
    if len(set(shapes.values())) > 1 or ids.dim() not in (1, 2) or (ids.dim() == 2 and len(ids) != 1):
        raise TextError(
            "The shape does not fit one text.",
            found=", ".join(f"{key} {shape}" for key, shape in shapes.items()),
            allowed="[tokens] or [1, tokens], the same for all fields; several rows only where a whole batch is passed",
            do="pass one row, or a list of rows",
        )
    return _without_padding({key: value.reshape(-1) for key, value in given.items()})


def _without_padding(row: dict[str, Tensor]) -> dict[str, Tensor]:
    mask = row.get("attention_mask")
    if mask is None:
        return row
    real = mask.bool().nonzero().reshape(-1)
    if len(real) and int(real[-1] - real[0]) + 1 != len(real):
        raise TextError(
            "The attention mask has holes.",
            found=mask.tolist(),
            allowed="padding on one side",
            do="pass the text without the holes",
        )
    # Positions then start at the first real token, whichever side the padding was on.
    return {key: value[real] for key, value in row.items()}


def _from_ids(row: dict[str, Tensor], model: PreTrainedModel, tokenizer: Any, truncation: bool) -> Tokens:
    largest, found = limit(model, tokenizer), len(row["input_ids"])
    if largest is not None and found > largest:
        if not truncation:
            raise _too_long(found, largest)
        row = {key: value[:largest] for key, value in row.items()}
    ids = row["input_ids"].tolist()
    labels = _labels_from_ids(ids, tokenizer)
    if "token_type_ids" in row:
        labels["segment"] = row["token_type_ids"].tolist()
    return _tokens({key: value.tolist() for key, value in row.items()}, ids, labels, (), found - len(ids), model, tokenizer)


def _too_long(found: int, largest: int | None) -> TextTooLongError:
    return TextTooLongError(
        "The text is longer than the model.",
        found=f"{found} tokens",
        allowed=f"{largest} tokens",
        do="split the text, or pass truncation=True (--truncation) to cut it, which the result records",
    )


def _tokens(
    inputs: Mapping[str, Sequence[int]],
    ids: list[int],
    labels: dict[str, list],
    texts: tuple[str, ...],
    truncated: int,
    model: PreTrainedModel,
    tokenizer: Any,
) -> Tokens:
    device = next(model.parameters()).device
    spans = labels.pop("span")
    return Tokens(
        inputs={key: torch.tensor([list(value)], dtype=torch.long, device=device) for key, value in inputs.items()},
        token_id=tuple(ids),
        category=tuple(display.categories(ids, labels["token"], tokenizer)),
        start=tuple(span[0] for span in spans),
        end=tuple(span[1] for span in spans),
        text=texts[0] if texts else "",
        pair=texts[1] if len(texts) > 1 else "",
        truncated=truncated,
        notes=(f"{truncated} tokens were cut off, as truncation allowed.",) if truncated else (),
        **{key: tuple(value) for key, value in labels.items()},
    )


def _check(tokens: Tokens, model: PreTrainedModel, tokenizer: Any) -> None:
    if not len(tokens):
        raise TextError("The text has no tokens.", asked=repr(tokens.text), allowed="at least one token", do="pass a text")
    rows = len(model.get_input_embeddings().weight)  # pyright: ignore[reportArgumentType]
    outside = [number for number in tokens.token_id if not 0 <= number < rows]
    if outside:
        raise TextError(
            "An id is outside the vocabulary.",
            found=outside[:5],
            allowed=f"0 to {rows - 1}",
            do="check that tokenizer and model belong together",
        )
    first = getattr(tokenizer, "bos_token_id", None)
    if first is not None and tokens.token_id[:2] == (first, first):
        warnings.warn(
            "The text begins with two beginning-of-sequence tokens: the tokenizer adds one already.",
            GlocalWarning,
            stacklevel=4,
        )
