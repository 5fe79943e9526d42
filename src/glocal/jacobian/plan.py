"""Decide the chunk before anything runs, from what one small push really costs in bytes, operations and seconds."""

import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.alive += size
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.alive -= size


@dataclass(frozen=True)
class _Cost:
    bytes: int
    flops: float
    seconds: float


def _cost(function: Function, x: Tensor, seeds: Seeds, energies: Sequence[Energy], chunk: int) -> _Cost:
    def run() -> None:
        _, tangents = seeds.tangents(0, chunk, x)
        for output, energy in zip(push(function, x, tangents), energies, strict=True):
            energy(output).double()

    with torch.no_grad():
        with FlopCounterMode(display=False) as flops, _Meter() as meter:
            run()
        start = time.perf_counter()
        run()
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        return _Cost(meter.peak, float(flops.get_total_flops()), time.perf_counter() - start)


def plan_straight(function: Function, x: Tensor, seeds: Seeds, energies: Sequence[Energy], *, memory: int, results: int) -> Plan:
    """Measure two small chunks, extrapolate, and choose the largest chunk within `memory` bytes; `results` is what accumulating takes.

    Raises `MemoryBudgetError` naming what would be enough.
    """
    small, large = min(4, seeds.total), min(16, seeds.total)
    one, two = (_cost(function, x, seeds, energies, chunk) for chunk in (small, large))
    steps = max(1, large - small)
    per_tangent = max((two.bytes - one.bytes) / steps, two.bytes / large / 4)
    fixed = max(0.0, two.bytes - per_tangent * large)
    fit = int(((memory - results) / OVERHEAD - fixed) // per_tangent)
    if fit < 1:
        enough = int((fixed + per_tangent) * OVERHEAD) + results
        raise MemoryBudgetError(
            "Even one tangent at a time does not fit into the memory budget.",
            asked=f"memory of {memory / 2**20:.0f} MiB",
            found=f"{enough / 2**20:.0f} MiB needed beyond the model for {seeds.sources} tokens",
            allowed=f"memory={enough / 2**20 * 1.1:.0f}MiB or more",
            do="raise memory, shorten the text, or ask for fewer layers",
        )
    best = max(1, TOKEN_TANGENTS // seeds.sources)
    chunk = min(fit, best, seeds.total)
    chunks = -(-seeds.total // chunk)
    flops = one.flops + max(0.0, two.flops - one.flops) / steps * seeds.total
    slope = max((two.seconds - one.seconds) / steps, two.seconds / large / 8)
    return Plan(
        engine="straight",
        tangents=seeds.total,
        chunk=chunk,
        chunks=chunks,
        bytes=int((fixed + per_tangent * chunk) * OVERHEAD) + results,
        seconds=slope * seeds.total + max(0.0, one.seconds - slope * small) * chunks,
        flops=flops,
        reason="all tangents at once"
        if chunk == seeds.total
        else "as the memory budget allows"
        if fit < best
        else "the size that runs fastest",
    )
