"""Accuracy and cost of the sketch against exact attribution, on the trained MiniLM.

python -m benchmarks.sketch
"""

import numpy as np

import glocal
from glocal.models.load import load, quiet

TEXTS = ("The cat sat on the mat because it was tired.", "Stock prices fell sharply in early trading on Monday.")
SEEDS = range(4)


def main() -> None:
    """Print one table per text; every row is a mean over seeds, seconds are the smallest."""
    quiet()
    model, tokenizer, _ = load("minilm")
    glocal.analyze("Warm up.", model, tokenizer, probes=2)
    for text in TEXTS:
        exact = glocal.analyze(text, model, tokenizer, time=None)
        print(f"\n### {exact.sizes['source']} tokens; exact in {exact.attrs['seconds']:.1f} s\n")
        columns = ("k", "seconds", "times exact", "median error of a norm", "99th percentile", "total variation of a row", "estimated",
                   "norms within 1.96 s.e.", "shares within", "JSD moved by", "estimated")  # fmt: skip
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        for probes in (2, 4, 8, 16, 64):
            row(exact, [glocal.analyze(text, model, tokenizer, probes=probes, seed=seed) for seed in SEEDS], probes)


def row(exact, stories: list, probes: int) -> None:
    """One line of the table."""
    seconds = min(story.attrs["seconds"] for story in stories)
    errors = [abs(story.attribution_norm - exact.attribution_norm) for story in stories]
    of_shares = [abs(story.attribution - exact.attribution) for story in stories]
    relative = np.concatenate([(error / exact.attribution_norm).values.ravel() for error in errors])
    mean = lambda values: float(np.mean([float(value) for value in values]))  # noqa: E731
    variation = mean(error.sum("source").mean() / 2 for error in of_shares)
    estimated = mean(story.attrs["error_estimate"]["mean_total_variation_of_a_row"] for story in stories)
    inside = mean((error <= 1.96 * story.attribution_norm_se).mean() for error, story in zip(errors, stories, strict=True))
    within = mean((error <= 1.96 * story.attribution_se).mean() for error, story in zip(of_shares, stories, strict=True))
    moved = mean((story.discrepancy_jsd - exact.discrepancy_jsd).mean() for story in stories)
    expected = mean(story.attrs["error_estimate"]["mean_bias_jsd"] for story in stories)
    print(f"| {probes} | {seconds:.2f} | {exact.attrs['seconds'] / seconds:.1f} | {np.median(relative):.3f}", end=" | ")
    print(f"{np.quantile(relative, 0.99):.2f} | {variation:.4f} | {estimated:.4f} | {inside:.3f} | {within:.3f}", end=" | ")
    print(f"{moved:+.4f} | {expected:+.4f} |", flush=True)


if __name__ == "__main__":
    main()
