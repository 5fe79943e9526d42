"""One contestant in a process of its own: seconds and peak memory of the whole Jacobian of all heads, as one line of JSON.

    python -m benchmarks.contestant NAME MODEL TOKENS FRACTION

Everybody is linear in the number of directions (or output components), so that an evenly spread FRACTION of them may be run; seconds are
scaled up, fixed costs (plan, maps of the layers) are not, and the table says so.
"""

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from glocal.jacobian.rates import products
from glocal.jacobian.seeds import make_seeds
from glocal.jacobian.squares import Accumulator
from glocal.jacobian.straight import straight
from glocal.methods._engines import Engines
from glocal.models.instrument import instrumented
from glocal.models.load import load, quiet
from glocal.models.observe import observe
from glocal.models.outputs import Origin, outputs_function
from glocal.progress import tracker
from glocal.request import Request, Work

WORDS = ["The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired", "of", "walking", "around", "the", "old", "town",
         "all", "day", "long", "and", "then", "it", "slept", "until", "the", "sun", "came", "up", "again", "over", "it"]  # fmt: skip


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
    """Largest resident size while running, sampled every ten milliseconds."""

    def __enter__(self) -> "Peak":
        self.base, self.top, self.running = now_bytes(), now_bytes(), True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.running:
            self.top = max(self.top, now_bytes())
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self.running = False
        self.thread.join()

    @property
    def bytes(self) -> int:
        """Bytes beyond what the process held before."""
        return self.top - self.base


Function = Callable[[Tensor], tuple[Tensor, ...]]


def by_glocal(work: Work, fraction: float) -> dict:
    """The product: plan, then all chunks or an evenly spread part of them."""
    request = work.request
    reduced = request.reduced
    begun = time.perf_counter()
    with products(reduced, torch.device("cpu")):
        engines = Engines(work)
        plan = engines.plan()
        if fraction == 1:
            engines.run(plan)
            return {"seconds": time.perf_counter() - begun, "flops": plan.flops, "planned": plan.seconds}
        seeds = make_seeds(engines.x, probes=plan.probes or None, seed=0, times_input=False)
        push = engines.carrier(plan).push(seeds, engines.x) if plan.engine == "collapsed" else straight(engines.function, engines.x, seeds)
        fixed = time.perf_counter() - begun
        total = Accumulator(engines.features, len(engines.x), engines.x.shape[1])
        chunks = seeds.chunks(plan.chunk)
        some = chunks[:: max(1, round(1 / fraction))]
        with torch.no_grad():
            for start, stop in some:
                for layer, (first, tangents) in enumerate(push(start, stop)):
                    total.add(layer, first, tangents, seeds, start, stop)
    carried = time.perf_counter() - begun - fixed
    return {"seconds": fixed + carried * len(chunks) / len(some), "flops": plan.flops, "planned": plan.seconds}


def by_rival(run: Callable[[Function, Tensor, Tensor], None], work: Work, fraction: float) -> dict:
    """One of torch's own ways, on an evenly spread part of the output components."""
    seen = work.seen
    x = Origin().point(seen)
    function = outputs_function(work.model, seen, origin=Origin(), of="head", layers=range(1, seen.layers + 1))
    components = seen.layers * seen.head[0].numel()
    rows = torch.arange(0, components, max(1, round(1 / fraction)))
    run(function, x, rows[:8])
    begun = time.perf_counter()
    run(function, x, rows)
    return {"seconds": (time.perf_counter() - begun) * components / len(rows), "flops": 0.0, "planned": 0.0}


def by_jacrev(chunk: int | None):
    """torch.func.jacrev of the chosen output components."""

    def run(function: Function, x: Tensor, rows: Tensor) -> list[Tensor]:
        jacobian = torch.func.jacrev(lambda point: flat(function(point))[rows], chunk_size=chunk)(x)
        return blocks(jacobian, x, rows)

    return run


def by_jacfwd(function: Function, x: Tensor, rows: Tensor) -> list[Tensor]:
    """torch.func.jacfwd, which has no chunks."""
    with torch.no_grad():
        jacobian = torch.func.jacfwd(lambda point: flat(function(point))[rows])(x)
    return blocks(jacobian, x, rows)


def by_batched_grad(function: Function, x: Tensor, rows: Tensor) -> list[Tensor]:
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


def by_loop(function: Function, x: Tensor, rows: Tensor) -> list[Tensor]:
    """One output component after the other, as people write it."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        output = flat(function(x))
        parts = [torch.autograd.grad(output[row], x, retain_graph=True)[0] for row in rows]
    return blocks(torch.stack(parts), x, rows)


def flat(outputs: tuple[Tensor, ...]) -> Tensor:
    """All head outputs in one vector."""
    return torch.cat([output.reshape(-1) for output in outputs])


def blocks(jacobian: Tensor, x: Tensor, rows: Tensor) -> list[Tensor]:
    """Squared row norms by source: what every rival must still reduce."""
    return [jacobian.reshape(len(rows), *x.shape).square().sum(-1)]


def glocal_with(**options: object) -> tuple[Callable[[Work, float], dict], dict]:
    """The product with these settings."""
    return by_glocal, {"time": None, **options}


CONTESTANTS: dict[str, tuple[Callable[[Work, float], dict], dict]] = {
    "glocal": glocal_with(),
    "glocal, straight": glocal_with(engine="straight"),
    "glocal, collapsed": glocal_with(engine="collapsed"),
    "glocal, collapsed, reduced products": glocal_with(engine="collapsed", precision="reduced_products"),
    "glocal, collapsed, bfloat16": glocal_with(engine="collapsed", precision="bfloat16"),
    "glocal, straight, reduced products": glocal_with(engine="straight", precision="reduced_products"),
    "glocal, sketch of 16": glocal_with(probes=16),
    "jacrev": (partial(by_rival, by_jacrev(None)), {}),
    "jacrev, chunks of 512": (partial(by_rival, by_jacrev(512)), {}),
    "jacfwd": (partial(by_rival, by_jacfwd), {}),
    "batched autograd.grad": (partial(by_rival, by_batched_grad), {}),
    "one neuron at a time": (partial(by_rival, by_loop), {}),
}


def network(name: str, tokens: int) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    """MiniLM on a sentence (minilm) or on random ids (ids), or BERT of base size with random weights on random ids (base)."""
    if name == "minilm":
        model, tokenizer, _ = load("minilm")
        inputs = dict(tokenizer(" ".join(WORDS[: tokens - 2]), return_tensors="pt"))
    elif name == "ids":
        model, _, _ = load("minilm")
        inputs = random_ids(tokens)
    else:
        torch.manual_seed(0)
        model = BertModel(BertConfig()).eval()
        inputs = random_ids(tokens)
    assert inputs["input_ids"].shape[1] == tokens, inputs["input_ids"].shape
    return model, inputs


def random_ids(tokens: int) -> dict[str, Tensor]:
    """Ids of ordinary tokens."""
    torch.manual_seed(0)
    return {"input_ids": torch.randint(1000, 20000, (1, tokens)), "attention_mask": torch.ones(1, tokens, dtype=torch.long)}


def warm_up(model: torch.nn.Module, options: dict, layers: tuple[int, ...] | None) -> None:
    """The same engine on three tokens, as the rivals get: torch compiles its forward-mode rules on first use."""
    seen = observe(model, random_ids(3))
    request = Request(**{**options, "probes": 2}, layers=layers).resolved(seen)
    by_glocal(Work(model, seen, request, partial(tracker, False), {}), 1)


def main(name: str, which: str, tokens: int, fraction: float, layers: int = 0) -> None:
    """Run one contestant once and print the result."""
    quiet()
    run, options = CONTESTANTS[name]
    model, inputs = network(which, tokens)
    with instrumented(model):
        seen = observe(model, inputs)
        wanted = tuple(range(1, layers + 1)) if layers else None
        request = Request(memory=8 << 30, layers=wanted, **options).resolved(seen)
        work = Work(model, seen, request, partial(tracker, False), {})
        if run is by_glocal:
            warm_up(model, options, wanted)
        with Peak() as peak:
            result = run(work, fraction)
    print(json.dumps(result | {"bytes": peak.bytes, "gemm": gemm_rate(), "sampled": fraction < 1}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]) if len(sys.argv) > 5 else 0)
