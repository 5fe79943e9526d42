"""A text of 512 tokens, MiniLM: sketches by token and by sentence within a budget of 8 GiB.

python -m benchmarks.long [--probes 4]
"""

import argparse
import time

import glocal
from benchmarks.contestant import Peak
from glocal.models.load import load, quiet

TEXT = "The cat sat on the mat because it was tired. Nobody saw it there, and so it slept until noon. " * 30
WAYS = {
    "tokens": {},
    "tokens, bfloat16": {"precision": "bfloat16"},
    "sentences": {"groups": "sentence"},
}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=4)
    probes = parser.parse_args().probes
    quiet()
    model, tokenizer, _ = load("minilm")
    glocal.analyze("A cat.", model, tokenizer, probes=2)
    columns = ("sources", "number", "engine", "seconds", "planned", "peak MB", "planned MB", "estimated total variation of a row")
    print(f"\n### 512 tokens, {probes} probes\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name, options in WAYS.items():
        begun = time.perf_counter()
        with Peak() as peak:
            story = glocal.analyze(TEXT, model, tokenizer, probes=probes, measures=(), truncation=True, memory="8GiB", **options)
        seconds, plan = time.perf_counter() - begun, story.attrs["plan"]
        error = story.attrs["error_estimate"]["mean_total_variation_of_a_row"]
        assert story.sizes["target"] == 512
        print(f"| {name} | {story.sizes['source']} | {plan['engine']} | {seconds:.0f} | {plan['seconds']:.0f} |", end=" ")
        print(f"{peak.bytes / 1e6:,.0f} | {plan['bytes'] / 1e6:,.0f} | {error:.3f} |", flush=True)


if __name__ == "__main__":
    main()
