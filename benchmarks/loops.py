"""The methods as plain loops over tokens, layers or steps, for BERT: what `benchmarks.methods` measures the product against.

They use torch, transformers and networkx alone, take ready inputs, and give what the product gives, so that both can be compared.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import networkx
import numpy
import scipy.linalg
import torch
from torch import Tensor, nn

STEPS = 50
SPARSE = 4


class Case(NamedTuple):
    """A BertForSequenceClassification with attention that shows its weights, one text, and other texts to contrast with."""

    model: Any
    inputs: dict[str, Tensor]
    references: list[dict[str, Tensor]]


class Layer(NamedTuple):
    """One layer of a pass: its input [n, d], attention [head, target, source], values behind W_O [head, source, d], and the sums behind."""

    module: Any
    x: Tensor
    attention: Tensor
    f: Tensor
    first: Tensor  # before the first normaliser
    middle: Tensor
    second: Tensor  # before the second
    output: Tensor


@torch.no_grad()
def passed(case: Case) -> list[Layer]:
    """The layers of one pass, with what the loops over contributions need."""
    outputs = case.model(**case.inputs, output_attentions=True, output_hidden_states=True)
    made = []
    for module, x, attention, output in zip(
        case.model.bert.encoder.layer, outputs.hidden_states[:-1], outputs.attentions, outputs.hidden_states[1:], strict=True
    ):
        own, dense = module.attention.self, module.attention.output.dense
        heads = own.num_attention_heads
        v = own.value(x[0]).view(x.shape[1], heads, -1).transpose(0, 1)
        f = v @ dense.weight.view(len(dense.weight), heads, -1).permute(1, 2, 0)
        first = (attention[0] @ f).sum(0) + dense.bias + x[0]
        middle = module.attention.output.LayerNorm(first)
        second = module.output.dense(module.intermediate(middle)) + middle
        made.append(Layer(module, x[0], attention[0], f, first, middle, second, output[0]))
    return made


def normed(norm: nn.LayerNorm, vectors: Tensor, whole: Tensor) -> Tensor:
    """A normaliser's linear part at `whole`, without its bias."""
    spread = (whole.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    return (vectors - vectors.mean(-1, keepdim=True)) / spread * norm.weight


def by_token(case: Case, *, residual: bool, norms: int, score: Callable[[Layer, int, Tensor], Tensor]) -> Tensor:
    """Scores [layer, target, source] of what every source adds, one target and source after the other."""
    made = []
    with torch.no_grad():
        for layer in passed(case):
            n = len(layer.x)
            found = torch.zeros(n, n)
            for i in range(n):
                for j in range(n):
                    vector = (layer.attention[:, i, j, None] * layer.f[:, j]).sum(0)
                    if residual and i == j:
                        vector = vector + layer.x[i]
                    if norms > 0:
                        vector = normed(layer.module.attention.output.LayerNorm, vector, layer.first[i])
                    if norms > 1:
                        vector = normed(layer.module.output.LayerNorm, vector, layer.second[i])
                    found[i, j] = score(layer, i, vector)
            made.append(found)
    return torch.stack(made)


def by_layer(case: Case, *, residual: bool, norms: int, score: Callable[[Layer, slice, Tensor], Tensor]) -> Tensor:
    """The same with all vectors of a layer at once."""
    made = []
    with torch.no_grad():
        for layer in passed(case):
            vectors = torch.einsum("hij,hjd->ijd", layer.attention, layer.f)
            if residual:
                vectors = vectors + torch.eye(len(layer.x))[..., None] * layer.x
            if norms > 0:
                vectors = normed(layer.module.attention.output.LayerNorm, vectors, layer.first[:, None])
            if norms > 1:
                vectors = normed(layer.module.output.LayerNorm, vectors, layer.second[:, None])
            made.append(score(layer, slice(None), vectors))
    return torch.stack(made)


def length(layer: Layer, place: int | slice, vectors: Tensor) -> Tensor:
    return vectors.norm(dim=-1)


def nearness(layer: Layer, place: int | slice, vectors: Tensor) -> Tensor:
    """ALTI's, before rows are made to sum to one."""
    output = layer.middle[place] if isinstance(place, int) else layer.middle[place, None]
    return (output.abs().sum(-1) - (output - vectors).abs().sum(-1)).clamp(min=0)


def shares(maps: Tensor) -> Tensor:
    return maps / maps.sum(-1, keepdim=True)


def rolled(maps: Tensor) -> Tensor:
    """Products of the maps up to every layer."""
    made = [maps[0]]
    for each in maps[1:]:
        made.append(each @ made[-1])
    return torch.stack(made)


@torch.no_grad()
def attention(case: Case) -> Tensor:
    return torch.cat(case.model(**case.inputs, output_attentions=True).attentions)


def half(case: Case) -> Tensor:
    maps = attention(case).mean(1)
    return 0.5 * maps + 0.5 * torch.eye(maps.shape[-1])


def effective_attention(case: Case) -> Tensor:
    """One head after the other, with scipy."""
    made = []
    for layer in passed(case):
        for weights, f in zip(layer.attention, layer.f, strict=True):
            null = torch.from_numpy(scipy.linalg.null_space(f.numpy().T))
            made.append(weights - weights @ null @ null.T)
    return torch.stack(made).view(len(case.model.bert.encoder.layer), -1, *made[0].shape)


def attn_n_head_by_token(case: Case) -> Tensor:
    made = []
    for layer in passed(case):
        found = torch.zeros_like(layer.attention)
        for head, i, j in numpy.ndindex(*layer.attention.shape):
            found[head, i, j] = (layer.attention[head, i, j] * layer.f[head, j]).norm()
        made.append(found)
    return torch.stack(made)


def attn_n_head_by_layer(case: Case) -> Tensor:
    return torch.stack([torch.einsum("hij,hjd->hijd", layer.attention, layer.f).norm(dim=-1) for layer in passed(case)])


@contextlib.contextmanager
def hooked(module: nn.Module, hook: Callable) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def value_zeroing(case: Case) -> Tensor:
    """Every layer anew for every token, as its authors do."""
    states = case.model(**case.inputs, output_hidden_states=True).hidden_states
    made = []
    for module, x, output in zip(case.model.bert.encoder.layer, states[:-1], states[1:], strict=True):
        columns = []
        for j in range(x.shape[1]):

            def without(_: object, __: object, value: Tensor, j: int = j) -> Tensor:
                value[:, j] = 0
                return value

            with hooked(module.attention.self.value, without):
                changed = module(x)
            changed = changed[0] if isinstance(changed, tuple) else changed
            columns.append(1 - torch.cosine_similarity(changed[0], output[0], dim=-1))
        made.append(torch.stack(columns, 1))
    return shares(torch.stack(made))


def flow(case: Case, *, all_layers: bool) -> Tensor:
    """Maximum flows with networkx, one pair after the other: of every layer one target and every `SPARSE`th source, NaN elsewhere.

    `all_layers`: in the graph of the whole model and by augmenting paths, as the method's authors have it; or in that of the layers
    below, by networkx's own choice.
    """
    maps = half(case)
    layers, n, _ = maps.shape
    found = torch.full((layers, n, n), float("nan"))
    choice = {"flow_func": networkx.algorithms.flow.edmonds_karp} if all_layers else {}
    for number in range(layers):
        graph = networkx.DiGraph()
        for below in range(layers if all_layers else number + 1):
            for i, j in numpy.ndindex(n, n):
                graph.add_edge((below + 1, i), (below, j), capacity=maps[below, i, j].item())
        i = 5 * number % n
        for j in range(0, n, SPARSE):
            found[number, i, j] = networkx.maximum_flow_value(graph, (number + 1, i), (0, j), **choice)
    return found


@torch.no_grad()
def decompx(case: Case) -> tuple[Tensor, Tensor]:
    """Vectors [target, source, d] carried from layer to layer, biases by AbsDot; their norms, and what each adds to the predicted class."""
    layers = passed(case)
    vectors = torch.diag_embed(layers[0].x.T).permute(1, 2, 0)
    norms = []
    for layer in layers:
        own, output = layer.module.attention.self, layer.module.attention.output
        heads = own.num_attention_heads
        v = (vectors @ own.value.weight.T).view(*vectors.shape[:2], heads, -1)
        mixed = torch.einsum("hij,jkhe->ikhe", layer.attention, v).flatten(2)
        after = shared(output.dense.bias + output.dense.weight @ own.value.bias, mixed @ output.dense.weight.T)
        vectors = shared(output.LayerNorm.bias, normed(output.LayerNorm, after + vectors, layer.first[:, None]))
        up = shared(layer.module.intermediate.dense.bias, vectors @ layer.module.intermediate.dense.weight.T)
        total = layer.module.intermediate.dense(layer.middle)
        down = (up * (nn.functional.gelu(total) / total)[:, None]) @ layer.module.output.dense.weight.T
        down = shared(layer.module.output.dense.bias, down)
        vectors = shared(layer.module.output.LayerNorm.bias, normed(layer.module.output.LayerNorm, down + vectors, layer.second[:, None]))
        norms.append(vectors.norm(dim=-1))
    pooler, classifier = case.model.bert.pooler.dense, case.model.classifier
    first = shared(pooler.bias, vectors[:1] @ pooler.weight.T)
    total = pooler(layers[-1].output[0])
    added = shared(classifier.bias, first * (total.tanh() / total) @ classifier.weight.T)[0]
    return torch.stack(norms), added[:, int(added.sum(0).argmax())]


def shared(bias: Tensor, vectors: Tensor) -> Tensor:
    """Vectors [target, source, d] with a bias shared out by the size of its product with them."""
    sizes = (vectors @ bias).abs()
    return vectors + (sizes / sizes.sum(-1, keepdim=True).clamp(min=1e-30))[..., None] * bias


def logits(case: Case, x: Tensor | None = None, words: Tensor | None = None) -> Tensor:
    """Logits from the embedding block's output, from word vectors, or of the text."""
    if x is None:
        return case.model(**(case.inputs if words is None else {**masked(case), "inputs_embeds": words})).logits[0]
    hidden = x
    for module in case.model.bert.encoder.layer:
        hidden = module(hidden)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    return case.model.classifier(case.model.bert.pooler(hidden))[0]


def masked(case: Case) -> dict[str, Tensor]:
    return {"attention_mask": case.inputs["attention_mask"]}


@torch.no_grad()
def start(case: Case) -> tuple[Tensor, int]:
    """The embedding block's output, and the predicted class."""
    outputs = case.model(**case.inputs, output_hidden_states=True)
    return outputs.hidden_states[0], int(outputs.logits[0].argmax())


def slope(case: Case, x: Tensor, number: int) -> Tensor:
    point = x.clone().requires_grad_()
    return torch.autograd.grad(logits(case, point)[number], point)[0][0]


def gradient(case: Case) -> Tensor:
    x, number = start(case)
    return slope(case, x, number).norm(dim=-1)


def gradient_x_input(case: Case) -> Tensor:
    x, number = start(case)
    return (slope(case, x, number) * x[0]).norm(dim=-1)


def integrated_gradients(case: Case) -> Tensor:
    """One step after the other."""
    x, number = start(case)
    places, weights = numpy.polynomial.legendre.leggauss(STEPS)
    total = sum(weight / 2 * slope(case, x * (place + 1) / 2, number) for place, weight in zip(places, weights, strict=True))
    return (total * x[0]).sum(-1)


@torch.no_grad()
def occlusion(case: Case) -> Tensor:
    """One token after the other."""
    words = case.model.bert.embeddings.word_embeddings(case.inputs["input_ids"])
    whole = logits(case, words=words)
    number = int(whole.argmax())
    return torch.stack([whole[number] - logits(case, words=erased(words, j))[number] for j in range(words.shape[1])])


@torch.no_grad()
def head_occlusion(case: Case) -> Tensor:
    """One token after the other."""
    words = case.model.bert.embeddings.word_embeddings(case.inputs["input_ids"])
    whole = head_outputs(case, words)
    made = torch.stack([(head_outputs(case, erased(words, j)) - whole).norm(dim=-1) for j in range(words.shape[1])])
    return made.permute(1, 3, 2, 0)


def erased(words: Tensor, j: int) -> Tensor:
    words = words.clone()
    words[:, j] = 0
    return words


def head_outputs(case: Case, words: Tensor) -> Tensor:
    """Outputs [layer, target, head, width] of all heads, read where they enter the output projection."""
    found = []
    with contextlib.ExitStack() as hooks:
        for module in case.model.bert.encoder.layer:
            hooks.enter_context(hooked(module.attention.output.dense, lambda _, args, __: found.append(args[0][0])))
        case.model.bert(inputs_embeds=words, **masked(case))
    states = torch.stack(found)
    return states.view(*states.shape[:2], case.model.config.num_attention_heads, -1)


def slopes(case: Case) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Layer inputs, the output's gradients there, and attention, by one pass back."""
    outputs = case.model(**case.inputs, output_hidden_states=True, output_attentions=True)
    states = list(outputs.hidden_states[:-1])
    gradients = torch.autograd.grad(outputs.logits[0].max(), states)
    return [each[0].detach() for each in states], [each[0] for each in gradients], [each[0].detach() for each in outputs.attentions]


def attcat(case: Case) -> Tensor:
    states, gradients, weights = slopes(case)
    return sum((g * h).sum(-1) * a.mean((0, 1)) for h, g, a in zip(states, gradients, weights, strict=True))


def contrast_cat(case: Case) -> Tensor:
    """A pass for every reference, and one for every point of its deletion curve."""
    states, gradients, weights = slopes(case)
    maps, scores = [], []
    with torch.no_grad():
        whole = logits(case)
        number, inner = int(whole.argmax()), range(1, len(states[0]) - 1)
        for reference in case.references:
            others = case.model(**reference, output_hidden_states=True).hidden_states
            found = torch.zeros(len(states[0]))
            for h, g, a, r in zip(states, gradients, weights, others, strict=False):
                other = torch.zeros_like(h)
                other[: r.shape[1]] = r[0, : len(h)]
                found += (g * (h - other)).sum(-1) * a.mean((0, 1))
            order = sorted(inner, key=lambda place: -found[place])
            falls = []
            for step in range(1, 11):
                gone = set(order[: round(len(order) * step / 10)])
                left = [place for place in range(len(found)) if place not in gone]
                falls.append(whole[number] - case.model(**{name: each[:, left] for name, each in case.inputs.items()}).logits[0, number])
            maps.append((found - found.min()) / (found.max() - found.min()))
            scores.append(torch.stack(falls).mean())
    marks = torch.stack(scores)
    kept = [each for each, mark in zip(maps, scores, strict=True) if mark >= marks.mean() + marks.std(correction=0)]
    mean = torch.stack(kept or [maps[int(marks.argmax())]]).mean(0)
    return (mean - mean.min()) / (mean.max() - mean.min())


class Loop(NamedTuple):
    """A loop, what it goes over, and which part of it is run."""

    over: str
    run: Callable[[Case], Tensor]
    fraction: float = 1


def contributions(**choices: Any) -> list[Loop]:
    after = choices.pop("after", lambda maps: maps)
    return [
        Loop("targets and sources", lambda case: after(by_token(case, **choices))),
        Loop("layers", lambda case: after(by_layer(case, **choices))),
    ]


def loops(tokens: int) -> dict[str, list[Loop]]:
    """By method, for a text of this many tokens."""
    globenc = {"residual": True, "norms": 2, "score": length}
    alti = {"residual": True, "norms": 1, "score": nearness}
    return {
        "attention": [Loop("nothing: the pass", attention)],
        "effective_attention": [Loop("heads", effective_attention)],
        "attn_n_head": [Loop("targets and sources", attn_n_head_by_token), Loop("layers", attn_n_head_by_layer)],
        "attn_n": contributions(residual=False, norms=0, score=length),
        "attnres_n": contributions(residual=True, norms=0, score=length),
        "attnresln_n": contributions(residual=True, norms=1, score=length),
        "globenc": contributions(**globenc),
        "alti": contributions(**alti, after=shares),
        "value_zeroing": [Loop("layers and sources", value_zeroing)],
        "rollout": [Loop("layers", lambda case: rolled(half(case)))],
        "globenc_rollout": contributions(**globenc, after=rolled),
        "alti_rollout": contributions(**alti, after=lambda maps: rolled(shares(maps))),
        "value_zeroing_rollout": [Loop("layers and sources", lambda case: rolled(value_zeroing(case)))],
        "flow": [
            Loop("layers, targets and sources", lambda case: flow(case, all_layers=False), 1 / SPARSE / tokens),
            Loop("the same, as its authors", lambda case: flow(case, all_layers=True), 1 / SPARSE / tokens),
        ],
        "decompx": [Loop("layers", lambda case: decompx(case)[0])],
        "decompx_output": [Loop("layers", lambda case: decompx(case)[1])],
        "gradient": [Loop("nothing: one gradient", gradient)],
        "gradient_x_input": [Loop("nothing: one gradient", gradient_x_input)],
        "integrated_gradients": [Loop("steps", integrated_gradients)],
        "attcat": [Loop("nothing: one gradient", attcat)],
        "contrast_cat": [Loop("references and fractions", contrast_cat)],
        "occlusion": [Loop("sources", occlusion)],
        "head_occlusion": [Loop("sources", head_occlusion)],
    }
