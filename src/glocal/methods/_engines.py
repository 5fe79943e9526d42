"""The ways to compute what a request asks for, at one point of one network: plan them, choose one, run it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from glocal.errors import ChoiceError, MemoryBudgetError, ModelError
from glocal.jacobian.collapsed import Carrier, entrance_map
from glocal.jacobian.features import feature_maps, features
from glocal.jacobian.maps import Layer, Layout, Maps, NotCollapsible, layout_of, make_maps, tolerance
from glocal.jacobian.meter import cost_of
from glocal.jacobian.plan import Measured, Plan, fastest, making_chunk, plan_collapsed, plan_reverse, plan_straight
from glocal.jacobian.rates import machine_rates, products
from glocal.jacobian.reverse import Cotangents, make_cotangents, reverse
from glocal.jacobian.seeds import Seeds, make_seeds
from glocal.jacobian.shares import row_error
from glocal.jacobian.squares import Accumulator, Push, Squares, summed
from glocal.jacobian.straight import push, straight
from glocal.models.outputs import outputs_function
from glocal.models.parts import entrance, parts
from glocal.request import Work

# Directions of the first round when their number follows from the error asked for, and of every measured push.
PILOT = 8
# Mean total variation of a row for one direction, from which a first guess is made; what is reported is always estimated anew.
_TYPICAL = 0.105
# Random directions by which the collapsed engine is compared with straight forward mode in every run.
CHECKS = 3
# Texts up to so many times longer teach what a shorter one costs.
SIMILAR = 1.5
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


class Engines:
    """Everything that an engine needs to know of a request; the network must be instrumented (and frozen) while in use."""

    def __init__(self, work: Work):
        request = work.request
        assert request.layers and request.heads and request.targets
        self.work, self.request = work, request
        self.layers, self.targets = request.layers, request.targets
        self.hidden = request.of == "hidden"
        self.heads = None if self.hidden else [head - 1 for head in request.heads]
        self.x = request.start.point(work.seen)
        self.reduced = request.precision in ("reduced_products", "bfloat16")
        self.carried = torch.bfloat16 if request.precision == "bfloat16" else self.x.dtype
        self.function = outputs_function(
            work.model, work.seen, origin=request.start, of=request.of, layers=request.layers, freeze=request.freeze
        )
        self.features = [self._feature_maps(layer) for layer in request.layers]

    # -- planning --

    def plan(self) -> Plan:
        """The fastest way that fits, or the engine asked for; a sketch where exact results would take longer than the time budget."""
        request = self.request
        if isinstance(request.probes, str):
            return self._sketch(f"probes as an error of {request.error:g} needs")
        exact = self._choose(request.probes)
        if request.probes is not None or request.engine != "auto" or request.time is None or exact.seconds <= request.time:
            return exact
        return self._sketch(f"exact results would take about {exact.seconds:.0f} s, more than time={request.time:g}")

    def _sketch(self, reason: str) -> Plan:
        width = self.x.shape[1]
        guess = 1 / ((self.request.error / _TYPICAL) ** 2 + 1 / width)
        chosen = self._choose(min(width, max(PILOT, math.ceil(guess))))
        return replace(chosen, reason=f"{reason}; {chosen.reason}")

    def _choose(self, probes: int | None) -> Plan:
        request = self.request
        engines = {"straight": self._straight, "collapsed": self._collapsed, "reverse": self._reverse}
        asked = request.engine
        if request.groups is not None and probes is not None and asked in ("collapsed", "reverse"):
            raise ChoiceError(
                f"The {asked} engine cannot sketch groups of tokens.",
                asked=f"groups with probes={probes}, engine={asked!r}",
                allowed="engine='straight' or 'auto', or probes=None (exact)",
                do="choose one of these",
            )
        if asked != "auto":
            return replace(engines[asked](probes), probes=probes or 0)
        if probes is not None:
            del engines["reverse"]  # its directions are drawn among the outputs: another sketch, to be asked for by name
            if request.groups is not None:
                del engines["collapsed"]  # carries directions of one token
        plans, refusals = [], []
        for plan in engines.values():
            try:
                plans.append(plan(probes))
            except MemoryBudgetError as refusal:
                refusals.append(refusal)
            except NotCollapsible:
                continue
        if not plans:
            raise refusals[0]
        return replace(fastest(plans), probes=probes or 0)

    @cached_property
    def measured(self) -> Measured:
        """What a small push costs; a text that is a little longer has taught it as well, since no cost grows slower than the text."""
        request, tokens = self.request, len(self.x)
        key = ("measured", request.of, request.start, request.layers, request.freeze, request.norm)
        known: dict[int, Measured] = self.work.known.setdefault(key, {})
        longer = [count for count in known if tokens <= count <= SIMILAR * tokens]
        if not longer:
            known[tokens] = self._measure()
            return known[tokens]
        nearest = known[min(longer)]
        factor = tokens / min(longer)
        return replace(nearest, primal=nearest.primal.scaled(factor), small=nearest.small.scaled(factor))

    def _measure(self) -> Measured:
        seeds = make_seeds(self.x, probes=None, seed=0, times_input=False)
        few = min(PILOT, seeds.width)

        def small_push() -> None:
            tangents = seeds.tangents(0, few, self.x)
            for output, maps in zip(push(self.function, self.x, tangents), self.features, strict=True):
                columns = output.movedim(0, -1)
                features(columns if columns.dim() == 4 else columns.unsqueeze(1), maps).square().sum(2).double()

        with torch.no_grad():
            primal = cost_of(lambda: self.function(self.x), self.x.device)
            return Measured(primal, cost_of(small_push, self.x.device), few, machine_rates(self.x.dtype, self.x.device))

    def _results(self, probes: int | None) -> int:
        heads = 1 if self.hidden else self.work.seen.heads
        cells = len(self.layers) * heads * len(self.x) ** 2
        return cells * 8 * (3 if probes is None else 6) + (0 if probes is None else len(self.x) * self.x.shape[1] * probes * 8)

    def _per_source(self, probes: int | None) -> int:
        return self.x.shape[1] if probes is None else probes

    def _sources(self, probes: int | None) -> int:
        groups = self.request.groups
        return len(self.x) if groups is None or probes is None else max(groups) + 1

    def _straight(self, probes: int | None) -> Plan:
        return plan_straight(
            self.measured,
            tokens=len(self.x),
            sources=self._sources(probes),
            per_source=self._per_source(probes),
            memory=self.request.memory,
            results=self._results(probes),
        )

    def _collapsed(self, probes: int | None) -> Plan:
        return plan_collapsed(
            self.measured,
            self.layouts,
            sources=len(self.x),
            per_source=self._per_source(probes),
            memory=self.request.memory,
            results=self._results(probes),
            causal=self.work.seen.causal,
            carrying=machine_rates(self.carried, self.x.device),
        )

    def _reverse(self, probes: int | None) -> Plan:
        cotangents = self._cotangents(probes)
        below = dict(zip(self.layers, cotangents, strict=True))
        pulls = [
            0 if layer not in below else below[layer].rows.shape[0] * below[layer].rows.shape[1] * len(self.targets)
            for layer in range(self.request.source_layer + 1, self.layers[-1] + 1)
        ]
        return plan_reverse(
            self.measured, pulls, layers=len(pulls), sources=len(self.x), memory=self.request.memory, results=self._results(probes)
        )

    # -- running --

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
        pushed: Callable[[Seeds], Push] = lambda seeds: straight(self.function, self.x, seeds)  # noqa: E731
        check = self._check(self._straight_along) if self.reduced and plan.engine == "straight" else None
        if plan.engine == "collapsed":
            try:
                carrier = self._carrier(plan)
                check = self._check(carrier.carry)
                if not check.largest <= (REDUCED if self.reduced else tolerance(self.x.dtype)):
                    raise NotCollapsible(
                        f"a layer does more than work token by token around one attention (difference {check.largest:.1e})"
                    )
                pushed = lambda seeds: carrier.push(seeds, self.x)  # noqa: E731
            except NotCollapsible as reason:
                notes += (f"The collapsed engine fell back to straight forward mode: {reason}.",)
                plan = replace(self._straight(plan.probes or None), probes=plan.probes, reason=f"collapsed fell back: {reason}")
        total = self._accumulator(plan)
        self._add(total, pushed, plan, 0, self._first_round(plan))
        while self._adaptive(plan) and (wanted := self._wanted(total)) > total.directions:
            self._add(total, pushed, plan, total.directions, wanted)
        whole = total.directions == self.x.shape[1] and total.sources == len(self.x)
        probes = 0 if plan.probes == 0 or whole else total.directions
        plan = replace(plan, probes=probes, tangents=total.directions * total.sources)
        return Outcome(self._by_group(total.squares(self.heads, self.targets, exact=probes == 0)), plan, notes, check)

    def _accumulator(self, plan: Plan) -> Accumulator:
        width, groups = self.x.shape[1], self.request.groups
        if groups is None or plan.probes == 0:
            return Accumulator(self.features, len(self.x), width)
        sizes = torch.bincount(torch.tensor(groups, device=self.x.device))
        return Accumulator(self.features, len(sizes), sizes.double() * width)

    def _by_group(self, squares: Squares) -> Squares:
        groups = self.request.groups
        if groups is None or squares.value[0].shape[-1] != len(groups):
            return squares
        return summed(squares, groups)

    def _adaptive(self, plan: Plan) -> bool:
        return self.request.probes == "auto" or (self.request.probes is None and plan.probes > 0)

    def _first_round(self, plan: Plan) -> int:
        return min(PILOT, plan.probes) if self._adaptive(plan) else plan.probes

    def _add(self, total: Accumulator, pushed: Callable[[Seeds], Push], plan: Plan, start: int, stop: int) -> None:
        seeds = make_seeds(
            self.x,
            probes=stop or None,
            seed=self.request.seed,
            times_input=self.request.times_input,
            groups=None if stop == 0 else self.request.groups,
        ).since(start)
        share = seeds.total / max(1, plan.tangents)
        with self.work.track(seeds.total, plan.seconds * share, line(plan)) as advance:
            total.run(pushed(seeds), seeds, plan.chunk, advance)

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
                self._cotangents(plan.probes or None),
                heads=self.heads,
                targets=self.targets,
                scale=scale,
                chunk=plan.chunk,
                advance=advance,
            )
        return Outcome(self._by_group(squares), plan)

    def _cotangents(self, probes: int | None) -> list[Cotangents]:
        width = self.work.seen.hidden[0].shape[1] if self.hidden else self.work.seen.head[0].shape[2]
        return [
            make_cotangents(maps, heads=self.heads, width=width, probes=probes, seed=self.request.seed, like=self.x)
            for maps in self.features
        ]

    # -- the collapsed engine --

    @cached_property
    def _network(self) -> list[Layer]:
        """The layers from the origin up to the last one asked for."""
        taken = parts(self.work.model, self.work.seen)[self.request.source_layer : self.layers[-1]]
        names = [field.name for field in fields(Layer)]
        return [Layer(**{name: getattr(part, name) for name in names}) for part in taken]

    @cached_property
    def layouts(self) -> list[Layout]:
        """Sizes of these layers."""
        last = len(self._network) - 1
        return [
            layout_of(
                layer,
                output=self.hidden or number < last,
                frozen="attention" in self.request.freeze,
                first=number == 0,
                dtype=self.carried,
            )
            for number, layer in enumerate(self._network)
        ]

    def _carrier(self, plan: Plan) -> Carrier:
        chunk = making_chunk(
            self.measured, self.layouts, sources=len(self.x), memory=self.request.memory, results=self._results(plan.probes or None)
        )
        maps: list[Maps] = []
        with torch.no_grad():
            enter = entrance(self.work.model, self.work.seen, self.request.start)
            begin = None if enter is None else entrance_map(enter, self.x, chunk)
            with self.work.track(len(self.layouts), self.measured.seconds * self.x.shape[1], "attribution: maps of the layers") as advance:
                for layer, layout in zip(self._network, self.layouts, strict=True):
                    maps.append(make_maps(layer, layout, chunk=chunk).to(self.carried))
                    advance(1)
        wanted = [number + self.request.source_layer + 1 in self.layers for number in range(len(maps))]
        begin = None if begin is None else begin.to(self.carried)
        return Carrier(maps, begin, self.work.seen.causal, self.hidden, wanted)

    def _straight_along(self, rows: Tensor, segments: list[tuple[int, int, int]]) -> Iterator[tuple[int, Tensor]]:
        tangents = self.x.new_zeros(len(rows), *self.x.shape)
        for token, start, stop in segments:
            tangents[start:stop, token] = rows[start:stop]
        for output in push(self.function, self.x, tangents):
            yield 0, output.movedim(0, -1)

    def _check(self, carry: Callable[[Tensor, list[tuple[int, int, int]]], Iterator[tuple[int, Tensor]]]) -> Check:
        sources, width = self.x.shape
        generator = torch.Generator().manual_seed(self.request.seed)
        tokens = sorted(torch.randperm(sources, generator=generator)[:CHECKS].tolist())
        rows = torch.randn(len(tokens), width, generator=generator, dtype=torch.float64).to(self.x)
        segments = [(token, number, number + 1) for number, token in enumerate(tokens)]
        largest, norms = [], []
        with torch.no_grad():
            with products(False, self.x.device):
                expected = list(self._straight_along(rows, segments))
            for (_, reference), (first, carried) in zip(expected, carry(rows, segments), strict=True):
                if not reference.isfinite().all():
                    continue  # counted and named later, whatever the engine
                there, ours = reference[first:].float(), carried.float()
                largest.append(((there - ours).abs().max() / there.abs().max().clamp(min=torch.finfo(torch.float32).tiny)).item())
                relative = (there.norm(dim=-2) - ours.norm(dim=-2)).abs() / there.norm(dim=-2)
                norms.append(relative[relative.isfinite()].mean().item())
        finite = all(map(math.isfinite, largest))
        return Check(max(largest, default=0.0) if finite else math.inf, sum(norms) / max(1, len(norms)))

    def _feature_maps(self, layer: int) -> Tensor | None:
        request, seen = self.request, self.work.seen
        projection = seen.projection[layer - 1] if request.of == "head_output" else None
        if request.of == "head_output" and projection is None:
            raise ModelError(
                f"Layer {layer} has no linear output projection right behind its heads.",
                asked="of='head_output'",
                found=f"family {self.work.model.config.model_type!r}",
                allowed="head, hidden",
                do="use of='head'",
            )
        width = seen.hidden[0].shape[1] if self.hidden else seen.head[layer - 1].shape[2]
        return feature_maps(request.norm, width=width, like=self.x, projection=projection)


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
        f"about {plan.seconds:.0f} s and {plan.bytes / 2**20:.0f} MiB"
    )
