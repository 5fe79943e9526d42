"""Methods to an output once more, naively and by their formulas, for a plain BERT classifier in float64: the product's code is not used."""

import torch
from torch import Tensor
from torch.nn.functional import gelu

EPSILON = 1e-12


class PlainClassifier:
    """BertForSequenceClassification as functions of the embedding block's output, written from its weights."""

    def __init__(self, model, numbers: list[int]):
        self.model, self.numbers = model, numbers
        self.heads = model.config.num_attention_heads
        self.layers = list(model.bert.encoder.layer)

    @torch.no_grad()
    def embedded(self, words: Tensor | None = None, numbers: list[int] | None = None) -> Tensor:
        """The embedding block, of these word vectors or ids if given."""
        own, ids = self.model.bert.embeddings, torch.tensor(numbers or self.numbers)
        x = own.word_embeddings.weight[ids] if words is None else words
        return normed(own.LayerNorm, x + own.position_embeddings.weight[: len(ids)] + own.token_type_embeddings.weight[0])

    def hidden(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """All layer inputs and the last output, and all attention weights."""
        states, weights = [x], []
        for layer in self.layers:
            attention, value = self.attention(layer, states[-1])
            z = (attention @ value).transpose(0, 1).reshape(len(x), -1)
            middle = normed(layer.attention.output.LayerNorm, linear(layer.attention.output.dense, z) + states[-1])
            inner = gelu(linear(layer.intermediate.dense, middle))
            states.append(normed(layer.output.LayerNorm, linear(layer.output.dense, inner) + middle))
            weights.append(attention)
        return states, weights

    def attention(self, layer, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [head, target, source] and values [head, source, width]."""
        own = layer.attention.self
        split = lambda part: linear(part, x).view(len(x), self.heads, -1).transpose(0, 1)  # noqa: E731
        q, k, v = split(own.query), split(own.key), split(own.value)
        return torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1), v

    def logits(self, state: Tensor) -> Tensor:
        """Of the last layer's output."""
        return linear(self.model.classifier, torch.tanh(linear(self.model.bert.pooler.dense, state[0])))

    def y(self, x: Tensor, number: int) -> Tensor:
        """One logit."""
        return self.logits(self.hidden(x)[0][-1])[number]


def linear(module, x: Tensor) -> Tensor:
    return x @ module.weight.detach().T + module.bias.detach()


def normed(module, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (x.var(-1, unbiased=False, keepdim=True) + EPSILON).sqrt() * module.weight.detach() + module.bias.detach()


def slope(plain: PlainClassifier, x: Tensor, number: int) -> Tensor:
    point = x.clone().requires_grad_()
    plain.y(point, number).backward()
    return point.grad


def attcat(plain: PlainClassifier, number: int) -> Tensor:
    """Token by token and layer by layer."""
    x = plain.embedded().requires_grad_()
    states, weights = plain.hidden(x)
    for state in states[1:]:
        state.retain_grad()
    plain.logits(states[-1])[number].backward()
    made = torch.zeros(len(x), dtype=x.dtype)
    for layer in range(len(weights)):
        for token in range(len(x)):
            importance = sum(weights[layer][head, i, token] for head in range(plain.heads) for i in range(len(x)))
            made[token] += (importance / plain.heads / len(x) * (states[layer].grad[token] * states[layer][token]).sum()).detach()
    return made


@torch.no_grad()
def decompx(plain: PlainClassifier, number: int) -> tuple[list[Tensor], Tensor]:
    """Vectors [target, source, width] behind every layer, and what each source adds to one logit; biases by AbsDot."""
    x = plain.embedded()
    n, width = x.shape
    vectors = torch.zeros(n, n, width, dtype=x.dtype)
    for token in range(n):
        vectors[token, token] = x[token]
    states, _ = plain.hidden(x)
    made = []
    for depth, layer in enumerate(plain.layers):
        weights, _ = plain.attention(layer, states[depth])
        dense, own = layer.attention.output.dense, layer.attention.self
        bias = own.value.bias @ dense.weight.T + dense.bias
        after = torch.zeros_like(vectors)
        for i in range(n):
            for k in range(n):
                for head in range(plain.heads):
                    rows = slice(head * width // plain.heads, (head + 1) * width // plain.heads)
                    mixed = sum(weights[head, i, j] * vectors[j, k] for j in range(n))
                    after[i, k] += dense.weight[:, rows] @ (own.value.weight[rows] @ mixed)
            after[i] += absdot(bias, after[i])
        vectors = parts_normed(layer.attention.output.LayerNorm, after + vectors)
        up = torch.stack([row @ layer.intermediate.dense.weight.T for row in vectors])
        up = torch.stack([row + absdot(layer.intermediate.dense.bias, row) for row in up])
        total = up.sum(1, keepdim=True)
        down = (up * gelu(total) / total) @ layer.output.dense.weight.T
        down = torch.stack([row + absdot(layer.output.dense.bias, row) for row in down])
        vectors = parts_normed(layer.output.LayerNorm, down + vectors)
        made.append(vectors)
    first = vectors[0] @ plain.model.bert.pooler.dense.weight.T
    first = first + absdot(plain.model.bert.pooler.dense.bias, first)
    total = first.sum(0)
    scores = (first * torch.tanh(total) / total) @ plain.model.classifier.weight.T
    return made, (scores + absdot(plain.model.classifier.bias, scores))[:, number]


def absdot(bias: Tensor, vectors: Tensor) -> Tensor:
    """The shares [source, width] of one bias."""
    sizes = torch.stack([(bias @ vector).abs() for vector in vectors])
    return (sizes / sizes.sum())[:, None] * bias


def parts_normed(module, vectors: Tensor) -> Tensor:
    """Layer norm of every part with the statistics of the sum, then the bias."""
    whole = vectors.sum(1)
    spread = (whole.var(-1, unbiased=False) + EPSILON).sqrt()
    made = (vectors - vectors.mean(-1, keepdim=True)) / spread[:, None, None] * module.weight.detach()
    return torch.stack([row + absdot(module.bias.detach(), row) for row in made])
