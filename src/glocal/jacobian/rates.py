"""How fast this machine is: measured once per machine, number type and torch, and kept in the user's cache folder."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch

from glocal.files import write_whole

_SECONDS = 0.15  # spent on each of the two measurements


@dataclass(frozen=True)
class Rates:
    """`products`: floating-point operations per second of large matrix products; `memory`: bytes per second of elementwise passes."""

    products: float
    memory: float


@cache
def machine_rates(dtype: torch.dtype, device: torch.device) -> Rates:
    """The rates of `device` for `dtype`, from the cache file or measured now.

    The file is `machine.json` in $GLOCAL_CACHE_DIR, or in $XDG_CACHE_HOME/glocal, or in ~/.cache/glocal; deleting it measures again. Where
    it cannot be written the rates are measured in every process.
    """
    key = _key(dtype, device)
    path = cache_folder() / "machine.json"
    known: dict = {}
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(path.read_text(encoding="utf-8")))
    with suppress(KeyError, TypeError):
        return Rates(**known[key])
    rates = _measure(dtype, device)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(known | {key: asdict(rates)}, indent=1).encode())
    return rates


@contextmanager
def products(reduced: bool, device: torch.device) -> Iterator[None]:
    """Inside, float32 products use the fast units with fewer digits (bfloat16 on processors, TF32 on CUDA), or never do."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if not reduced else "high" if device.type == "cuda" else "medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def cache_folder() -> Path:
    """Where glocal keeps what it measured about this machine."""
    asked = os.environ.get("GLOCAL_CACHE_DIR")
    return Path(asked) if asked else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glocal"


def synchronise(device: torch.device) -> None:
    """Wait for queued work, so that a clock means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _key(dtype: torch.dtype, device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} x {torch.get_num_threads()} threads"
    return f"{platform.node()} | {device.type} {name} | torch {torch.__version__} | {dtype} | {torch.get_float32_matmul_precision()}"


def _measure(dtype: torch.dtype, device: torch.device) -> Rates:
    with torch.no_grad():
        a, b = (torch.ones(shape, dtype=dtype, device=device) for shape in ((4096, 768), (768, 768)))
        products = 2 * 4096 * 768 * 768 / _best(lambda: torch.matmul(a, b), device)
        x, y = (torch.ones(1 << 21, dtype=dtype, device=device) for _ in range(2))
        memory = 3 * x.numel() * x.element_size() / _best(lambda: torch.mul(x, y), device)
    return Rates(products, memory)


def _best(run: Callable[[], object], device: torch.device) -> float:
    best, spent = float("inf"), 0.0
    while spent < _SECONDS:
        start = time.perf_counter()
        run()
        synchronise(device)
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best
