"""Carry a plan out."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from glocal.jacobian.collapsed import Carrier, entrance_map
from glocal.jacobian.making import NotCollapsible, make_maps, tolerance
from glocal.jacobian.maps import Maps
from glocal.jacobian.plan import Plan, making_chunk
from glocal.jacobian.rates import products
from glocal.jacobian.reverse import reverse
from glocal.jacobian.seeds import Seeds, make_seeds
from glocal.jacobian.shares import row_error
from glocal.jacobian.squares import Accumulator, Squares, summed
from glocal.jacobian.straight import push, straight
from glocal.methods._planner import PILOT, Planner
from glocal.models.layers import entrance
from glocal.models.outputs import outputs_function

# Random directions by which the collapsed engine is compared with straight forward mode in every run.
CHECKS = 3
# Largest relative difference that reduced products explain.
REDUCED = 0.1


@dataclass(frozen=True)
class Check:
    """Along a few random directions, against straight forward mode without reduced products: relative differences."""

    largest: float  # of a component, to the largest component of its layer
    norms: float  # mean, of the norm of one block's tangent


@dataclass(frozen=True)
class Outcome:
    """What came out, by which plan, and what a reader should know about it."""

    squares: Squares
    plan: Plan
    notes: tuple[str, ...] = ()
    check: Check | None = None


class Engines(Planner):
    """The engines at work on a request."""

    def run(self, plan: Plan) -> Outcome:
        """Carry the plan out; probes that follow from an error are added in rounds until the estimate meets it."""
        if plan.engine == "reverse":
            return self._run_reverse(plan)
        notes: tuple[str, ...] = ()
        if plan.probes and self.request.probes is None:
            limit = f"the time budget of {self.request.time:g} s"
            notes = (
                f"A sketch, because {plan.reason.partition(',')[0]} and {limit} is smaller; ask for time=None to wait for exact results.",
            )
        run = self._straight(plan)
        checks = Checks(self, self.reduced)
        if self.reduced and plan.engine == "straight":
            checks.all(self._straight_along)
        total = self._accumulator(plan)
        try:
            if plan.engine == "collapsed":
                run = self._collapsing(plan, checks)
            self._all_rounds(total, run, plan)
        except NotCollapsible as reason:
            notes += (f"The collapsed engine fell back to straight forward mode: {reason}.",)
            plan = replace(self.by_straight(plan.probes or None), probes=plan.probes, reason=f"collapsed fell back: {reason}")
            run = self._straight(plan)
            total = self._accumulator(plan)
            self._all_rounds(total, run, plan)
        whole = self._adaptive(plan) and total.directions == self.x.shape[1] and total.sources == len(self.x)
        probes = 0 if plan.probes == 0 or whole else total.directions
        by_token = plan.probes == 0
        plan = replace(plan, probes=probes, tangents=total.directions * total.sources)
        squares = total.squares(self.heads, self.targets, exact=probes == 0)
        return Outcome(self._by_group(squares) if by_token else squares, plan, notes, checks.result)

    def _straight(self, plan: Plan) -> "Runner":
        return lambda total, seeds, advance: total.run(straight(self.function, self.x, seeds), seeds, plan.chunk, advance)

    def _all_rounds(self, total: Accumulator, run: "Runner", plan: Plan) -> None:
        self._add(total, run, plan, 0, self._first_round(plan))
        while self._adaptive(plan) and (wanted := self._wanted(total)) > total.directions:
            self._add(total, run, plan, total.directions, wanted)

    def _accumulator(self, plan: Plan) -> Accumulator:
        width, groups = self.x.shape[1], self.request.groups
        if groups is None or plan.probes == 0:
            return Accumulator(self.features, len(self.x), width)
        sizes = torch.bincount(torch.tensor(groups, device=self.x.device))
        return Accumulator(self.features, len(sizes), sizes.double() * width)

    def _by_group(self, squares: Squares) -> Squares:
        return squares if self.request.groups is None else summed(squares, self.request.groups)

    def _adaptive(self, plan: Plan) -> bool:
        return self.request.probes == "auto" or (self.request.probes is None and plan.probes > 0)

    def _first_round(self, plan: Plan) -> int:
        return min(PILOT, plan.probes) if self._adaptive(plan) else plan.probes

    def _add(self, total: Accumulator, run: "Runner", plan: Plan, start: int, stop: int) -> None:
        seeds = make_seeds(
            self.x,
            probes=stop or None,
            seed=self.request.seed,
            times_input=self.request.times_input,
            groups=None if stop == 0 else self.request.groups,
        ).since(start)
        share = seeds.total / max(1, plan.tangents)
        with self.work.track(seeds.total, plan.seconds * share, line(plan)) as advance:
            run(total, seeds, advance)

    def _wanted(self, total: Accumulator) -> int:
        """Directions per source that the error asked for needs, judged by the estimate so far; it falls as (1/k - 1/d)^(1/2)."""
        k, d = total.directions, self.x.shape[1]
        if k >= d:
            return k
        found = row_error(total.squares(self.heads, self.targets, exact=False))
        if not found > self.request.error:
            return k
        needed = 1 / ((self.request.error / found) ** 2 * (1 / k - 1 / d) + 1 / d)
        return min(d, max(k + 2, math.ceil(needed)))

    def _run_reverse(self, plan: Plan) -> Outcome:
        scale = self.x if self.request.times_input else None
        with self.work.track(plan.tangents, plan.seconds, line(plan)) as advance:
            squares = reverse(
                self.function,
                self.x,
                self.cotangents(plan.probes or None),
                heads=self.heads,
                targets=self.targets,
                scale=scale,
                chunk=plan.chunk,
                advance=advance,
            )
        return Outcome(self._by_group(squares), plan)

    def _collapsing(self, plan: Plan, checks: "Checks") -> "Runner":
        """The collapsed engine, checked: with the maps of all layers kept, or those of one layer at a time."""
        carrier = self.carrier(plan)
        if not plan.by_layer:
            checks.all(carrier.carry)
            return lambda total, seeds, advance: total.run(carrier.push(seeds, self.x), seeds, plan.chunk, advance)

        def run(total: Accumulator, seeds: Seeds, advance: Callable[[int], None]) -> None:
            layers, chunks = len(self.layouts), seeds.chunks(plan.chunk)
            done = [0, 0]

            def part(count: int) -> None:
                done[0] += count
                now = done[0] // layers
                advance(now - done[1])
                done[1] = now

            add = lambda layer, start, stop, first, tangents: total.add(layer, first, tangents, seeds, start, stop)  # noqa: E731
            with torch.no_grad():
                carrier.by_layer(seeds, self.x, plan.chunk, (checks.rows, checks.segments), add, checks.one, part)
            for start, stop in chunks:
                total.count(seeds, start, stop)

        return run

    def carrier(self, plan: Plan) -> Carrier:
        """The collapsed engine's maps, made now or when they are asked for."""
        causal = self.work.seen.causal
        chunk = making_chunk(self.measured, self.layouts, plan, self.budget(plan.probes or None), causal=causal)
        make = lambda number: make_maps(self.network[number], self.layouts[number], chunk=chunk).to(self.carried)  # noqa: E731
        with torch.no_grad():
            enter = entrance(self.work.model, self.work.seen, self.request.start)
            begin = None if enter is None else entrance_map(enter, self.x, chunk).to(self.carried)
            maps = make
            if not plan.by_layer:
                kept: list[Maps] = []
                seconds = self.measured.seconds * self.x.shape[1]
                with self.work.track(len(self.layouts), seconds, "attribution: maps of the layers") as advance:
                    for number in range(len(self.layouts)):
                        kept.append(make(number))
                        advance(1)
                maps = kept.__getitem__
        wanted = [number + self.request.source_layer + 1 in self.layers for number in range(len(self.layouts))]
        return Carrier(maps, len(self.x), begin, causal, self.hidden, wanted, self.carried)

    def _straight_along(self, rows: Tensor, segments: list[tuple[int, int, int]]) -> Iterator[tuple[int, Tensor]]:
        tangents = self.x.new_zeros(len(rows), *self.x.shape)
        for token, start, stop in segments:
            tangents[start:stop, token] = rows[start:stop]
        for output in push(self.function, self.x, tangents):
            yield 0, output.movedim(0, -1)


Runner = Callable[[Accumulator, Seeds, Callable[[int], None]], None]


class Checks:
    """A few random directions that every run of the collapsed engine, or with reduced products, is compared along."""

    def __init__(self, engines: Engines, reduced: bool):
        sources, width = engines.x.shape
        generator = torch.Generator().manual_seed(engines.request.seed)
        tokens = sorted(torch.randperm(sources, generator=generator)[:CHECKS].tolist())
        self.engines, self.allowed = engines, REDUCED if reduced else tolerance(engines.x.dtype)
        self.rows = torch.randn(len(tokens), width, generator=generator, dtype=torch.float64).to(engines.x)
        self.segments = [(token, number, number + 1) for number, token in enumerate(tokens)]
        self.largest: list[float] = []
        self.norms: list[float] = []

    @cached_property
    def expected(self) -> list[Tensor]:
        """By straight forward mode, without reduced products."""
        with torch.no_grad(), products(False, self.engines.x.device):
            return [output for _, output in self.engines._straight_along(self.rows, self.segments)]

    def all(self, carry: Callable[[Tensor, list[tuple[int, int, int]]], Iterator[tuple[int, Tensor]]]) -> None:
        """Compare all layers; raises `NotCollapsible` where rounding does not explain the difference."""
        with torch.no_grad():
            for layer, found in enumerate(carry(self.rows, self.segments)):
                self.one(layer, found)

    def one(self, layer: int, found: tuple[int, Tensor]) -> None:
        """Compare one of the wanted layers."""
        first, carried = found
        reference = self.expected[layer]
        if not reference.isfinite().all():
            return  # counted and named later, whatever the engine
        there, ours = reference[first:].float(), carried.float()
        largest = ((there - ours).abs().max() / there.abs().max().clamp(min=torch.finfo(torch.float32).tiny)).item()
        if not largest <= self.allowed:
            raise NotCollapsible(f"a layer does more than work token by token around one attention (difference {largest:.1e})")
        relative = (there.norm(dim=-2) - ours.norm(dim=-2)).abs() / there.norm(dim=-2)
        self.largest.append(largest)
        self.norms.append(relative[relative.isfinite()].mean().item())

    @property
    def result(self) -> Check | None:
        """What was found, if anything was compared."""
        return Check(max(self.largest), sum(self.norms) / len(self.norms)) if self.largest else None


def together(engines: Sequence[Engines], plan: Plan) -> list[Outcome]:
    """The same plan of straight forward mode for several texts of one length: one push serves them all.

    All texts get the same directions, as each would alone; results equal single runs up to rounding.
    """
    first = engines[0]
    request = first.request
    function = outputs_function(
        first.work.model,
        first.work.seen,
        origin=request.start,
        of=request.of,
        layers=first.layers,
        others=[each.work.seen for each in engines[1:]],
    )
    x = torch.stack([each.x for each in engines])
    seeds = make_seeds(first.x, probes=plan.probes or None, seed=request.seed, times_input=False)
    totals = [Accumulator(each.features, len(each.x), each.x.shape[1]) for each in engines]
    with torch.no_grad(), first.work.track(seeds.total, plan.seconds, line(plan)) as advance:
        for start, stop in seeds.chunks(plan.chunk):
            tangents = seeds.tangents(start, stop, first.x).unsqueeze(1).expand(-1, len(engines), -1, -1)
            for layer, output in enumerate(push(function, x, tangents)):
                for total, mine in zip(totals, output.unbind(1), strict=True):
                    total.add(layer, 0, mine.movedim(0, -1), seeds, start, stop)
            for total in totals:
                total.count(seeds, start, stop)
            advance(stop - start)
    exact = plan.probes == 0
    return [Outcome(total.squares(each.heads, each.targets, exact=exact), plan) for total, each in zip(totals, engines, strict=True)]


def line(plan: Plan) -> str:
    """What the progress bar says."""
    what = "exact" if plan.probes == 0 else f"{plan.probes} probes"
    return (
        f"attribution ({plan.engine}, {what}): {plan.tangents} tangents, {plan.chunk} at a time, "
        f"about {plan.seconds:.3g} s and {plan.bytes / 2**20:.0f} MiB"
    )
