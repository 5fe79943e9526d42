"""Every method against the plain loop that its formula or its authors' code has, side by side in one run.

    python -m benchmarks.methods [--rounds 3] [--cases minilm:32 base:16] [--only METHOD ...]

Ours and the loop take turns in one process; ratios are of minima, with the spread (largest / smallest) beside them. That both give the same
numbers is checked and printed, as the largest difference relative to the largest value.
"""

import argparse
import copy
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

import glocal
from benchmarks.contestant import WORDS
from benchmarks.loops import STEPS, Case, Loop, loops
from glocal import registry
from glocal.models.encode import encode
from glocal.models.explaining import explained_of
from glocal.models.instrument import instrumented
from glocal.models.load import bundled, load, quiet
from glocal.models.observe import body, observe
from glocal.progress import tracker
from glocal.request import Request, Work

CASES = ("minilm:32", "base:16")
REFERENCES = [" ".join(WORDS[first : first + 12]) for first in range(0, 20, 4)]
OPTIONS: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": STEPS}, "contrast_cat": {"references": REFERENCES}}


class Ours(NamedTuple):
    """A model with a head of two classes, its tokenizer and a text."""

    model: Any
    tokenizer: Any
    text: str

    def whole(self, name: str) -> Tensor:
        """A Story, as users get it."""
        story = glocal.analyze(
            self.text, self.model, self.tokenizer, methods={name: OPTIONS.get(name, {})}, measures=(), explain="predicted_class",
            progress=False,
        )  # fmt: skip
        return torch.from_numpy(story[name].values)

    def alone(self, name: str) -> Tensor:
        """The pass and the method, without names and checks around."""
        network = body(self.model)
        tokens = encode(self.text, network, self.tokenizer)
        with instrumented(self.model):
            seen = observe(network, tokens.inputs)
            explained = None
            if dict(registry.cards("methods")[name].extra).get("to") == "output":
                explained = explained_of("predicted_class", self.model, network, self.tokenizer, tokens)
            special = tuple(word < 0 for word in tokens.word)
            work = Work(network, seen, Request().resolved(seen), partial(tracker, False), {}, explained, special)
            return registry.get("methods", name)(work, **OPTIONS.get(name, {})).variables[name]


def prepared(case: str) -> tuple[Ours, Case]:
    """MiniLM, or BERT of base size with random weights, under a random head of two classes."""
    name, tokens = case.split(":")
    _, tokenizer, _ = load("minilm")
    torch.manual_seed(0)
    if name == "minilm":
        model = AutoModelForSequenceClassification.from_pretrained(bundled("minilm"), attn_implementation="eager").eval()
    else:
        model = BertForSequenceClassification(BertConfig(attn_implementation="eager")).eval()
    text = " ".join(WORDS[: int(tokens) - 2])
    inputs = tokenizer(text, return_tensors="pt")
    assert inputs["input_ids"].shape[1] == int(tokens), inputs["input_ids"].shape
    references = [dict(tokenizer(each, return_tensors="pt")) for each in REFERENCES]
    return Ours(model, tokenizer, text), Case(copy.deepcopy(model), dict(inputs), references)


def timed(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Seconds and result."""
    begun = time.perf_counter()
    made = run()
    return time.perf_counter() - begun, made


def measured(ours: Ours, case: Case, name: str, loop: Loop, rounds: int) -> list[str]:
    """One row of the table."""
    runs: Mapping[str, Callable[[], Tensor]] = {
        "whole": partial(ours.whole, name), "alone": partial(ours.alone, name), "loop": partial(loop.run, case),
    }  # fmt: skip
    runs["whole"]()
    seconds: dict[str, list[float]] = {each: [] for each in runs}
    made: dict[str, Tensor] = {}
    for _ in range(rounds):
        for each, run in runs.items():
            spent, made[each] = timed(run)
            seconds[each].append(spent / loop.fraction if each == "loop" else spent)
    best = {each: min(some) for each, some in seconds.items()}
    spread = " / ".join(f"{max(some) / min(some):.1f}" for some in seconds.values())
    over = loop.over if loop.fraction == 1 else f"{loop.over} (extrapolated)"
    gap = difference(name, made)
    numbers = [f"{1000 * best[each]:,.0f}" for each in runs]
    return [name, over, *numbers, spread, f"{best['loop'] / best['whole']:,.1f}", f"{best['loop'] / best['alone']:,.1f}", f"{gap:.0e}"]


def difference(name: str, made: Mapping[str, Tensor]) -> float:
    """Largest difference between ours and the loop's, relative to the largest value; of what the loop has computed."""
    mine, other = made["alone"].double(), made["loop"].double()
    known = other.isfinite() & mine.isfinite()
    if name == "flow":
        # A part of a row has no sum to divide by: flows are compared up to each row's factor.
        factor = (other / mine).where(known, torch.nan).nanmedian(-1, keepdim=True).values
        mine = mine * factor
        known &= factor.isfinite()
    return float((mine - other)[known].abs().max() / other[known].abs().max())


def main() -> None:
    """Print one table per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES, metavar="MODEL:TOKENS")
    parser.add_argument("--only", nargs="+", choices=loops(1), metavar="METHOD")
    parsed = parser.parse_args()
    quiet()
    columns = ("method", "loop over", "glocal ms", "method alone ms", "loop ms", "spreads", "times the loop", "alone", "difference")
    for case in parsed.cases:
        ours, plain = prepared(case)
        print(f"\n### {case.replace(':', ', ')} tokens\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        for name, some in loops(int(case.split(":")[1])).items():
            for loop in some:
                if parsed.only is None or name in parsed.only:
                    print(f"| {' | '.join(measured(ours, plain, name, loop, parsed.rounds))} |", flush=True)


if __name__ == "__main__":
    main()
