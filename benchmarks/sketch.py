"""Accuracy and cost of the sketch against exact attribution, on the trained MiniLM.

python -m benchmarks.sketch
"""

import numpy as np

import glocal
from glocal.models.load import quiet

TEXT = "The cat sat on the mat because it was tired."


def main() -> None:
    """Print one table."""
    quiet()
    glocal.analyze("Warm up.", probes=2)
    exact = glocal.analyze(TEXT)
    print(f"{exact.sizes['source']} tokens; exact in {exact.attrs['seconds']:.1f} s\n")
    columns = ("k", "seconds", "x faster", "median error of a norm", "99th percentile", "mean total variation of a row")
    print(" | ".join(("", *columns, "estimated", "within 1.96 s.e.", "")).strip())
    print("|---" * 8 + "|")
    for probes in (4, 16, 64):
        story = glocal.analyze(TEXT, probes=probes)
        error = abs(story.attribution_norm - exact.attribution_norm)
        relative = (error / exact.attribution_norm).values
        variation = (abs(story.attribution - exact.attribution).sum("source") / 2).mean().item()
        inside = (error <= 1.96 * story.attribution_norm_se).mean().item()
        estimate = story.attrs["error_estimate"]["mean_total_variation_of_a_row"]
        seconds, faster = story.attrs["seconds"], exact.attrs["seconds"] / story.attrs["seconds"]
        print(f"| {probes} | {seconds:.2f} | {faster:.1f} | {np.median(relative):.3f} | {np.quantile(relative, 0.99):.2f}", end=" ")
        print(f"| {variation:.3f} | {estimate:.3f} | {inside:.3f} |")


if __name__ == "__main__":
    main()
