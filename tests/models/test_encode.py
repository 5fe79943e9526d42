"""All that a text can be."""

import pytest
import torch
from families import make_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from glocal.errors import GlocalWarning, TextError, TextTooLongError
from glocal.models.encode import encode, limit, several

TEXT = "The cat sat on the mat because it was tired."


def byte_level(**roles):
    """A byte-level BPE tokenizer with few merges: emoji and most words are several pieces."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    inner.train_from_iterator([TEXT], trainer)
    if roles.pop("double", False):
        inner.post_processor = processors.TemplateProcessing(single="<s> <s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, **roles)


def unigram():
    """A SentencePiece-like tokenizer with one pre-token for the whole text."""
    vocabulary = [("<unk>", 0.0), ("▁the", -1.0), ("▁c", -2.0), ("at", -2.0), ("▁", -3.0), (".", -3.0)]
    inner = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    inner.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


@pytest.fixture(scope="module")
def network():
    """Room for every small tokenizer of these tests."""
    torch.manual_seed(0)
    import transformers

    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=400, n_positions=64)
    return transformers.GPT2Model(config).eval()


def test_words_categories_and_offsets_of_a_sentence(minilm):
    tokens = encode(TEXT, *minilm)
    assert tokens.token == ("[CLS]", "The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired", ".", "[SEP]")
    assert tokens.raw_token[1] == "the"
    assert tokens.category == ("first_special", *["word"] * 10, "punctuation", "separator")
    assert tokens.word == (-1, *range(11), -1)
    assert [TEXT[s:e] for s, e in zip(tokens.start[1:-1], tokens.end[1:-1], strict=True)] == list(tokens.token[1:-1])


def test_pieces_of_a_word_share_it(minilm):
    tokens = encode("Unbelievably transformative.", *minilm)
    assert len(set(tokens.word[1:-1])) == 3
    assert tokens.word == (*tuple(sorted(tokens.word[:-1])), -1)
    assert "##" not in "".join(tokens.token) and any(piece.startswith("##") for piece in tokens.raw_token)


def test_a_pair_has_two_segments_and_words_that_go_on(minilm):
    tokens = encode(("A cat.", "No cat!"), *minilm)
    assert tokens.segment == (0, 0, 0, 0, 0, 1, 1, 1, 1)
    words = [word for word in tokens.word if word >= 0]
    assert words == list(range(6))
    assert (tokens.text, tokens.pair) == ("A cat.", "No cat!")
    assert tokens.category.count("separator") == 2


@pytest.mark.parametrize(
    "text",
    ["👩‍👩‍👧 emoji 😀", "日本語のテキスト", "שלום עולם مرحبا", "a\x00b\tc\x07", "</script><b>[bold]", "x", "e\u0301a\u0300", "ﷺ"],
    ids=ascii,
)
def test_display_tokens_are_whole_characters_of_the_text(text, network):
    tokens = encode(text, network, byte_level())
    assert all("\ufffd" not in piece for piece in tokens.token)
    for piece, start, end in zip(tokens.token, tokens.start, tokens.end, strict=True):
        assert piece in (text[start:end], text[start:end].strip())
    assert set("".join(text[s:e] for s, e in zip(tokens.start, tokens.end, strict=True))) == set(text)


@pytest.mark.parametrize("text", ["👩‍👩‍👧 emoji 😀", "日本語", "plain words"], ids=ascii)
def test_ids_alone_are_displayed_as_whole_characters(text, network):
    tokenizer = byte_level()
    tokens = encode(tokenizer(text)["input_ids"], network, tokenizer)
    assert all("\ufffd" not in piece for piece in tokens.token)
    assert {piece for piece in tokens.token if piece not in tokens.raw_token} <= set(text) | set(text.split())


def test_slow_tokenizers_work(network):
    tokens = encode("añb", network, ByT5Tokenizer())
    assert tokens.token == ("a", "ñ", "ñ", "b", "</s>")
    assert tokens.category[-1] == "separator"


def test_without_a_pre_tokenizer_words_come_from_white_space(network):
    tokens = encode("the cat.", network, unigram())
    assert tokens.raw_token == ("▁the", "▁c", "at", ".")
    assert tokens.word == (0, 1, 1, 2)


def test_tokenizers_without_special_tokens_have_no_special_categories(network):
    assert set(encode("a cat.", network, byte_level()).category) <= {"word", "punctuation"}


def test_one_id_in_all_roles_is_first_special_only_at_the_beginning(network):
    tokenizer = byte_level(bos_token="<s>", eos_token="<s>", unk_token="<s>")
    assert encode([0, 70, 71, 0, 72], network, tokenizer).category == ("first_special", "word", "word", "separator", "word")


def test_only_special_tokens(minilm):
    tokens = encode("[SEP]", *minilm)
    assert tokens.category == ("first_special", "separator", "separator")
    assert tokens.word == (-1, -1, -1)


def test_mask_and_unknown_tokens_stand_for_text(minilm):
    assert encode("a [MASK] b", *minilm).category[2] == "word"


def test_ids_without_a_tokenizer(network):
    tokens = encode([5, 6, 7], network, None)
    assert (tokens.token, tokens.word, tokens.category) == (("5", "6", "7"), (0, 1, 2), ("word",) * 3)


@pytest.mark.parametrize("text", ["", "  \n", ("", "b"), ("a", " ")], ids=repr)
def test_empty_texts_are_refused(text, minilm):
    with pytest.raises(TextError, match="empty"):
        encode(text, *minilm)


@pytest.mark.parametrize("ids", [[], torch.zeros(0, dtype=torch.long), {"input_ids": [5, 6], "attention_mask": [0, 0]}], ids=repr)
def test_no_tokens_are_refused(ids, network):
    with pytest.raises(TextError, match="no tokens"):
        encode(ids, network, None)


def test_a_text_needs_a_tokenizer(network):
    with pytest.raises(TextError, match="no tokenizer"):
        encode("a", network, None)


@pytest.mark.parametrize(
    ("thing", "match"), [(3.5, "whole numbers"), (None, "no text"), ({"a": 1}, "no text"), (("a", "b", "c"), "no text")], ids=repr
)
def test_other_things_are_refused(thing, match, network):
    with pytest.raises(TextError, match=match):
        encode(thing, network, None)


def test_lone_surrogates_are_refused(minilm):
    with pytest.raises(TextError, match="surrogates"):
        encode("a \ud800 b", *minilm)


def test_ids_outside_the_vocabulary_are_refused(network):
    with pytest.raises(TextError, match="outside the vocabulary"):
        encode([5, 400], network, None)


def test_masks_with_holes_are_refused(network):
    with pytest.raises(TextError, match="holes"):
        encode({"input_ids": [5, 6, 7], "attention_mask": [1, 0, 1]}, network, None)


def test_too_long_a_text_is_refused_and_cut_only_when_asked(minilm):
    model, tokenizer = minilm
    text = "word " * 600
    with pytest.raises(TextTooLongError, match=r"602 tokens(.|\n)*512 tokens(.|\n)*truncation"):
        encode(text, model, tokenizer)
    cut = encode(text, model, tokenizer, truncation=True)
    assert (len(cut), cut.truncated) == (512, 90)
    assert cut.category[-1] == "separator"
    assert "cut off" in cut.notes[0]


def test_too_many_ids_are_refused_and_cut_only_when_asked(network):
    with pytest.raises(TextTooLongError, match="64 tokens"):
        encode([5] * 70, network, None)
    assert encode([5] * 70, network, None, truncation=True).truncated == 6


def test_positions_counted_from_the_padding_index_shorten_the_limit():
    roberta = make_model("Roberta")
    assert limit(roberta, None) == roberta.config.max_position_embeddings - roberta.config.pad_token_id - 1
    assert limit(make_model("T5"), None) is None


def test_a_doubled_beginning_is_warned_about(network):
    with pytest.warns(GlocalWarning, match="two beginning-of-sequence"):
        encode("a cat", network, byte_level(bos_token="<s>", double=True))


def test_what_counts_as_several_texts():
    assert several("a") is None and several(("a", "b")) is None and several([1, 2]) is None
    assert several(["a", ("b", "c")]) == ["a", ("b", "c")]
    assert several([[1, 2], [3]]) == [[1, 2], [3]]
    assert len(several(torch.ones(2, 3, dtype=torch.long))) == 2
    assert several(torch.ones(1, 3, dtype=torch.long)) is None
    assert several([]) == []
