"""Gradient times input."""

from glocal.methods._output import REDUCTIONS, Output, facts_of
from glocal.registry import registered
from glocal.request import Made, Work, one_of


@registered(
    summary="the output's gradient times each token's vector (to an output)",
    source="Denil et al. 2014; reduced by its norm: GlobEnc (2205.03286); frozen: the rules of Ali et al. 2022 (2202.07304)",
    needs="explain=..., one pass with its gradient",
    cost="about as three passes",
    limits="a first-order estimate at the text itself; what is reduced by a norm has no sign",
    extra=(("unit", "output"), ("to", "output")),
)
def gradient_x_input(work: Work, *, reduce: str = "l2") -> Made:
    """s[source] = ||dy / dx_source * x_source||_2 (`reduce="l2"`), its l1 norm, or the signed sum of the components (in units of y).

    x are the vectors at `origin` and `source_layer`. With `freeze=("attention", "norm", "activation")` and "sum" the scores are those of
    layer-wise relevance propagation with constant attention: they add up to y but for biases, and the fact `remainder` says how much these
    are. Raises `ChoiceError` without `explain` or for an output without a gradient, `FreezeError`, `MemoryBudgetError`.
    """
    one_of("reduce", reduce, REDUCTIONS)
    output = Output(work, "gradient_x_input")
    with output.held_constant():
        y, slope = output.gradients(output.x[None])
    product = slope[0] * output.x
    remainder = (y[0] - product.sum()).item()
    return Made({"gradient_x_input": output.scores(product, reduce)}, facts_of("gradient_x_input", remainder=remainder))
