"""Global: how the output of a head depends on the input tokens (Hidden Token Attribution of head outputs)."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from glocal.jacobian.plan import TOKEN_TANGENTS, Plan
from glocal.jacobian.rates import products
from glocal.jacobian.shares import errors, row_error, shares
from glocal.methods._engines import Engines, Outcome, together
from glocal.models.freeze import frozen
from glocal.models.observe import observe
from glocal.models.outputs import check_attention_is_linear_in_values
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="gradient attribution of the head's output to the input tokens (global)",
    source="Brunner et al. 2020 (1908.04211) for hidden tokens; Pascual et al. 2021 (2004.05916) for heads",
    needs="an eager attention with a forward derivative; n times width tangents, or n times k for a sketch",
    cost="as width (or k) forward passes over n tokens for every token",
    limits="sensitivity to small changes of the input, not the size of a token's effect; Frobenius norms add directions without sign",
    default=True,
)
def attribution(work: Work) -> Made:
    """Norms of the Jacobian blocks d output_target / d input_source, and their shares over sources.

    g[layer, head, target, source] = ||d z^{layer, head}_target / d x_source||; share = g / sum over sources of g. With `of="head"` z is the
    head's output before the output projection, with "head_output" after its slice of it, with "hidden" the layer's output (no head
    dimension). Exact, or a sketch with standard errors. Rows without any dependence are NaN. Raises `MemoryBudgetError`, `FreezeError`.
    """
    with _engines(work) as engines:
        outcome = engines.run(engines.plan())
    return _made(outcome, hidden=work.request.of == "hidden", wide=engines.x.dtype == torch.float64)


def attribution_together(works: Sequence[Work]) -> list[Made] | None:
    """`attribution` for texts of one length in one go; None where they would not fill a chunk together, or cannot share one."""
    first = works[0]
    request = first.request
    if (
        len(works) < 2
        or request.groups is not None
        or request.freeze
        or request.times_input
        or request.probes == "auto"
        or request.engine not in ("auto", "straight")
    ):
        return None
    with ExitStack() as stack:
        engines = [stack.enter_context(_engines(work)) for work in works]
        plan = engines[0].plan()
        if plan.engine != "straight" or plan.chunks > 1 or (plan.probes > 0) != (request.probes is not None):
            return None
        if plan.tangents * len(engines[0].x) * len(works) > TOKEN_TANGENTS or plan.bytes * len(works) > request.memory:
            return None
        outcomes = together(engines, plan)
    return [_made(outcome, hidden=request.of == "hidden", wide=engines[0].x.dtype == torch.float64) for outcome in outcomes]


def room_for_others(tokens: int, width: int, probes: int | None) -> int:
    """How many texts of so many tokens fill a chunk together."""
    return max(1, TOKEN_TANGENTS // (tokens * tokens * (probes or width)))


def plan_attribution(work: Work) -> Plan:
    """What `attribution` would do, without doing it. Raises what it raises."""
    with _engines(work) as engines:
        return engines.plan()


@contextmanager
def _engines(work: Work) -> Iterator[Engines]:
    request, seen = work.request, work.seen
    if "attention" in request.freeze:
        check_attention_is_linear_in_values(seen)
    with products(request.reduced, seen.hidden[0].device), frozen(work.model, request.freeze, lambda: observe(work.model, seen.inputs)):
        yield Engines(work)


def _made(outcome: Outcome, *, hidden: bool, wide: bool) -> Made:
    squares, plan = outcome.squares, outcome.plan
    dtype = torch.float64 if wide else torch.float32
    norm = torch.stack(squares.value).sqrt()
    variables = {"attribution": shares(norm), "attribution_norm": norm}
    facts: dict[str, Any] = {"engine": plan.engine, "plan": plan.as_dict(), "error_estimate": {}, "notes": list(outcome.notes)}
    if squares.variance is not None:
        variables |= {
            "attribution_se": torch.stack([each.of_share for each in errors(squares)]),
            "attribution_norm_se": torch.stack([each.of_norm for each in errors(squares)]),
        }
        facts["error_estimate"]["mean_total_variation_of_a_row"] = row_error(squares)
        facts["error_estimate"]["inflation_of_standard_errors"] = squares.inflation
    if outcome.check is not None:
        facts["error_estimate"]["largest_difference_to_straight"] = outcome.check.largest
        facts["error_estimate"]["mean_difference_of_norms_to_straight"] = outcome.check.norms
    squeeze = lambda value: value.squeeze(1) if hidden else value  # noqa: E731
    return Made({name: squeeze(value).to(dtype) for name, value in variables.items()}, facts)
