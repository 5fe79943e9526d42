"""AttCAT: gradient times input at every layer, weighed by attention."""

from glocal.methods._cat import slopes, weighed
from glocal.methods._output import Output, refuse
from glocal.registry import registered
from glocal.request import Made, Work


@registered(
    summary="gradient times hidden state of every layer, weighed by the attention a token gets (to an output)",
    source="Qiang et al. 2022 (AttCAT); as given in Contrast-CAT (2507.21186)",
    needs="explain=..., one pass with its gradient",
    cost="about as three passes",
    limits="a hidden state stands for the token at its position, though the layers below have mixed it with others",
    extra=(("unit", "output, summed over layers"), ("to", "output")),
)
def attcat(work: Work, *, attention: bool = True) -> Made:
    """S[source] = sum_l a_source^l sum_d (dy / dh_{source,d}^l) h_{source,d}^l, signed.

    h^l is the input of layer l, a^l the mean over heads and query positions of its attention; `attention=False` leaves a out (CAT).
    Groups add up. Raises `ChoiceError` without `explain` or with a source layer or `freeze`, `MemoryBudgetError`.
    """
    refuse(work, "attcat", source_layer=0, freeze=())
    output = Output(work, "attcat")
    _, gradients = slopes(work, output)
    return Made({"attcat": output.grouped(weighed(work, gradients, attention=attention))}, {})
