"""Exact attribution of all heads: glocal's engines against torch's own ways, side by side in one run.

    python -m benchmarks.exact [--rounds 2] [--cases minilm:9 minilm:22 base:16]

Contestants take turns, each in a fresh process; ratios are of minima, beside them the spread (largest / smallest) of each contestant.
"""

import argparse
import json
import subprocess
import sys

# What every contestant runs of its directions or components in each case; the rest is extrapolated. Left out: too long or too large.
CASES: dict[str, dict[str, float]] = {
    "minilm:4": {
        "glocal": 1, "glocal, straight": 1, "glocal, collapsed": 1, "jacrev": 1, "jacrev, chunks of 512": 1, "jacfwd": 1,
        "batched autograd.grad": 1, "one neuron at a time": 0.02,
    },
    "minilm:9": {
        "glocal, straight": 1, "glocal, collapsed": 1, "glocal, collapsed, reduced products": 1, "glocal, collapsed, bfloat16": 1,
        "glocal, sketch of 16": 1, "jacrev": 0.125, "jacrev, chunks of 512": 0.125, "batched autograd.grad": 0.125,
        "one neuron at a time": 0.01,
    },
    "minilm:16": {
        "glocal, straight": 1, "glocal, collapsed": 1, "glocal, collapsed, reduced products": 1, "glocal, collapsed, bfloat16": 1,
        "glocal, sketch of 16": 1, "jacrev, chunks of 512": 0.0625, "batched autograd.grad": 0.0625, "one neuron at a time": 0.005,
    },
    "minilm:22": {
        "glocal, straight": 0.5, "glocal, collapsed": 1, "glocal, collapsed, reduced products": 1, "glocal, collapsed, bfloat16": 1,
        "glocal, sketch of 16": 1, "batched autograd.grad": 0.03, "one neuron at a time": 0.003,
    },
    "minilm:32": {
        "glocal, straight": 0.25, "glocal, collapsed": 1, "glocal, collapsed, bfloat16": 1, "glocal, sketch of 16": 1,
        "batched autograd.grad": 0.02, "one neuron at a time": 0.002,
    },
    "base:16": {
        "glocal, straight": 0.1, "glocal, collapsed": 0.5, "glocal, collapsed, reduced products": 0.5, "glocal, collapsed, bfloat16": 0.5,
        "glocal, sketch of 16": 1, "batched autograd.grad": 0.005, "one neuron at a time": 0.0005,
    },
}  # fmt: skip


def run(name: str, case: str, fraction: float, layers: int = 0) -> dict:
    """One contestant in a process of its own."""
    model, tokens = case.split(":")
    command = [sys.executable, "-m", "benchmarks.contestant", name, model, tokens, str(fraction), str(layers)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    """Print one table per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES, metavar="MODEL:TOKENS")
    parsed = parser.parse_args()
    for case in parsed.cases:
        results: dict[str, list[dict]] = {name: [] for name in CASES[case]}
        for _ in range(parsed.rounds):
            for name, fraction in CASES[case].items():
                results[name].append(run(name, case, fraction))
        table(case, results)


def table(case: str, results: dict[str, list[dict]]) -> None:
    """Minima, spread, memory, ratios, and the share of the rate of a large product, as Markdown."""
    best = {name: min(run["seconds"] for run in runs) for name, runs in results.items()}
    memory = {name: max(run["bytes"] for run in runs) for name, runs in results.items()}
    straight = best["glocal, straight"]
    gemm = max(run["gemm"] for runs in results.values() for run in runs)
    print(f"\n### {case.replace(':', ', ')} tokens (large product: {gemm:.0f} GFLOP/s)\n")
    columns = ("contestant", "seconds", "spread", "planned", "times straight", "peak MB", "GFLOP", "share of the rate")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name, runs in results.items():
        seconds = [run["seconds"] for run in runs]
        marked = f"{name} (extrapolated)" if runs[0]["sampled"] else name
        flops = runs[0]["flops"]
        share = max(run["flops"] / run["seconds"] / 1e9 / run["gemm"] for run in runs)
        ours = (f"{min(run['planned'] for run in runs):.1f}", f"{flops / 1e9:,.0f}", f"{share:.2f}") if flops else ("", "", "")
        ratio = straight / best[name]
        print(f"| {marked} | {best[name]:.2f} | {max(seconds) / min(seconds):.1f} | {ours[0]} |", end=" ")
        print(f"{ratio:.2f} | {memory[name] / 1e6:,.0f} | {ours[1]} | {ours[2]} |", flush=True)


if __name__ == "__main__":
    main()
