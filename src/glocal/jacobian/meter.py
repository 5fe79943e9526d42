"""What one pass and one tangent cost: bytes alive, floating-point operations, bytes moved, and the fixed time of a push."""

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from glocal.jacobian.rates import synchronise


class _Meter(TorchDispatchMode):
    """Bytes of tensors made inside this context: at once at the peak, and in all."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = 0
        self.peak = 0
        self.made = 0
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
        self.made += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.alive -= size


@dataclass(frozen=True)
class Cost:
    """Of one run: peak bytes, bytes of all tensors made, floating-point operations, seconds without the meter."""

    bytes: float
    made: float
    flops: float
    seconds: float

    def scaled(self, factor: float) -> "Cost":
        """The same for fewer tokens; the fixed time stays."""
        return Cost(self.bytes * factor, self.made * factor, self.flops * factor, self.seconds)


def cost_of(run: Callable[[], object], device: torch.device) -> Cost:
    """Run once metered, then twice on the clock: the first of a process is slower than any after it."""
    with FlopCounterMode(display=False) as flops, _Meter() as meter:
        run()
    return Cost(meter.peak, meter.made, float(flops.get_total_flops()), min(_seconds(run, device) for _ in range(2)))


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    run()
    synchronise(device)
    return time.perf_counter() - start
