"""The chunk is planned before the run and keeps within the budget."""

import subprocess
import sys

import pytest
import torch
from glocal.jacobian.energy import make_energy

from glocal.errors import MemoryBudgetError
from glocal.jacobian.plan import plan_straight
from glocal.jacobian.seeds import make_seeds

WIDTH, SOURCES = 64, 4
WEIGHT = torch.ones(WIDTH, WIDTH)
X = torch.ones(SOURCES, WIDTH)


def layer(x):
    return ((x @ WEIGHT).reshape(SOURCES, 2, 32),)


def plan(memory, results=0):
    seeds = make_seeds(X, probes=None, seed=0, times_input=False)
    energy = make_energy("frobenius", targets=torch.arange(SOURCES), heads=None)
    return plan_straight(layer, X, seeds, [energy], memory=memory, results=results)


def test_every_tangent_is_pushed_once():
    for memory in (33 << 20, 34 << 20, 1 << 30):
        made = plan(memory)
        assert made.tangents == SOURCES * WIDTH
        assert (made.chunks - 1) * made.chunk < made.tangents <= made.chunks * made.chunk


def test_the_estimate_keeps_within_the_budget_and_grows_with_it():
    estimates = [plan(memory) for memory in (33 << 20, 34 << 20, 1 << 27)]
    for made, memory in zip(estimates, (33 << 20, 34 << 20, 1 << 27), strict=True):
        assert 0 < made.bytes <= memory
        assert made.seconds > 0
    assert estimates[0].chunk < estimates[2].chunk
    assert estimates[0].reason == "as the memory budget allows"
    assert estimates[2].reason == "all tangents at once"


def test_operations_are_counted():
    assert plan(1 << 30).flops == pytest.approx(2 * SOURCES * WIDTH * WIDTH * SOURCES * WIDTH, rel=0.1)


def test_too_small_a_budget_says_what_would_do():
    with pytest.raises(MemoryBudgetError, match=r"does not fit(.|\n)*needed(.|\n)*or more") as caught:
        plan(1000)
    enough = int(str(caught.value).split("memory=")[1].split("MiB")[0])
    assert plan((enough + 1) << 20).chunk >= 1
    with pytest.raises(MemoryBudgetError):
        plan(1 << 25, results=1 << 25)


_PEAK = """
import resource, sys, threading, time
from pathlib import Path
import glocal
from glocal.models.load import load
model, tokenizer, _ = load("minilm")
text = "The cat sat on the mat because it was tired of walking around the old town."
glocal.analyze(text, model, tokenizer, probes=2)
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
story = glocal.analyze(text, model, tokenizer, memory=sys.argv[1], probes=96)
running = False
thread.join()
print(top - base, story.attrs["plan"]["chunk"])
"""


@pytest.mark.real
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_process_never_holds_more_than_the_budget():
    chunks = []
    for budget in (64, 120, 400):
        result = subprocess.run([sys.executable, "-c", _PEAK, f"{budget}MiB"], check=True, capture_output=True, text=True, timeout=120)
        used, chunk = map(int, result.stdout.split())
        chunks.append(chunk)
        assert used <= budget << 20, f"{used / 2**20:.0f} MiB of {budget} MiB"
    assert chunks == sorted(set(chunks))
