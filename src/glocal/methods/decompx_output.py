"""DecompX to an output: how much of a logit each token of the text gave."""

from glocal.methods._decompx import cheap_tangents, check
from glocal.methods._output import Output, facts_of
from glocal.models.decompose import decompose
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="what each token of the text adds to the output, through all layers and the head (to an output)",
    source="Modarressi et al. 2023 (DecompX, 2306.02873)",
    needs="explain=..., and modules that can be held constant, also in the head",
    cost="one pass of n copies of the text; no gradient",
    limits="as decompx; logits, differences of logits and similarities only, not probabilities",
    extra=(("unit", "output"), ("to", "output")),
)
def decompx_output(work: Work, *, bias: str = "absdot") -> Made:
    """y_{<= source}, signed, in units of y: with shared biases sum over sources y_{<= source} = y.

    As `decompx`, through the head as well. With `bias="source"` or "none" the fact `bias` is what is left for the biases. Raises
    `FreezeError` where the sum misses y by more than 1e-5 (probabilities, heads with other nonlinearities), and what `decompx` raises.
    """
    check(work, "decompx_output", bias)
    output = Output(work, "decompx_output")
    with cheap_tangents(work):
        found = decompose(output.explained.model, work.seen, bias=bias, explained=output.explained, keep=False)
    assert found.output is not None
    tokens = len(work.seen.hidden[0])
    facts = facts_of("decompx_output", bias=found.output[tokens:].sum().item(), largest_gap=found.largest_gap)
    return Made({"decompx_output": output.grouped(found.output[:tokens])}, facts)
