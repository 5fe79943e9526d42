"""Sensitivity of an output to each token."""

from glocal.methods._output import Output, facts_of
from glocal.registry import registered
from glocal.request import Made, Work, one_of


@registered(
    summary="norm of the output's gradient with respect to each token's vector (to an output)",
    source="Simonyan et al. 2014; with freeze=... the rules of Ali et al. 2022 (2202.07304)",
    needs="explain=..., one pass with its gradient",
    cost="about as three passes",
    limits="the slope here, not the effect of taking a token away; small where the output is saturated",
    extra=(("unit", "norm of a gradient"), ("to", "output")),
)
def gradient(work: Work, *, norm: str = "l2") -> Made:
    """g[source] = ||dy / dx_source||, `norm` "l2" or "l1" (norm of a gradient).

    x are the vectors at `origin` and `source_layer`; `freeze` holds attention weights, normalisers or activations constant. Of groups the
    norm of the whole block. Raises `ChoiceError` without `explain` or for an output without a gradient, `FreezeError`, `MemoryBudgetError`.
    """
    one_of("norm", norm, ("l2", "l1"))
    output = Output(work, "gradient")
    with output.held_constant():
        y, slope = output.gradients(output.x[None])
    return Made({"gradient": output.scores(slope[0], norm)}, facts_of("gradient", value=y.item()))
