"""What the two forms of DecompX share."""

from contextlib import AbstractContextManager, nullcontext

from glocal.errors import MemoryBudgetError
from glocal.jacobian.rules import CheapTangents
from glocal.methods._output import refuse
from glocal.models.decompose import BIASES
from glocal.request import Work, one_of


def check(work: Work, name: str, bias: str) -> None:
    """Raise for choices that the decomposition has no meaning for, and where its state does not fit."""
    one_of("bias", bias, BIASES)
    refuse(work, name, origin="embedding_output", source_layer=0)
    seen = work.seen
    tokens, width = seen.hidden[0].shape
    size = 2 * (tokens + 1) * (12 * tokens * width + 3 * seen.heads * tokens**2) * seen.hidden[0].element_size()
    if size > work.request.memory:
        raise MemoryBudgetError(
            f"{name} holds a copy of the text for every token, which does not fit into the memory budget.",
            asked=f"memory={work.request.memory} bytes",
            found=f"about {size} bytes for {tokens} tokens",
            do="give it more memory, or use a shorter text",
        )


def cheap_tangents(work: Work) -> AbstractContextManager:
    """The cheaper rules, where there are enough lanes times tokens for them to pay."""
    tokens = len(work.seen.hidden[0])
    return CheapTangents() if CheapTangents.worth_it(tokens * tokens) else nullcontext()
