"""One contestant in a process of its own: seconds and peak memory of the whole Jacobian of all heads, as one line of JSON.

    python -m benchmarks.contestant NAME TOKENS FRACTION

Reverse mode is linear in the number of output components, so rivals may run on an evenly spread FRACTION of them; seconds are
scaled up, and the table says so.
"""

import json
import resource
import sys
import threading
import time
from pathlib import Path

import torch
from glocal.jacobian.energy import make_energy
from torch import Tensor

from glocal.jacobian.plan import plan_straight
from glocal.jacobian.seeds import make_seeds
from glocal.jacobian.straight import straight
from glocal.models.instrument import instrumented
from glocal.models.load import load, quiet
from glocal.models.observe import observe
from glocal.models.outputs import Origin, outputs_function

WORDS = ["The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired", "of", "walking", "around", "the", "old", "town"]


def gemm_rate() -> float:
    """GFLOP/s of a large float32 product, best of several: the floor that everything is measured against."""
    a, b = torch.randn(4096, 1024), torch.randn(1024, 4096)
    best = min(timed(lambda: a @ b) for _ in range(8))
    return 2 * 4096 * 1024 * 4096 / best / 1e9


def timed(function) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def now_bytes() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Peak:
    """Largest resident size while running, sampled every two milliseconds."""

    def __enter__(self) -> "Peak":
        self.base, self.top, self.running = now_bytes(), now_bytes(), True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.running:
            self.top = max(self.top, now_bytes())
            time.sleep(0.002)

    def __exit__(self, *_: object) -> None:
        self.running = False
        self.thread.join()

    @property
    def bytes(self) -> int:
        """Bytes beyond what the process held before."""
        return self.top - self.base


def planned(function, x: Tensor):
    """The plan of the product, and what it is for."""
    energies = [make_energy("frobenius", targets=torch.arange(len(x)), heads=None)] * 6
    seeds = make_seeds(x, probes=None, seed=0, times_input=False)
    return plan_straight(function, x, seeds, energies, memory=4 << 30, results=0), seeds, energies


def glocal_norms(function, x: Tensor, _rows: Tensor) -> list[Tensor]:
    """The product: planned chunks of forward mode."""
    plan, seeds, energies = planned(function, x)
    return [value.sqrt() for value in straight(function, x, seeds, energies, chunk=plan.chunk).value]


def by_jacrev(chunk: int | None):
    """torch.func.jacrev of the chosen output components."""

    def run(function, x: Tensor, rows: Tensor) -> list[Tensor]:
        jacobian = torch.func.jacrev(lambda point: flat(function(point))[rows], chunk_size=chunk)(x)
        return blocks(jacobian, x, rows)

    return run


def by_jacfwd(function, x: Tensor, rows: Tensor) -> list[Tensor]:
    """torch.func.jacfwd, which has no chunks."""
    with torch.no_grad():
        jacobian = torch.func.jacfwd(lambda point: flat(function(point))[rows])(x)
    return blocks(jacobian, x, rows)


def by_batched_grad(function, x: Tensor, rows: Tensor) -> list[Tensor]:
    """autograd.grad with is_grads_batched, 512 output components at a time."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        output = flat(function(x))[rows]
        parts = []
        for start in range(0, len(rows), 512):
            seeds = torch.zeros(min(512, len(rows) - start), len(rows))
            seeds[torch.arange(len(seeds)), start + torch.arange(len(seeds))] = 1
            parts.append(torch.autograd.grad(output, x, seeds, is_grads_batched=True, retain_graph=True)[0])
    return blocks(torch.cat(parts), x, rows)


def flat(outputs: tuple[Tensor, ...]) -> Tensor:
    """All head outputs in one vector."""
    return torch.cat([output.reshape(-1) for output in outputs])


def blocks(jacobian: Tensor, x: Tensor, rows: Tensor) -> list[Tensor]:
    """Squared row norms by source: what every rival must still reduce."""
    return [jacobian.reshape(len(rows), *x.shape).square().sum(-1)]


CONTESTANTS = {
    "glocal": glocal_norms,
    "jacrev": by_jacrev(None),
    "jacrev, chunks of 512": by_jacrev(512),
    "jacfwd": by_jacfwd,
    "batched autograd.grad": by_batched_grad,
}


def main(name: str, tokens: int, fraction: float) -> None:
    """Run one contestant once, after a small warm-up, and print the result."""
    quiet()
    model, tokenizer, _ = load("minilm")
    ids = tokenizer(" ".join(WORDS[: tokens - 2]), return_tensors="pt")
    assert ids["input_ids"].shape[1] == tokens
    with instrumented(model):
        seen = observe(model, dict(ids))
        x = Origin().point(seen)
        function = outputs_function(model, seen, origin=Origin(), of="head", layers=range(1, 7))
        components = seen.layers * seen.heads * tokens * seen.head[0].shape[-1]
        step = max(1, round(1 / fraction))
        rows = torch.arange(0, components, step)
        CONTESTANTS["jacrev, chunks of 512" if "jacrev" in name else name](function, x, rows[:8])
        with Peak() as peak:
            seconds = timed(lambda: CONTESTANTS[name](function, x, rows))
    scale = 1 if name in ("glocal", "jacfwd") else components / len(rows)
    flops = 0.0
    if name == "glocal":
        with instrumented(model):
            flops = planned(function, x)[0].flops
    print(json.dumps({"seconds": seconds * scale, "bytes": peak.bytes, "flops": flops, "gemm": gemm_rate(), "sampled": scale > 1}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
