"""Plans are made before the run, keep within the budget, and say what the other ways would cost."""

import subprocess
import sys

import pytest

from glocal.errors import MemoryBudgetError
from glocal.jacobian.layout import Layout
from glocal.jacobian.meter import Cost
from glocal.jacobian.plan import Budget, Measured, fastest, plan_collapsed, plan_reverse, plan_straight
from glocal.jacobian.rates import Rates

SOURCES, WIDTH = 4, 64
MIB = 1 << 20
RATES = Rates(products=1e11, memory=1e10)
MEASURED = Measured(
    primal=Cost(bytes=1 * MIB, made=4 * MIB, flops=1e6, seconds=0.01),
    small=Cost(bytes=9 * MIB, made=36 * MIB, flops=9e6, seconds=0.02),
    few=8,
    rates=RATES,
)


def layout(**changes):
    sizes = {"tokens": SOURCES, "width": WIDTH, "heads": 2, "kv_heads": 2, "head_width": 32, "value_width": 32, "item": 4, "made_item": 4,
             "output": True, "frozen": False, "first": False}  # fmt: skip
    return Layout(**sizes | changes)


def straight(memory=1 << 30, results=0, per_source=WIDTH):
    return plan_straight(MEASURED, Budget(memory, results, SOURCES), sources=SOURCES, per_source=per_source)


def collapsed(memory=1 << 30, results=0, per_source=WIDTH, causal=False):
    return plan_collapsed(
        MEASURED, [layout(first=True), layout(output=False)], Budget(memory, results, SOURCES), sources=SOURCES, per_source=per_source,
        causal=causal, carrying=RATES,
    )  # fmt: skip


def reverse(memory=1 << 30, results=0, pulls=(10, 20)):
    return plan_reverse(MEASURED, pulls, Budget(memory, results, SOURCES), layers=2)


every_plan = pytest.mark.parametrize("plan", [straight, collapsed, reverse])


@every_plan
def test_every_direction_is_pushed_once(plan):
    for memory in (56 * MIB, 64 * MIB, 1 << 30):
        made = plan(memory)
        assert (made.chunks - 1) * made.chunk < made.tangents <= made.chunks * made.chunk or plan is reverse


@every_plan
def test_the_estimate_keeps_within_the_budget_and_grows_with_it(plan):
    budgets = (56 * MIB, 64 * MIB, 1 << 30)
    plans = [plan(memory) for memory in budgets]
    for made, memory in zip(plans, budgets, strict=True):
        assert 0 < made.bytes <= memory
        assert made.seconds > 0
    assert plans[0].chunk <= plans[1].chunk <= plans[2].chunk
    assert plans[2].others == ()
    assert plans[2].reason in ("all directions at once", "the size that runs fastest")


@every_plan
def test_too_small_a_budget_says_what_would_do(plan):
    with pytest.raises(MemoryBudgetError, match=r"does not fit(.|\n)*needed(.|\n)*or more") as caught:
        plan(1000)
    enough = int(str(caught.value).split("memory=")[1].split("MiB")[0])
    assert plan((enough + 1) * MIB).chunk >= 1
    with pytest.raises(MemoryBudgetError):
        plan(64 * MIB, results=64 * MIB)


def test_operations_and_seconds_are_those_of_all_directions():
    made = straight()
    assert made.tangents == SOURCES * WIDTH
    assert made.flops == pytest.approx(1e6 * made.tangents + 1e6 * made.chunks)
    moved = 3 * 4 * MIB * made.tangents / RATES.memory
    assert made.seconds == pytest.approx(moved + 1e6 * made.tangents / (RATES.products * 0.85) + 0.02 * made.chunks)


def test_a_causal_model_carries_less():
    assert collapsed(causal=True).seconds < collapsed().seconds


def test_the_fastest_wins_and_names_the_others():
    best = fastest([straight(), collapsed(), reverse()])
    assert best.seconds == min(plan().seconds for plan in (straight, collapsed, reverse))
    assert len(best.others) == 2 and all(other["seconds"] >= best.seconds for other in best.others)


def test_the_layout_takes_what_is_cheaper():
    assert layout(tokens=4).score_rows and not layout(tokens=100).score_rows
    assert layout(tokens=4).own_scores and not layout(tokens=100).own_scores
    assert layout(frozen=True, output=False).carry_flops < layout(output=False).carry_flops < layout().carry_flops


_PEAK = """
import resource, sys, threading, time
from pathlib import Path
import glocal
from glocal.models.load import load
model, tokenizer, _ = load("minilm")
text = "The cat sat on the mat because it was tired of walking around the old town."
engine, options = sys.argv[2], eval(sys.argv[3])
glocal.analyze("A cat sat there.", model, tokenizer, engine=engine, **options | ({"probes": 2} if "probes" in options else {}))
now = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
base = top = now()
running = True
def watch():
    global top
    while running:
        top = max(top, now())
        time.sleep(0.001)
thread = threading.Thread(target=watch, daemon=True)
thread.start()
story = glocal.analyze(text, model, tokenizer, memory=sys.argv[1], engine=engine, **options)
running = False
thread.join()
assert story.attrs["engine"] == engine
print(top - base, story.attrs["plan"]["chunk"])
"""


@pytest.mark.real
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("engine", "options", "budgets"),
    [
        ("straight", {"probes": 96}, (64, 120, 400)),
        ("collapsed", {"probes": 96}, (300, 320, 700)),
        ("reverse", {"targets": [1, 5], "layers": [2, 4]}, (100, 160, 600)),
    ],
    ids=["straight", "collapsed", "reverse"],
)
def test_the_process_never_holds_more_than_the_budget(engine, options, budgets):
    chunks = []
    for budget in budgets:
        command = [sys.executable, "-c", _PEAK, f"{budget}MiB", engine, repr(options)]
        result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=400)
        used, chunk = map(int, result.stdout.split())
        chunks.append(chunk)
        print(engine, budget, used / 2**20, chunk)
        assert used <= budget << 20, f"{used / 2**20:.0f} MiB of {budget} MiB"
    assert chunks == sorted(chunks) and chunks[0] < chunks[-1]
