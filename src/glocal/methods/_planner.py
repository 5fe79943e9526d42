"""What a request asks for, at one point of one network, and the ways to compute it: estimate them and choose one."""

import math
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from glocal.errors import ChoiceError, MemoryBudgetError, ModelError
from glocal.jacobian.features import feature_maps, features
from glocal.jacobian.layout import Layout, layout_of
from glocal.jacobian.meter import cost_of
from glocal.jacobian.plan import Budget, Measured, Plan, fastest, plan_collapsed, plan_reverse, plan_straight
from glocal.jacobian.rates import machine_rates
from glocal.jacobian.reverse import Cotangents, make_cotangents
from glocal.jacobian.seeds import make_seeds
from glocal.jacobian.straight import push
from glocal.layer import Layer
from glocal.models.layers import layers
from glocal.models.outputs import outputs_function
from glocal.request import Work

# Directions of the first round when their number follows from the error asked for, and of every measured push.
PILOT = 8
# Mean total variation of a row for one direction, from which a first guess is made; what is reported is always estimated anew.
_TYPICAL = 0.105
# Texts up to so many times longer teach what a shorter one costs.
SIMILAR = 1.5


class Planner:
    """Everything that an engine needs to know of a request; the network must be instrumented (and frozen) while in use."""

    def __init__(self, work: Work):
        request = work.request
        assert request.layers and request.heads and request.targets
        self.work, self.request = work, request
        self.layers, self.targets = request.layers, request.targets
        self.hidden = request.of == "hidden"
        self.heads = None if self.hidden else [head - 1 for head in request.heads]
        self.x = request.start.point(work.seen)
        self.reduced = request.reduced
        self.carried = torch.bfloat16 if request.precision == "bfloat16" else self.x.dtype
        self.function = outputs_function(
            work.model, work.seen, origin=request.start, of=request.of, layers=request.layers, freeze=request.freeze
        )
        self.features = [self._feature_maps(layer) for layer in request.layers]

    def plan(self) -> Plan:
        """The fastest way that fits, or the engine asked for; a sketch where exact results would take longer than the time budget."""
        request = self.request
        if isinstance(request.probes, str):
            return self._sketch(f"probes as an error of {request.error:g} needs")
        exact = self._choose(request.probes)
        if request.probes is not None or request.engine != "auto" or request.time is None or exact.seconds <= request.time:
            return exact
        return self._sketch(f"exact results would take about {exact.seconds:.3g} s, more than time={request.time:g}")

    def _sketch(self, reason: str) -> Plan:
        width = self.x.shape[1]
        guess = 1 / ((self.request.error / _TYPICAL) ** 2 + 1 / width)
        chosen = self._choose(min(width, max(PILOT, math.ceil(guess))))
        return replace(chosen, reason=f"{reason}; {chosen.reason}")

    def _choose(self, probes: int | None) -> Plan:
        request = self.request
        engines = {"straight": self.by_straight, "collapsed": self._collapsed, "reverse": self._reverse}
        asked = "collapsed" if request.precision == "bfloat16" else request.engine
        if request.groups is not None and probes is not None and asked in ("collapsed", "reverse"):
            raise ChoiceError(
                f"The {asked} engine cannot sketch groups of tokens.",
                asked=f"groups with probes={probes}, engine={request.engine!r}, precision={request.precision!r}",
                allowed="engine='straight' or 'auto' without precision='bfloat16', or probes=None (exact)",
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

    def budget(self, probes: int | None) -> Budget:
        """The memory asked for, less what the results take."""
        heads = 1 if self.hidden else self.work.seen.heads
        cells = len(self.layers) * heads * len(self.x) ** 2
        results = cells * 8 * (3 if probes is None else 9) + (0 if probes is None else len(self.x) * self.x.shape[1] * probes * 8)
        return Budget(self.request.memory, results, len(self.x))

    def _per_source(self, probes: int | None) -> int:
        return self.x.shape[1] if probes is None else probes

    def _sources(self, probes: int | None) -> int:
        groups = self.request.groups
        return len(self.x) if groups is None or probes is None else max(groups) + 1

    def by_straight(self, probes: int | None) -> Plan:
        return plan_straight(self.measured, self.budget(probes), sources=self._sources(probes), per_source=self._per_source(probes))

    def _collapsed(self, probes: int | None) -> Plan:
        return plan_collapsed(
            self.measured,
            self.layouts,
            self.budget(probes),
            sources=len(self.x),
            per_source=self._per_source(probes),
            causal=self.work.seen.causal,
            carrying=machine_rates(self.carried, self.x.device),
        )

    def _reverse(self, probes: int | None) -> Plan:
        cotangents = self.cotangents(probes)
        below = dict(zip(self.layers, cotangents, strict=True))
        pulls = [
            0 if layer not in below else below[layer].rows.shape[0] * below[layer].rows.shape[1] * len(self.targets)
            for layer in range(self.request.source_layer + 1, self.layers[-1] + 1)
        ]
        return plan_reverse(self.measured, pulls, self.budget(probes), layers=len(pulls))

    def cotangents(self, probes: int | None) -> list[Cotangents]:
        width = self.work.seen.hidden[0].shape[1] if self.hidden else self.work.seen.head[0].shape[2]
        return [
            make_cotangents(maps, heads=self.heads, width=width, probes=probes, seed=self.request.seed, like=self.x)
            for maps in self.features
        ]

    @cached_property
    def network(self) -> list[Layer]:
        """The layers from the origin up to the last one asked for."""
        return list(layers(self.work.model, self.work.seen)[self.request.source_layer : self.layers[-1]])

    @cached_property
    def layouts(self) -> list[Layout]:
        """Sizes of these layers."""
        last = len(self.network) - 1
        return [
            layout_of(
                layer,
                output=self.hidden or number < last,
                frozen="attention" in self.request.freeze,
                first=number == 0,
                dtype=self.carried,
            )
            for number, layer in enumerate(self.network)
        ]

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
