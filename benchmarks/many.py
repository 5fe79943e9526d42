"""Many short texts with a sketch: one call with a list, against a loop over single calls.

python -m benchmarks.many [--rounds 3]
"""

import argparse
import time

import glocal
from benchmarks.contestant import WORDS
from glocal.models.load import load, quiet

PROBES = 8


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    quiet()
    model, tokenizer, _ = load("minilm")
    texts = [" ".join(WORDS[start : start + size]) for size in (4, 6, 8, 10) for start in range(15)]
    ways = {
        "a list": lambda: glocal.analyze(texts, model, tokenizer, probes=PROBES),
        "a loop": lambda: [glocal.analyze(text, model, tokenizer, probes=PROBES) for text in texts],
    }
    ways["a list"]()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            begun = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begun)
    print(f"\n### {len(texts)} texts of 6 to 12 tokens, {PROBES} probes\n")
    print("| way | texts per second | spread | times the loop |\n|---|---|---|---|")
    for name, all_seconds in seconds.items():
        best = min(all_seconds)
        print(f"| {name} | {len(texts) / best:.2f} | {max(all_seconds) / best:.1f} | {min(seconds['a loop']) / best:.2f} |")


if __name__ == "__main__":
    main()
