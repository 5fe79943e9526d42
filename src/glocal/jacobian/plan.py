"""Decide engine, directions and chunk before anything runs, from what one small push really costs on this machine."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from glocal.errors import MemoryBudgetError
from glocal.jacobian.layout import Layout
from glocal.jacobian.meter import Cost
from glocal.jacobian.rates import Rates

# Tangents times tokens that fill the matrix units without leaving the caches (measured; see benchmarks).
TOKEN_TANGENTS = 4096
# Allocator rounding, scratch space of the matrix library: live tensors are not all that a process holds.
OVERHEAD = 1.3
# Scratch space of the matrix library and pages that the allocator keeps, whatever the chunk (measured).
SCRATCH = 32 << 20
# Share of the rate of large products that products of this size reach (measured; see benchmarks).
PRODUCTS = 0.85
# And what making the maps reaches, elementwise passes included (measured as well).
MAKING = 0.6
# Passes over memory for every byte made: two operands read, one result written.
PASSES = 3


@dataclass(frozen=True)
class Plan:
    """How a request will be computed; `bytes` and `seconds` are estimates, beyond the model and what the process holds already.

    `probes` 0 is exact. `others` are the ways not taken, by engine, with their estimates.
    """

    engine: str
    tangents: int
    chunk: int
    chunks: int
    bytes: int
    seconds: float
    flops: float
    reason: str
    probes: int = 0
    by_layer: bool = False  # collapsed: the maps of one layer at a time, and the tangents of all chunks
    others: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For the Story's attributes."""
        return asdict(self) | {"others": list(self.others)}


@dataclass(frozen=True)
class Budget:
    """`memory` bytes beyond the model, of which accumulating takes `results`; `tokens` for what an error says."""

    memory: int
    results: int
    tokens: int

    @property
    def room(self) -> float:
        """Bytes of live tensors that fit."""
        return (self.memory - self.results - SCRATCH) / OVERHEAD

    def needed(self, live: float) -> int:
        """What a process takes for so many bytes of live tensors."""
        return int(live * OVERHEAD) + SCRATCH + self.results

    def too_small(self, live: float) -> MemoryBudgetError:
        """The error for a budget that has no room for `live` bytes."""
        enough = self.needed(live) / 2**20
        return MemoryBudgetError(
            "Even the smallest chunk does not fit into the memory budget.",
            asked=f"memory of {self.memory / 2**20:.0f} MiB",
            found=f"{enough:.0f} MiB needed beyond the model for {self.tokens} tokens",
            allowed=f"memory={enough * 1.1:.0f}MiB or more",
            do="raise memory, shorten the text, or ask for fewer layers",
        )


@dataclass(frozen=True)
class Measured:
    """One pass at the point, one small push of `few` tangents through the network's code, and how fast the machine is."""

    primal: Cost
    small: Cost
    few: int
    rates: Rates

    @property
    def flops(self) -> float:
        """Floating-point operations of one tangent."""
        return max(1.0, (self.small.flops - self.primal.flops) / self.few)

    @property
    def bytes(self) -> float:
        """Peak bytes of one tangent."""
        return max(1.0, (self.small.bytes - self.primal.bytes) / self.few)

    @property
    def seconds(self) -> float:
        """Of one tangent in a full chunk."""
        moved = max(0.0, self.small.made - self.primal.made) / self.few
        return self.flops / (self.rates.products * PRODUCTS) + PASSES * moved / self.rates.memory


def plan_straight(measured: Measured, budget: Budget, *, sources: int, per_source: int) -> Plan:
    """Straight forward mode of `per_source` directions for each source, which may be a group of tokens.

    Raises `MemoryBudgetError` naming what would be enough.
    """
    total = sources * per_source
    live = lambda chunk: measured.primal.bytes + measured.bytes * chunk  # noqa: E731
    fit = int((budget.room - measured.primal.bytes) // measured.bytes)
    if fit < 1:
        raise budget.too_small(live(1))
    best = max(1, TOKEN_TANGENTS // budget.tokens)
    chunk, chunks = _chunks(min(fit, best), sources, per_source)
    return Plan(
        engine="straight",
        tangents=total,
        chunk=chunk,
        chunks=chunks,
        bytes=budget.needed(live(chunk)),
        seconds=total * measured.seconds + chunks * measured.small.seconds,
        flops=measured.flops * total + measured.primal.flops * chunks,
        reason=_why(chunks, fit, best),
    )


def plan_collapsed(
    measured: Measured,
    layouts: Sequence[Layout],
    budget: Budget,
    *,
    sources: int,
    per_source: int,
    causal: bool,
    carrying: Rates,
) -> Plan:
    """Token-wise maps of every layer, then all directions carried on by them.

    Making the maps costs about what straight forward mode takes for as many tangents as the model is wide, all tokens together. A causal
    model carries half. Raises `MemoryBudgetError` naming what would be enough.
    """
    total, best = sources * per_source, max(1, TOKEN_TANGENTS // sources)
    column = max(layout.column_bytes for layout in layouts)
    fixed, by_layer, fit = 0.0, False, 0
    for by_layer in (False, True):
        fixed = collapsed_bytes(measured, layouts, total=total, causal=causal, by_layer=by_layer)
        left = budget.room - fixed
        fit = min(int(left // column), total) if left > measured.bytes else 0
        if fit >= min(best, total):
            break
    live = lambda chunk: fixed + max(column * chunk, measured.bytes)  # noqa: E731
    if fit < 1:
        raise budget.too_small(live(1))
    chunk, chunks = _chunks(min(fit, best), sources, per_source)
    share = _share(causal, sources)
    carried = sum(layout.carry_flops for layout in layouts) * share * total
    attention = sum(layout.attention_flops for layout in layouts)
    made = layouts[0].width * max(measured.flops - attention, 0.3 * measured.flops)
    moved = PASSES * layouts[0].item * sum(layout.rows_made for layout in layouts) * share * total
    fixed_time = chunks * len(layouts) * 4e-4 + measured.small.seconds
    return Plan(
        engine="collapsed",
        tangents=total,
        chunk=chunk,
        chunks=chunks,
        bytes=budget.needed(live(chunk)),
        seconds=made / (measured.rates.products * MAKING) + carried / (carrying.products * PRODUCTS) + moved / carrying.memory + fixed_time,
        flops=carried + made,
        reason=_why(chunks, fit, best) + ("; layer by layer, which needs less memory" if by_layer else ""),
        by_layer=by_layer,
    )


def collapsed_bytes(measured: Measured, layouts: Sequence[Layout], *, total: int, causal: bool, by_layer: bool) -> float:
    """What is held beside the columns of one chunk: all maps, or those of one layer and the tangents of all chunks."""
    making = max(layout.making_bytes for layout in layouts)
    if not by_layer:
        return measured.primal.bytes * 2 + sum(layout.map_bytes for layout in layouts) + making
    largest, one = max(layout.map_bytes for layout in layouts), layouts[0]
    return measured.primal.bytes * 2 + largest + making + one.tokens * one.width * one.item * total * _share(causal, one.tokens)


def _share(causal: bool, tokens: int) -> float:
    return 0.5 + 0.5 / tokens if causal else 1.0


def making_chunk(measured: Measured, layouts: Sequence[Layout], plan: Plan, budget: Budget, *, causal: bool) -> int:
    """How many directions may be pushed at once while the maps are made."""
    total = plan.chunk if not plan.by_layer else plan.tangents
    left = budget.room - collapsed_bytes(measured, layouts, total=total, causal=causal, by_layer=plan.by_layer)
    return max(1, min(TOKEN_TANGENTS // layouts[0].tokens, int(left // measured.bytes)))


def plan_reverse(measured: Measured, pulls: Sequence[int], budget: Budget, *, layers: int) -> Plan:
    """`pulls[l]` components of layer l + 1 pulled back through the layers below it; one pass is kept with everything it needs.

    Raises `MemoryBudgetError` naming what would be enough.
    """
    total = sum(pulls)
    kept = measured.primal.made * 2
    each = measured.bytes * 2
    live = lambda chunk: kept + each * chunk  # noqa: E731
    fit = int((budget.room - kept) // each)
    if fit < 1:
        raise budget.too_small(live(1))
    best = min(max(1, TOKEN_TANGENTS // budget.tokens), max(pulls))
    chunk = min(fit, best)
    chunks = sum(-(-pull // chunk) for pull in pulls)
    depth = sum(pull * (layer + 1) / layers for layer, pull in enumerate(pulls))
    return Plan(
        engine="reverse",
        tangents=total,
        chunk=chunk,
        chunks=chunks,
        bytes=budget.needed(live(chunk)),
        seconds=1.3 * depth * measured.seconds + chunks * measured.small.seconds,
        flops=measured.flops * depth + measured.primal.flops,
        reason=_why(chunks, fit, best),
    )


def fastest(plans: Sequence[Plan]) -> Plan:
    """The plan with the smallest estimate, with the others noted in it."""
    best = min(plans, key=lambda plan: plan.seconds)
    keys = ("engine", "seconds", "bytes", "flops")
    return replace(best, others=tuple({key: getattr(plan, key) for key in keys} for plan in plans if plan is not best))


def _chunks(size: int, sources: int, per_source: int) -> tuple[int, int]:
    """Whole sources, or equal parts of one: the largest chunk, and how many."""
    if size >= per_source:
        together = min(size // per_source, sources)
        chunks = -(-sources // together)
        return -(-sources // chunks) * per_source, chunks
    pieces = -(-per_source // size)
    return -(-per_source // pieces), pieces * sources


def _why(chunks: int, fit: int, best: int) -> str:
    if chunks == 1:
        return "all directions at once"
    return "as the memory budget allows" if fit < best else "the size that runs fastest"
