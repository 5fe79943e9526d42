"""Exact attribution of all heads of MiniLM: glocal against torch's own ways, side by side in one run.

    python -m benchmarks.exact [--rounds 3] [--tokens 4 9 16]

jacfwd has no chunks: its memory grows with the square of the number of tokens (--skip jacfwd:16 where that is too much).

Contestants take turns, each in a fresh process; ratios are of minima, beside them the spread (largest / smallest) of each contestant.
"""

import argparse
import json
import subprocess
import sys

from benchmarks.contestant import CONTESTANTS

# Share of output components that a reverse-mode contestant computes at 4, 9, 16 tokens; the rest is extrapolated.
FRACTIONS = {4: 1.0, 9: 0.125, 16: 0.0625}


def run(name: str, tokens: int) -> dict:
    """One contestant in a process of its own."""
    fraction = FRACTIONS.get(tokens, 0.0625)
    command = [sys.executable, "-m", "benchmarks.contestant", name, str(tokens), str(fraction)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    """Print one table per number of tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip", nargs="*", default=[], help="contestant:tokens that cannot fit")
    parser.add_argument("--tokens", type=int, nargs="+", default=[4, 9, 16])
    parsed = parser.parse_args()
    for tokens in parsed.tokens:
        results: dict[str, list[dict]] = {name: [] for name in CONTESTANTS if f"{name}:{tokens}" not in parsed.skip}
        for _ in range(parsed.rounds):
            for name in results:
                results[name].append(run(name, tokens))
        table(tokens, results)


def table(tokens: int, results: dict[str, list[dict]]) -> None:
    """Minima, spread, memory and ratios as Markdown."""
    best = {name: min(run["seconds"] for run in runs) for name, runs in results.items()}
    memory = {name: max(run["bytes"] for run in runs) for name, runs in results.items()}
    print(f"\n### {tokens} tokens\n\n| contestant | seconds (min) | spread | x glocal | peak MB | x glocal |\n|---|---|---|---|---|---|")
    for name, runs in results.items():
        seconds = [run["seconds"] for run in runs]
        marked = f"{name} (extrapolated)" if runs[0]["sampled"] else name
        ratios = f"{best[name] / best['glocal']:.1f}", f"{memory[name] / memory['glocal']:.1f}"
        spread = max(seconds) / min(seconds)
        print(f"| {marked} | {best[name]:.2f} | {spread:.1f} | {ratios[0]} | {memory[name] / 1e6:.0f} | {ratios[1]} |")
    flops = results["glocal"][0]["flops"]
    rates = [run["flops"] / run["seconds"] / 1e9 for run in results["glocal"]]
    gemm = max(run["gemm"] for runs in results.values() for run in runs)
    shares = [rate / run["gemm"] for rate, run in zip(rates, results["glocal"], strict=True)]
    print(f"\n{flops / 1e9:.0f} GFLOP; glocal {max(rates):.0f} GFLOP/s, large product {gemm:.0f} GFLOP/s", end="")
    print(f"; best share of the rate in the same process {max(shares):.2f}")


if __name__ == "__main__":
    main()
