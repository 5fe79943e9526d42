"""Decide the chunk before anything runs, from what one small push really costs in bytes, operations and seconds."""

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from glocal.errors import MemoryBudgetError
from glocal.jacobian.seeds import Seeds
from glocal.jacobian.straight import Energy, Function, push

# Tangents times tokens that fill the matrix units without leaving the caches (measured; see benchmarks).
TOKEN_TANGENTS = 4096
# Allocator rounding, scratch space of the matrix library: live tensors are not all that a process holds.
OVERHEAD = 1.3
# Share of the matrix rate that the engine reaches on a processor with fast matrix units (measured; see benchmarks).
EFFICIENCY = 0.6
# Scratch space of the matrix library and pages that the allocator keeps, whatever the chunk (measured).
SCRATCH = 32 << 20
_FEW = 16


@dataclass(frozen=True)
class Plan:
    """How a request will be computed; `bytes` and `seconds` are estimates, beyond the model and what the process holds already."""

    engine: str
    tangents: int
    chunk: int
    chunks: int
    bytes: int
    seconds: float
    flops: float
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For the Story's attributes."""
        return asdict(self)


class _Meter(TorchDispatchMode):
    """Peak of the bytes that tensors made inside this context hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = 0
        self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        # A view of a weight is nothing new: only storages that no argument had are counted.
        had = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in self.known | had:
                self._note(leaf.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self.known.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.alive -= size


def _metered(run: Callable[[], object]) -> tuple[int, float]:
    """Bytes at the peak, and floating-point operations."""
    with torch.no_grad(), FlopCounterMode(display=False) as flops, _Meter() as meter:
        run()
    return meter.peak, float(flops.get_total_flops())


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    with torch.no_grad():
        run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


@cache
def matrix_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations per second of a large matrix product, measured once per process."""
    a, b = (torch.ones(shape, dtype=dtype, device=device) for shape in ((2048, 512), (512, 2048)))
    return 2 * 2048 * 512 * 2048 / min(_seconds(lambda: torch.matmul(a, b), device) for _ in range(3))


def plan_straight(function: Function, x: Tensor, seeds: Seeds, energies: Sequence[Energy], *, memory: int, results: int) -> Plan:
    """Meter one pass and one small push, extrapolate, and choose the chunk within `memory` bytes; `results` is what accumulating takes.

    Raises `MemoryBudgetError` naming what would be enough.
    """
    few = min(_FEW, seeds.total)

    def small_push() -> None:
        _, tangents = seeds.tangents(0, few, x)
        for output, energy in zip(push(function, x, tangents), energies, strict=True):
            energy(output).double()

    primal_bytes, primal_flops = _metered(lambda: function(x))
    small_bytes, small_flops = _metered(small_push)
    per_tangent = max(1.0, (small_bytes - primal_bytes) / few)
    needed = lambda chunk: int((primal_bytes + per_tangent * chunk) * OVERHEAD) + SCRATCH + results  # noqa: E731
    fit = int(((memory - results - SCRATCH) / OVERHEAD - primal_bytes) // per_tangent)
    if fit < 1:
        raise _too_small(memory, needed(1), seeds)
    best = max(1, TOKEN_TANGENTS // seeds.sources)
    chunks = -(-seeds.total // min(fit, best))
    chunk = -(-seeds.total // chunks)
    flops = (small_flops - primal_flops) / few * seeds.total + primal_flops * chunks
    return Plan(
        engine="straight",
        tangents=seeds.total,
        chunk=chunk,
        chunks=chunks,
        bytes=needed(chunk),
        seconds=flops / (matrix_rate(x.dtype, x.device) * EFFICIENCY) + _seconds(small_push, x.device) * chunks,
        flops=flops,
        reason="all tangents at once" if chunks == 1 else "as the memory budget allows" if fit < best else "the size that runs fastest",
    )


def _too_small(memory: int, enough: int, seeds: Seeds) -> MemoryBudgetError:
    return MemoryBudgetError(
        "Even one tangent at a time does not fit into the memory budget.",
        asked=f"memory of {memory / 2**20:.0f} MiB",
        found=f"{enough / 2**20:.0f} MiB needed beyond the model for {seeds.sources} tokens",
        allowed=f"memory={enough / 2**20 * 1.1:.0f}MiB or more",
        do="raise memory, shorten the text, or ask for fewer layers",
    )
