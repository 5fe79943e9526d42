"""Global: how the output of a head depends on the input tokens (Hidden Token Attribution of head outputs)."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import ModelError
from glocal.jacobian.energy import make_energy
from glocal.jacobian.plan import Plan, plan_straight
from glocal.jacobian.seeds import Seeds, make_seeds
from glocal.jacobian.straight import Energy, Squares, straight
from glocal.models.freeze import frozen
from glocal.models.observe import observe
from glocal.models.outputs import check_attention_is_linear_in_values, outputs_function
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
    request, seen = work.request, work.seen
    if "attention" in request.freeze:
        check_attention_is_linear_in_values(seen)
    x = request.start.point(seen)
    assert request.layers
    function = outputs_function(work.model, seen, origin=request.start, of=request.of, layers=request.layers, freeze=request.freeze)
    seeds = make_seeds(x, probes=request.probes, seed=request.seed, times_input=request.times_input)
    energies = _energies(work, x.device)
    with frozen(work.model, request.freeze, lambda: observe(work.model, seen.inputs)):
        plan = plan_straight(function, x, seeds, energies, memory=request.memory, results=_result_bytes(work, seeds))
        with work.track(plan.tangents, plan.seconds, _line(plan)) as advance:
            squares = straight(function, x, seeds, energies, chunk=plan.chunk, advance=advance)
    return _made(squares, plan, hidden=request.of == "hidden", wide=x.dtype == torch.float64)


def shares(norm: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows source"]:
    """norm / sum over sources; a row without any dependence gives NaN."""
    return norm / norm.sum(-1, keepdim=True)


def share_errors(
    norm: Float[Tensor, "*rows source"], variance: Float[Tensor, "*rows source"]
) -> tuple[Float[Tensor, "*rows source"], Float[Tensor, "*rows source"]]:
    """Standard errors of the norms and of their shares, to first order, from the variances of the squared norms.

    Var g = Var(g^2) / (4 g^2); Var s_j = ((1 - 2 s_j) Var g_j + s_j^2 sum_k Var g_k) / (sum g)^2, as sources are independent.
    """
    of_norm = torch.where(norm > 0, variance / (4 * norm.square()), torch.zeros_like(norm))
    share, total = shares(norm), norm.sum(-1, keepdim=True)
    of_share = ((1 - 2 * share) * of_norm + share.square() * of_norm.sum(-1, keepdim=True)) / total.square()
    return of_norm.sqrt(), of_share.clamp(min=0).sqrt()


def _energies(work: Work, device: torch.device) -> list[Energy]:
    request = work.request
    assert request.layers and request.heads and request.targets
    targets = torch.tensor(request.targets, device=device)
    heads = None if request.of == "hidden" else torch.tensor([head - 1 for head in request.heads], device=device)
    made = []
    for layer in request.layers:
        projection = work.seen.projection[layer - 1] if request.of == "head_output" else None
        if request.of == "head_output" and projection is None:
            raise ModelError(
                f"Layer {layer} has no linear output projection right behind its heads.",
                asked="of='head_output'",
                found=f"family {work.model.config.model_type!r}",
                allowed="head, hidden",
                do="use of='head'",
            )
        made.append(make_energy(request.norm, targets=targets, heads=heads, projection=projection))
    return made


def _result_bytes(work: Work, seeds: Seeds) -> int:
    request = work.request
    assert request.layers and request.heads and request.targets
    heads = 1 if request.of == "hidden" else len(request.heads)
    cells = len(request.layers) * heads * len(request.targets) * seeds.sources
    directions = 0 if seeds.directions is None else seeds.directions.numel() * seeds.directions.element_size()
    return cells * 8 * (4 if seeds.exact else 8) + directions


def _line(plan: Plan) -> str:
    return f"attribution: {plan.tangents} tangents, {plan.chunk} at a time, about {plan.seconds:.0f} s and {plan.bytes / 2**20:.0f} MiB"


def _made(squares: Squares, plan: Plan, *, hidden: bool, wide: bool) -> Made:
    dtype = torch.float64 if wide else torch.float32
    norm = torch.stack(squares.value).sqrt()
    variables = {"attribution": shares(norm), "attribution_norm": norm}
    facts: dict[str, Any] = {"engine": plan.engine, "plan": plan.as_dict(), "error_estimate": {}}
    if squares.variance is not None:
        of_norm, of_share = share_errors(norm, torch.stack(squares.variance))
        variables |= {"attribution_se": of_share, "attribution_norm_se": of_norm}
        # E|error| of a normal error is sqrt(2/pi) standard errors; half their sum is the total variation of a row.
        rows = of_share.sum(-1) / 2 * math.sqrt(2 / math.pi)
        facts["error_estimate"] = {"mean_total_variation_of_a_row": rows[rows.isfinite()].mean().item()}
    squeeze = lambda value: value.squeeze(1) if hidden else value  # noqa: E731
    return Made({name: squeeze(value).to(dtype) for name, value in variables.items()}, facts)
