"""Tiny, randomly initialised models of many families, in float64: one table that every law runs over. No network."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

_SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 100}
_GROUPED = _SIZE | {"num_key_value_heads": 2}
_WIDE_HEADS = _GROUPED | {"head_dim": 12}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


@dataclass(frozen=True)
class Family:
    """How to make one, and what is special about it."""

    config: dict[str, Any] = field(default_factory=dict)
    causal: bool = False
    # Parts that the family's own code computes in float32 (norms, rotary angles) limit every float64 comparison.
    tolerance: float = 1e-10
    sinks: bool = False
    encoder_of: bool = False  # the encoder of an encoder-decoder
    freezes: tuple[str, ...] = ("attention", "norm", "activation")
    gated: bool = False
    # Where the sum of a layer's input and its attention's output goes: into a normaliser first ("post"), past one ("pre"), or elsewhere.
    residual: str = "pre"


_FLOAT32_PARTS = 1e-6

FAMILIES: dict[str, Family] = {
    "Bert": Family(_SIZE, residual="post"),
    "Roberta": Family(_SIZE, residual="post"),
    "XLMRoberta": Family(_SIZE, residual="post"),
    "Camembert": Family(_SIZE, residual="post"),
    "Electra": Family(_SIZE | {"embedding_size": 16}, residual="post"),
    "Albert": Family(_SIZE | {"embedding_size": 16}, residual="post"),
    "DistilBert": Family({"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "vocab_size": 100}, residual="post"),
    "Ernie": Family(_SIZE, residual="post"),
    "Esm": Family(
        _SIZE | {"pad_token_id": 1, "mask_token_id": 3, "position_embedding_type": "rotary"},
        tolerance=_FLOAT32_PARTS, freezes=("attention", "norm"),
    ),
    "ModernBert": Family(_SIZE | {"local_attention": 4, "global_attn_every_n_layers": 2}, tolerance=_FLOAT32_PARTS, gated=True),
    "NomicBert": Family(_SIZE, gated=True, residual="post"),
    "EuroBert": Family(_GROUPED, tolerance=_FLOAT32_PARTS, gated=True),
    "T5": Family(
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4, "vocab_size": 100},
        tolerance=_FLOAT32_PARTS, encoder_of=True,
    ),
    "Bart": Family(
        {"d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
         "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 100},
        encoder_of=True, residual="post",
    ),
    "GPT2": Family({"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 100}, causal=True),
    "OPT": Family(
        {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 48, "vocab_size": 100, "word_embed_proj_dim": 32},
        causal=True, tolerance=_FLOAT32_PARTS,
    ),
    "GPTNeoX": Family(_SIZE, causal=True, tolerance=_FLOAT32_PARTS, residual="other"),
    "Llama": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS, gated=True),
    "Mistral": Family(_GROUPED | {"sliding_window": 3}, causal=True, tolerance=_FLOAT32_PARTS, gated=True),
    "Qwen2": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS, gated=True),
    "Qwen3": Family(_WIDE_HEADS, causal=True, tolerance=_FLOAT32_PARTS, gated=True),
    "Gemma2": Family(_WIDE_HEADS | {"sliding_window": 3}, causal=True, tolerance=_FLOAT32_PARTS, gated=True, residual="other"),
    "Gemma3Text": Family(_WIDE_HEADS, causal=True, tolerance=_FLOAT32_PARTS, gated=True, residual="other"),
    "Phi3": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS, gated=True),
    "Olmo2": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS, gated=True, residual="other"),
    "SmolLM3": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS, gated=True),
    "Starcoder2": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS),
    "Granite": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS, gated=True),
    "Cohere": Family(_GROUPED, causal=True, tolerance=_FLOAT32_PARTS, gated=True, residual="other"),
    "Mixtral": Family(_GROUPED | _EXPERTS, causal=True, tolerance=_FLOAT32_PARTS, freezes=("attention", "norm"), gated=True),
    "GptOss": Family(_WIDE_HEADS | _EXPERTS, causal=True, tolerance=_FLOAT32_PARTS, sinks=True, freezes=("attention", "norm"), gated=True),
}  # fmt: skip

# Families that the instrument cannot see, and must refuse by name.
UNSEEN: dict[str, dict[str, Any]] = {
    "Bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100},
    "MPNet": _SIZE,
    "GPTNeo": {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "vocab_size": 100},
    "Falcon": _SIZE,
    "DebertaV2": _SIZE,
    "RoFormer": _SIZE | {"embedding_size": 16},
}  # fmt: skip

_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def make_model(name: str, dtype: torch.dtype = torch.float64, head: str = "Model", **more: Any) -> PreTrainedModel:
    """A fresh model of the family; weights are larger than at initialisation, so that attention is far from uniform.

    `head`: the end of the class's name, such as "ForSequenceClassification"; `more`: for its configuration.
    """
    settings = FAMILIES[name].config if name in FAMILIES else UNSEEN[name]
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}{head}")(getattr(transformers, f"{name}Config")(**_IDS | settings | more))
    if name in FAMILIES and FAMILIES[name].encoder_of:
        model = model.get_encoder()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            scale = 0.1 if parameter.dim() < 2 else 0.25
            parameter.add_(scale * noise) if "norm" in key.lower() or parameter.dim() < 2 else parameter.copy_(scale * noise)
    return model.to(dtype).eval()


@cache
def model(name: str) -> PreTrainedModel:
    """A shared model, for tests that leave it as found."""
    return make_model(name)


def ids(n: int = 5, seed: int = 0) -> list[int]:
    """Ids of ordinary tokens."""
    return torch.randint(5, 99, (n,), generator=torch.Generator().manual_seed(seed)).tolist()
