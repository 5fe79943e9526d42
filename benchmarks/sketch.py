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
    print("\n### The reverse engine: three heads of two layers at three targets, 12 and 13 tokens\n")
    print("| k | total variation of a row | estimated | norms within 1.96 s.e. | shares within |\n|---|---|---|---|---|")
    few: dict = {"engine": "reverse", "methods": ("attribution",), "measures": (), "targets": [0, 3, 7], "layers": [2, 6]}
    few["heads"] = [1, 5, 9]
    exacts = {text: glocal.analyze(text, model, tokenizer, **few) for text in TEXTS}
    for probes in (2, 4, 8, 16):
        pairs = [
            (exacts[text], glocal.analyze(text, model, tokenizer, probes=probes, seed=seed, **few)) for text in TEXTS for seed in range(8)
        ]
        print(f"| {probes} | {' | '.join(accuracy(pairs))} |", flush=True)


def accuracy(pairs: list) -> tuple[str, ...]:
    """Total variation of a row, what the Stories say of it, and how often intervals hold, of (exact, sketch) pairs."""
    mean = lambda values: float(np.mean([float(value) for value in values]))  # noqa: E731
    variation = mean(abs(story.attribution - exact.attribution).sum("source").mean() / 2 for exact, story in pairs)
    estimated = mean(story.attrs["error_estimate"]["mean_total_variation_of_a_row"] for _, story in pairs)
    norms = mean(
        (abs(story.attribution_norm - exact.attribution_norm) <= 1.96 * story.attribution_norm_se).mean() for exact, story in pairs
    )
    shares = mean((abs(story.attribution - exact.attribution) <= 1.96 * story.attribution_se).mean() for exact, story in pairs)
    return f"{variation:.4f}", f"{estimated:.4f}", f"{norms:.3f}", f"{shares:.3f}"


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
