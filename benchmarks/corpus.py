"""A corpus: a study against a plain loop over `analyze`, one worker against two, and memory against the number of texts.

    python -m benchmarks.corpus [--texts 128] [--rounds 2]

Needs the STS-B sentences of studies/requirements.txt. Contestants run in turn, each in a fresh process with one thread for each worker.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time

import glocal
from glocal.models.load import load, quiet
from studies.real import sentences

PROBES = 8
# Peak memory is a matter of the largest block of 32 texts: both corpora consist of the same six blocks, once and ten times.
SHORT, SMALL, LARGE = 8, 192, 1920


def by_loop(count: int) -> None:
    """What one would write: each text analysed and described, the numbers kept."""
    model, tokenizer, _ = load("minilm")
    kept = []
    for text in sentences()[:count]:
        story = glocal.analyze(text, model, tokenizer, measures=("jsd", "spearman"), probes=PROBES, progress=False)
        kept.append((glocal.describe(story), story[["discrepancy_jsd", "discrepancy_spearman"]].mean("target")))


def by_study(count: int, workers: int) -> None:
    """The product, with everything it computes by default."""
    with tempfile.TemporaryDirectory() as folder:
        glocal.study(sentences()[:count], out=folder, probes=PROBES, workers=workers, progress=False)


def many(count: int) -> None:
    """A study of `count` short texts, the same ones over and over, with the cheapest sketch."""
    some = [text for text in sentences() if len(text.split()) <= SHORT][:SMALL]
    with tempfile.TemporaryDirectory() as folder:
        glocal.study((some * (count // len(some) + 1))[:count], out=folder, probes=2, progress=False)


CONTESTANTS = {
    "loop": by_loop,
    "study, 1 worker": lambda count: by_study(count, 1),
    "study, 2 workers": lambda count: by_study(count, 2),
    "memory": many,
}


def contestant(name: str, count: int) -> dict[str, float]:
    """Seconds, startup included, and peak resident bytes of one contestant in a process of its own."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.corpus", "--contestant", name, "--texts", str(count)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1]) | {"seconds": time.perf_counter() - begun}


def throughput(count: int, rounds: int) -> None:
    """Print one table."""
    names = ("loop", "study, 1 worker", "study, 2 workers")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            seconds[name].append(contestant(name, count)["seconds"])
    print(f"\n### {count} sentences of STS-B, {PROBES} probes, one thread for each worker, startup included\n")
    print("| way | seconds | spread | texts per second | times the loop | times 1 worker |\n|---|---|---|---|---|---|")
    for name in names:
        best, loop, one = (min(seconds[each]) for each in (name, "loop", "study, 1 worker"))
        spread = max(seconds[name]) / best
        print(f"| {name} | {best:.1f} | {spread:.2f} | {count / best:.2f} | {loop / best:.2f} | {one / best:.2f} |", flush=True)


def memory() -> None:
    """Print one table."""
    print("\n### Memory: short sentences, 2 probes, one worker\n\n| texts | seconds | peak MB | times the first |\n|---|---|---|---|")
    first = 0.0
    for count in (SMALL, LARGE):
        found = contestant("memory", count)
        first = first or found["bytes"]
        print(f"| {count:,} | {found['seconds']:.0f} | {found['bytes'] / 1e6:,.0f} | {found['bytes'] / first:.3f} |", flush=True)


def main() -> None:
    """All tables, or one contestant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=("throughput", "memory"))
    parser.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    quiet()
    if parsed.contestant:
        import torch

        torch.set_num_threads(1)
        CONTESTANTS[parsed.contestant](parsed.texts)
        print(json.dumps({"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
        return
    if parsed.only != "memory":
        throughput(parsed.texts, parsed.rounds)
    if parsed.only != "throughput":
        memory()


if __name__ == "__main__":
    main()
