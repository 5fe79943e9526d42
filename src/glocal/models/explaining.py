"""What `explain=` may be -> the output that is explained."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from glocal.errors import ChoiceError, ModelError
from glocal.models.encode import encode
from glocal.models.explained import Explained, Reading
from glocal.models.instrument import Watcher, watching
from glocal.models.observe import call_arguments
from glocal.models.tokens import Tokens

KINDS = ("class", "predicted_class", "probability", "next_token", "token", "masked_token", "difference", "similarity")
# Outputs that are one of several choices, and so have a probability.
CHOICES = ("class", "predicted_class", "next_token", "token", "masked_token")
_FORMS = (
    "class:NAME, predicted_class, probability, probability:TARGET, next_token, next_token:TEXT, token:POSITION, masked_token, "
    "masked_token:TEXT, difference:A/B, similarity:TEXT, or a function of the model's outputs"
)


def explained_of(explain: str | Callable, whole: PreTrainedModel, network: PreTrainedModel, tokenizer: Any, tokens: Tokens) -> Explained:
    """The output of this text; `network` is the body of `whole`. Both must be instrumented.

    Raises `ChoiceError` for a target that cannot be read, `ModelError` where the model lacks the head for it.
    """
    found = _Asked(explain, whole, network, tokenizer, tokens)
    made = replace(found.function() if callable(explain) else found.named(), encode=found.encode, special=_special(tokenizer))
    with torch.no_grad():
        value = made.values(tokens.inputs)
    if not bool(value.isfinite().all()):
        raise _not_a_number(made.name, value)
    return made


def _not_a_number(name: str, value: Any) -> ChoiceError:
    return ChoiceError(
        "What is to be explained is not one finite number.",
        asked=f"explain={name!r}",
        found=f"shape {tuple(value.shape)}, values {value.flatten()[:4].tolist()}" if isinstance(value, Tensor) else repr(value)[:80],
        allowed="a function of the outputs of one text that gives a number",
        do="return one entry of the outputs, or their sum",
    )


def _number(name: str, value: Any) -> Tensor:
    if isinstance(value, int | float):
        return torch.tensor(float(value))
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        raise _not_a_number(name, value)
    return value.reshape(())


def check_kind(explain: Any) -> None:
    """Raise `ChoiceError` unless `explain` is a function, or a text that begins with a known kind."""
    if callable(explain) or (isinstance(explain, str) and explain.partition(":")[0] in KINDS):
        return
    raise ChoiceError("There is no such target.", asked=f"explain={explain!r}", allowed=_FORMS, do="choose one of these")


class _Asked:
    """One call of `explained_of`."""

    def __init__(self, explain: Any, whole: PreTrainedModel, network: PreTrainedModel, tokenizer: Any, tokens: Tokens):
        check_kind(explain)
        self.explain, self.whole, self.network, self.tokenizer, self.tokens = explain, whole, network, tokenizer, tokens
        self.encode = lambda text: encode(text, network, tokenizer)

    def function(self) -> Explained:
        """A user's function, which sees the outputs of one text at a time."""
        name = getattr(self.explain, "__name__", type(self.explain).__name__)

        def read(outputs: Any, places: Tensor, frozen: bool) -> Tensor:
            return torch.stack([_number(name, self.explain(_row(outputs, row))) for row in range(len(places))])

        return Explained(name, "function", self.whole, read)

    def named(self) -> Explained:
        """A kind with its argument."""
        kind, colon, argument = self.explain.partition(":")
        if kind == "probability":
            inner = argument if argument.partition(":")[0] in CHOICES else f"class:{argument}"
            made = _Asked(inner if colon else "predicted_class", self.whole, self.network, self.tokenizer, self.tokens).named()
            assert made.probability is not None
            return replace(made, name=f"probability of {made.name}", read=made.probability)
        needs = kind in ("class", "token", "difference", "similarity")
        if (needs and not argument) or (kind == "predicted_class" and colon):
            raise self._error("its argument is missing" if needs else "it has no argument")
        return getattr(self, f"_{kind}")(argument)

    def _class(self, argument: str) -> Explained:
        return self._of_class(self._class_number(argument))

    def _predicted_class(self, argument: str) -> Explained:
        return self._of_class(int(self._logits(2, "classes", "AutoModelForSequenceClassification")[0].argmax()))

    def _next_token(self, argument: str) -> Explained:
        self._require_causal("next_token")
        return self._of_token(len(self.tokens) - 1, argument, "next_token")

    def _token(self, argument: str) -> Explained:
        first = 1 if self._causal() else 0
        if not argument.isdigit() or not first <= int(argument) < len(self.tokens):
            raise self._error(f"positions of this text whose token is predicted go from {first} to {len(self.tokens) - 1}")
        position = int(argument)
        return self._of_token(position - first, f"#{self.tokens.token_id[position]}", f"token at {position}")

    def _masked_token(self, argument: str) -> Explained:
        return self._of_token(self._mask(), argument, "masked_token")

    def _difference(self, argument: str) -> Explained:
        one, slash, other = argument.partition("/")
        if not slash or not one or not other:
            raise self._error("two choices with a slash between them are needed")
        logits = self._logits(None, "scores", "a model with a head")
        if logits.dim() == 2:
            pair, scores, place, kind = (self._class_number(one), self._class_number(other)), _classes, None, "class"
        else:
            place = len(self.tokens) - 1 if self._causal() else self._mask()
            pair, scores, kind = (self._token_number(one), self._token_number(other)), _vocabulary, "token"
        read: Reading = lambda outputs, places, frozen: scores(outputs, places)[:, pair[0]] - scores(outputs, places)[:, pair[1]]  # noqa: E731
        return Explained(f"difference:{one}/{other}", kind, self.whole, read, place=place)

    def _similarity(self, argument: str) -> Explained:
        with torch.no_grad():
            other = _mean(self.network(**call_arguments(self.network, self.encode(argument).inputs), return_dict=True))[0]
        direction = other / other.norm()

        def read(outputs: Any, places: Tensor, frozen: bool) -> Tensor:
            mean = _mean(outputs)
            length = mean.norm(dim=-1)
            return mean @ direction / (length.detach() if frozen else length)

        return Explained(f"similarity:{argument}", "similarity", self.network, read)

    def _of_class(self, number: int) -> Explained:
        name = (getattr(self.whole.config, "id2label", None) or {}).get(number, number)
        return self._choice(f"class:{name}", "class", _classes, number, None)

    def _of_token(self, place: int, argument: str, kind: str) -> Explained:
        logits = self._logits(3, "scores of tokens", "AutoModelForCausalLM or AutoModelForMaskedLM")
        number = self._token_number(argument) if argument else int(logits[0, place].argmax())
        shown = self.tokenizer.convert_ids_to_tokens(number) if self.tokenizer is not None else f"#{number}"
        return self._choice(f"{kind}:{shown}", "token", _vocabulary, number, place)

    def _choice(self, name: str, kind: str, scores: Callable[[Any, Tensor], Tensor], number: int, place: int | None) -> Explained:
        logit: Reading = lambda outputs, places, frozen: scores(outputs, places)[:, number]  # noqa: E731
        likely: Reading = lambda outputs, places, frozen: scores(outputs, places).softmax(-1)[:, number]  # noqa: E731
        right = lambda outputs, places: scores(outputs, places).argmax(-1) == number  # noqa: E731
        return Explained(name, kind, self.whole, logit, place, logit, likely, right)

    def _class_number(self, argument: str) -> int:
        logits = self._logits(2, "classes", "AutoModelForSequenceClassification")
        names = {number: str(name) for number, name in (getattr(self.whole.config, "id2label", None) or {}).items()}
        found = [number for number, name in names.items() if name.casefold() == argument.strip().casefold()]
        if not found and argument.strip().isdigit() and int(argument) < logits.shape[1]:
            found = [int(argument)]
        if len(found) != 1:
            raise self._error(f"the classes are {', '.join(names.values())}, or numbers from 0 to {logits.shape[1] - 1}")
        return found[0]

    def _token_number(self, argument: str) -> int:
        size = self._logits(3, "scores of tokens", "AutoModelForCausalLM or AutoModelForMaskedLM").shape[-1]
        if argument.startswith("#") and argument[1:].isdigit() and int(argument[1:]) < size:
            return int(argument[1:])
        if self.tokenizer is None:
            raise self._error(f"without a tokenizer tokens are numbers from #0 to #{size - 1}")
        numbers = self.tokenizer(argument, add_special_tokens=False)["input_ids"]
        if len(numbers) != 1:
            raise self._error(f"{argument!r} is {len(numbers)} tokens: {' '.join(map(str, self.tokenizer.convert_ids_to_tokens(numbers)))}")
        return numbers[0]

    def _mask(self) -> int:
        number = getattr(self.tokenizer, "mask_token_id", None)
        places = [place for place, each in enumerate(self.tokens.token_id) if each == number]
        if number is None or len(places) != 1:
            name = getattr(self.tokenizer, "mask_token", None)
            raise self._error(f"the text needs the mask token {name!r} exactly once; it has it {len(places)} times")
        return places[0]

    def _causal(self) -> bool:
        name = type(self.whole).__name__
        return name.endswith(("ForCausalLM", "LMHeadModel"))

    def _require_causal(self, kind: str) -> None:
        if not self._causal():
            raise ModelError(
                f"{type(self.whole).__name__} does not predict a next token.",
                asked=f"explain={self.explain!r}",
                allowed="causal language models",
                do=f"pass an AutoModelForCausalLM, or explain masked_token or class instead of {kind}",
            )

    def _logits(self, dimensions: int | None, what: str, head: str) -> Tensor:
        with torch.no_grad(), watching(Watcher()):
            outputs = self.whole(**call_arguments(self.whole, self.tokens.inputs), return_dict=True)
        logits = getattr(outputs, "logits", None)
        if logits is None or (dimensions is not None and logits.dim() != dimensions):
            raise ModelError(
                f"{type(self.whole).__name__} gives no {what}.",
                asked=f"explain={self.explain!r}",
                found=f"outputs {', '.join(outputs.keys())}" + ("" if logits is None else f", logits of shape {tuple(logits.shape)}"),
                allowed=f"a model with the head for it ({head})",
                do="pass such a model, or explain another output",
            )
        return logits

    def _error(self, said: str) -> ChoiceError:
        return ChoiceError(
            f"The target cannot be read: {said}.", asked=f"explain={self.explain!r}", allowed=_FORMS, do="choose one of these"
        )


def _special(tokenizer: Any) -> dict[str, int]:
    found = {name: getattr(tokenizer, f"{name}_token_id", None) for name in ("mask", "pad")}
    return {name: number for name, number in found.items() if isinstance(number, int)}


def _classes(outputs: Any, places: Tensor) -> Tensor:
    return outputs.logits


def _vocabulary(outputs: Any, places: Tensor) -> Tensor:
    logits = outputs.logits
    return logits[:, 0] if logits.shape[1] == 1 else logits[torch.arange(len(places), device=places.device), places]


def _mean(outputs: Any) -> Tensor:
    return outputs.last_hidden_state.mean(1)


def _row(outputs: Any, row: int) -> Any:
    """What the model would have returned for this text alone."""
    if isinstance(outputs, Tensor):
        return outputs[row : row + 1] if outputs.dim() else outputs
    if isinstance(outputs, tuple | list):
        return type(outputs)(_row(each, row) for each in outputs)
    return type(outputs)(**{key: _row(value, row) for key, value in outputs.items()}) if isinstance(outputs, ModelOutput) else outputs
