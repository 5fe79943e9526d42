"""One text as the model sees it: ids, labels, words, offsets, categories."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """The tokens of one text (or pair, or list of ids), without padding; every tuple has one entry per position."""

    inputs: Mapping[str, Tensor]  # what the model is called with: input_ids, attention_mask, ...; each [1, n]
    token: tuple[str, ...]  # as displayed: whole characters, no tokenizer marks
    raw_token: tuple[str, ...]  # as in the vocabulary
    token_id: tuple[int, ...]
    word: tuple[int, ...]  # index of the word, -1 for special tokens
    segment: tuple[int, ...]
    category: tuple[str, ...]  # first_special, separator, special, punctuation, word
    start: tuple[int, ...]  # character offsets in the text of the segment, -1 where there is none
    end: tuple[int, ...]
    text: str = ""
    pair: str = ""
    truncated: int = 0  # tokens cut off because truncation was asked for
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.token_id)
