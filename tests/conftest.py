"""Shared by all tests: no network, no progress bars, one real model loaded once."""

import os
import tempfile

os.environ["GLOCAL_CACHE_DIR"] = tempfile.mkdtemp(prefix="glocal-tests-")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import transformers
from hypothesis import settings

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
settings.register_profile("glocal", deadline=None, max_examples=30)
settings.load_profile("glocal")


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def minilm():
    """The bundled trained model and its tokenizer."""
    from glocal.models.load import load

    model, tokenizer, _ = load("minilm")
    return model, tokenizer
