"""The output that is explained: one number per text, read from what the whole model returns."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from glocal.choices import SCALES
from glocal.errors import ChoiceError
from glocal.models.instrument import Watcher, watching
from glocal.models.observe import call_arguments
from glocal.models.tokens import Tokens

# What the model returned, the position [row] to read at, and whether norms of that reading are constants -> one number per row.
Reading = Callable[[Any, Tensor, bool], Tensor]


@dataclass(frozen=True)
class Explained:
    """One output of one text.

    `read` gives the output that was asked for; `logit` and `probability` the same choice before and after the softmax, where there is one,
    `right` whether it is the most likely one. `place` is the position whose scores are read; None: the output is one of the whole text.
    """

    name: str
    kind: str  # class, token, similarity, function
    model: PreTrainedModel  # the one that is run: whole, or its body
    read: Reading
    place: int | None = None
    logit: Reading | None = None
    probability: Reading | None = None
    right: Callable[[Any, Tensor], Tensor] | None = None
    encode: Callable[[Any], Tokens] | None = None
    special: Mapping[str, int] = field(default_factory=dict)  # ids of the tokens "mask" and "pad", where there are such

    def reading(self, scale: str) -> Reading:
        """The reading in a scale: "output" as it was asked for, "logit" or "probability"; raises `ChoiceError` where there is none."""
        if scale not in SCALES:
            raise ChoiceError(f"There is no scale {scale!r}.", asked=scale, allowed=", ".join(SCALES), do="choose one of these")
        found = {"output": self.read, "logit": self.logit, "probability": self.probability}[scale]
        if found is None:
            raise ChoiceError(
                f"{self.name} has no {scale}.",
                asked=f"scale={scale!r}",
                found="an output that is not one of several choices",
                allowed="output",
                do="use scale='output', or explain a class or a token",
            )
        return found

    def outputs(self, inputs: Mapping[str, Tensor], places: Tensor, watcher: Watcher | None = None) -> Any:
        """What the model returns for a batch of texts of one length without padding; scores at `places` only, where it is a token's."""
        with watching(watcher or Watcher()), self._short(places), _last_token_found(self.model):
            return self.model(**call_arguments(self.model, inputs), return_dict=True)

    def values(
        self,
        inputs: Mapping[str, Tensor],
        *,
        watcher: Watcher | None = None,
        places: Int[Tensor, " row"] | None = None,
        scale: str = "output",
        frozen: bool = False,
    ) -> Float[Tensor, " row"]:
        """The output of every row; `places` where the position to read at has moved because tokens were taken away."""
        where = self.places(inputs) if places is None else places
        return self.reading(scale)(self.outputs(inputs, where, watcher), where, frozen)

    def places(self, inputs: Mapping[str, Tensor]) -> Int[Tensor, " row"]:
        """The position to read at of every row of unchanged texts."""
        ids = inputs["input_ids"]
        return torch.full((len(ids),), ids.shape[1] - 1 if self.place is None else self.place, device=ids.device)

    @contextmanager
    def _short(self, places: Tensor) -> Iterator[None]:
        """Scores of the vocabulary at the positions to be read only: those of all others would take most of the memory."""
        table = self.model.get_output_embeddings() if self.kind == "token" else None
        if table is None:
            yield
            return

        def only(module: torch.nn.Module, args: tuple) -> tuple:
            rows = torch.arange(len(places), device=places.device)
            return (args[0][rows, places].unsqueeze(1), *args[1:])

        with ExitStack() as undo:
            undo.callback(table.register_forward_pre_hook(only).remove)
            yield


@contextmanager
def _last_token_found(model: PreTrainedModel) -> Iterator[None]:
    """Decoders that classify read their last token that is no padding, and refuse batches where no padding is named.

    Here nothing is ever padded: an id that no token has stands in for the one that is missing.
    """
    config: Any = model.config
    inner = config.get_text_config() if hasattr(config, "get_text_config") else config
    missing = [each for each in {id(config): config, id(inner): inner}.values() if getattr(each, "pad_token_id", 0) is None]
    if not type(model).__name__.endswith("ForSequenceClassification"):
        missing = []
    try:
        for each in missing:
            each.pad_token_id = -1
        yield
    finally:
        for each in missing:
            each.pad_token_id = None


class Entry(Watcher):
    """Puts vectors in at the origin; notes every layer's input; holds attention weights constant if told so."""

    def __init__(self, x: Tensor, *, word: bool, source_layer: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None):
        self.x, self.word, self.source_layer, self.attend = x, word, source_layer, attend
        self.inputs: list[Tensor] = []

    def word_vectors(self, embedded: Tensor) -> Tensor:
        """The rows to start from, if they are word vectors."""
        return self.x if self.word else embedded

    def layer_input(self, index: int, hidden: Tensor) -> Tensor:
        """The rows to start from, at their layer."""
        entering = self.x if not self.word and index == self.source_layer else hidden
        self.inputs.append(entering)
        return entering

    def attention(self, index: int, weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
        """Head outputs, linear in the values if weights are to be constant."""
        return output if self.attend is None else self.attend(weights, values, output)


def rows_of(inputs: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
    """The inputs of one text, as often as there are rows."""
    return {name: value.expand(rows, *value.shape[1:]) for name, value in inputs.items()}
