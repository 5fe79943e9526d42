"""Integrated gradients: the output's gradient along the way from a baseline to the text."""

from typing import Any

import numpy
import torch
from torch import Tensor

from glocal.errors import ChoiceError
from glocal.methods._output import REDUCTIONS, Output, facts_of, refuse
from glocal.registry import registered
from glocal.request import Made, Work, one_of

BASELINES = ("zero", "mean", "mask", "pad")
RULES = ("gauss", "right", "midpoint")


@registered(
    summary="the output's gradient along the straight way from a baseline to the text, times the way (to an output)",
    source="Sundararajan et al. 2017 (1703.01365)",
    needs="explain=..., a pass with its gradient for every step",
    cost="`steps` times as gradient",
    limits="depends on the baseline, and its points are no texts; see the completeness gap",
    extra=(("unit", "output"), ("to", "output")),
)
def integrated_gradients(work: Work, *, steps: int = 50, baseline: str = "zero", rule: str = "gauss", reduce: str = "sum") -> Made:
    """s[source] = (x - b)_source . sum_k w_k dy/dx(b + t_k (x - b))_source, `reduce` "sum" (signed, in units of y), "l2" or "l1".

    Points t_k and weights w_k by `rule`: "gauss" (Gauss-Legendre), "midpoint", or "right" (k / steps, as AD-KD and most code have it).
    `baseline`: "zero"; "mean" of the text's vectors; "mask" or "pad", that token's word vector at every position (`origin="word"` only).
    The fact `completeness_gap` is sum(s) - (y(x) - y(b)) before any reduction: 0 for an exact integral. Raises `ChoiceError` with `freeze`,
    without `explain`, or for a baseline token that there is not; `MemoryBudgetError`.
    """
    one_of("rule", rule, RULES)
    one_of("reduce", reduce, REDUCTIONS)
    refuse(work, "integrated_gradients", freeze=())
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ChoiceError("Steps are counted.", asked=f"steps={steps!r}", allowed="whole numbers from 1", do="choose one of these")
    output = Output(work, "integrated_gradients")
    x = output.x
    start = _baseline(work, output, baseline)
    places, weights = _points(steps, rule, x)
    total = torch.zeros_like(x)
    size = 16
    with work.track(steps, 0.0, f"integrated_gradients: {steps} steps") as advance:
        for some, weight in zip(places.split(size), weights.split(size), strict=True):
            slopes = output.gradients(start + some[:, None, None] * (x - start))[1]
            total += torch.einsum("r,rsd->sd", weight, slopes)
            advance(len(some))
    product = (x - start) * total
    with torch.no_grad():
        ends = output(torch.stack([start, x]))
    gap = (product.sum() - (ends[1] - ends[0])).item()
    facts = facts_of("integrated_gradients", completeness_gap=gap, baseline_value=ends[0].item())
    return Made({"integrated_gradients": output.scores(product, reduce)}, facts)


def _points(steps: int, rule: str, like: Tensor) -> tuple[Tensor, Tensor]:
    if rule == "gauss":
        places, weights = numpy.polynomial.legendre.leggauss(steps)
        places, weights = (places + 1) / 2, weights / 2
    else:
        places = (numpy.arange(steps) + (1.0 if rule == "right" else 0.5)) / steps
        weights = numpy.full(steps, 1 / steps)
    return torch.from_numpy(places).to(like), torch.from_numpy(weights).to(like)


def _baseline(work: Work, output: Output, kind: str) -> Tensor:
    one_of("baseline", kind, BASELINES)
    if kind == "zero":
        return torch.zeros_like(output.x)
    if kind == "mean":
        return output.x.mean(0, keepdim=True).expand_as(output.x)
    number = output.explained.special.get(kind)
    if number is None or not work.request.start.word:
        raise ChoiceError(
            f"There is no {kind} token to start from.",
            asked=f"baseline={kind!r}, origin={work.request.origin!r}",
            found=f"{kind}_token_id={number}",
            allowed="a tokenizer that has this token, and origin='word'",
            do="choose baseline='zero' or 'mean', or origin='word'",
        )
    table: Any = work.model.get_input_embeddings()
    with torch.no_grad():
        return table(torch.tensor([number], device=output.x.device)).detach().expand_as(output.x)
