"""What methods to an output share: the output as a function of the vectors that it is attributed to, and its gradient."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import ChoiceError, MemoryBudgetError
from glocal.models.explained import Entry, Explained, rows_of
from glocal.models.freeze import FunctionsConstant, frozen, with_tangent_of
from glocal.models.outputs import attend, check_attention_is_linear_in_values
from glocal.request import Work

REDUCTIONS = ("l2", "sum", "l1")


def explained_by(work: Work, name: str) -> Explained:
    """The output that is explained; raises `ChoiceError` where none was named."""
    if work.explained is None:
        raise ChoiceError(
            f"{name} explains an output of the model, and none was named.",
            asked=f"methods with {name!r}",
            allowed='explain="class:NAME", "predicted_class", "next_token", "masked_token", "similarity:TEXT" or a function, among others',
            do="pass explain=...",
        )
    return work.explained


def refuse(work: Work, name: str, **wrong: object) -> None:
    """Raise `ChoiceError` for arguments of `analyze` that the method called `name` has no meaning for."""
    for argument, allowed in wrong.items():
        if getattr(work.request, argument) != allowed:
            raise ChoiceError(
                f"{name} cannot follow {argument}.",
                asked=f"{argument}={getattr(work.request, argument)!r}",
                allowed=f"{argument}={allowed!r}",
                do=f"leave {argument} out",
            )


class Output:
    """y as a function of the vectors at the origin; rows of altered vectors are run together, as many as fit."""

    def __init__(self, work: Work, name: str):
        self.work, self.name, self.explained = work, name, explained_by(work, name)
        self.start = work.request.start
        self.x: Float[Tensor, "source width"] = self.start.point(work.seen)
        if "attention" in work.request.freeze:
            check_attention_is_linear_in_values(work.seen)

    def entry(self, rows: Tensor) -> Entry:
        """Where `rows` are put in."""
        held = with_constant_weights if "attention" in self.work.request.freeze else None
        return Entry(rows, word=self.start.word, source_layer=self.start.source_layer, attend=held)

    def __call__(self, rows: Float[Tensor, "row source width"]) -> Float[Tensor, " row"]:
        """y of every row; differentiable."""
        return self.explained.values(
            rows_of(self.work.seen.inputs, len(rows)), watcher=self.entry(rows), frozen=bool(self.work.request.freeze)
        )

    @contextmanager
    def held_constant(self) -> Iterator[None]:
        """Normalisers and activations held constant, where the request says so."""
        functions = FunctionsConstant() if "activation" in self.work.request.freeze else nullcontext()
        with frozen(self.explained.model, self.work.request.freeze, self._run_once), functions:
            yield

    def _run_once(self) -> object:
        self.explained.values(self.work.seen.inputs)
        return self.work.seen

    def gradients(self, rows: Float[Tensor, "row source width"]) -> tuple[Float[Tensor, " row"], Float[Tensor, "row source width"]]:
        """y and dy/dx of every row."""
        values, found = [], []
        for some in rows.split(rows_at_once(self.work, self.name, gradient=True)):
            with torch.enable_grad():
                point = some.detach().clone().requires_grad_(True)
                y = self(point)
                found.append(gradient_of(y, [point], self.explained.name)[0])
            values.append(y.detach())
        return torch.cat(values), torch.cat(found)

    def scores(self, vectors: Float[Tensor, "token width"], reduce: str) -> Float[Tensor, " source"]:
        """One number per source: "l2", "sum" or "l1" over the components, of groups over all their tokens' components."""
        if reduce == "l2":
            return self.grouped(vectors.square().sum(-1)).sqrt()
        return self.grouped((vectors if reduce == "sum" else vectors.abs()).sum(-1))

    def grouped(self, values: Float[Tensor, " token"]) -> Float[Tensor, " source"]:
        """Sums over the tokens of every group."""
        groups = self.work.request.groups
        if groups is None:
            return values
        places = torch.tensor(groups, device=values.device)
        return values.new_zeros(int(places.max()) + 1).index_add_(0, places, values)


def with_constant_weights(weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
    """The head outputs with the derivative that they have while the weights stay as they are."""
    return with_tangent_of(output, attend(weights.detach(), values))


def gradient_of(y: Tensor, points: list[Tensor], name: str) -> tuple[Tensor, ...]:
    """dy/d(point) of every point; raises `ChoiceError` if y does not depend on them."""
    if not y.requires_grad:
        raise ChoiceError(
            "The output has no gradient.",
            asked=f"explain={name!r}",
            found="a value that was taken out of the graph, or does not depend on the text",
            allowed="a differentiable function of the outputs",
            do="return a tensor computed from the outputs, without .item() or .detach(); or use occlusion",
        )
    return torch.autograd.grad(y.sum(), points)


def rows_at_once(work: Work, name: str, *, gradient: bool, tokens: int | None = None) -> int:
    """How many texts fit into the memory budget together: a pass holds a layer's inner states, with a gradient those of all layers."""
    seen = work.seen
    count, width = seen.hidden[0].shape
    count = tokens or count
    inner = 16 * count * width + 4 * seen.heads * count**2
    numbers = inner * (2 * seen.layers if gradient else 2) + _scores(work, count)
    size = numbers * seen.hidden[0].element_size()
    fits = work.request.memory // size
    if fits < 1:
        raise MemoryBudgetError(
            f"Not even one pass of {name} fits into the memory budget.",
            asked=f"memory={work.request.memory} bytes",
            found=f"about {size} bytes",
            do="give it more memory",
        )
    return int(min(fits, 64))


def _scores(work: Work, tokens: int) -> int:
    """Numbers that a head puts out: one row of the vocabulary where a token is explained, all of them for a user's function."""
    explained = work.explained
    table = None if explained is None else explained.model.get_output_embeddings()
    if explained is None or table is None:
        return 0
    vocabulary: int = table.weight.shape[0]  # pyright: ignore[reportAssignmentType, reportAttributeAccessIssue]
    return 3 * vocabulary * (1 if explained.kind == "token" else tokens)


def sources_of(work: Work) -> Float[Tensor, "source token"]:
    """1 where a token belongs to a source."""
    groups = work.request.groups
    count = len(work.seen.hidden[0])
    of = torch.arange(count) if groups is None else torch.tensor(groups)
    return (of == torch.arange(int(of.max()) + 1)[:, None]).to(work.seen.hidden[0])


def facts_of(name: str, **found: object) -> dict[str, Any]:
    """Facts of the method called `name`, for the Story's attribute `explained`."""
    return {"explained": {name: found}}
