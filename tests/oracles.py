"""Every method once more, naively and by its formula, for a plain BERT layer stack: the product's code is not used here."""

from collections import deque

import numpy as np
import scipy.linalg
import torch
from torch import Tensor
from torch.nn.functional import gelu

EPSILON = 1e-12


class PlainLayer:
    """One BERT layer from its weights; x is its input [n, d]."""

    def __init__(self, layer, x: Tensor, heads: int):
        own = layer.attention.self
        self.n, self.d = x.shape
        self.heads, self.width = heads, self.d // heads
        self.x = x
        split = lambda linear: (x @ linear.weight.T + linear.bias).view(self.n, heads, self.width).transpose(0, 1)  # noqa: E731
        q, k, self.v = split(own.query), split(own.key), split(own.value)
        self.attention = torch.softmax(q @ k.transpose(1, 2) / self.width**0.5, -1)
        dense = layer.attention.output.dense
        self.out, self.out_bias = dense.weight.detach().view(self.d, heads, self.width), dense.bias.detach()
        self.norms = [layer.attention.output.LayerNorm, layer.output.LayerNorm]
        self.up, self.down = layer.intermediate.dense, layer.output.dense
        self.result = self.run(self.v)

    def f(self, head: int, source: int) -> Tensor:
        """The transformed vector of one source."""
        return self.out[:, head] @ self.v[head, source]

    @torch.no_grad()
    def run(self, v: Tensor) -> Tensor:
        """The layer's output with these values."""
        z = (self.attention @ v).transpose(0, 1).reshape(self.n, self.d)
        self.sum = z @ self.out.reshape(self.d, self.d).T + self.out_bias + self.x
        self.middle = self.norm(0, self.sum)
        self.end = gelu(self.middle @ self.up.weight.T + self.up.bias) @ self.down.weight.T + self.down.bias + self.middle
        return self.norm(1, self.end)

    def norm(self, number: int, x: Tensor) -> Tensor:
        """Layer norm with its bias."""
        return (x - x.mean(-1, keepdim=True)) / self.spread(x)[:, None] * self.norms[number].weight.detach() + self.norms[
            number
        ].bias.detach()

    def spread(self, x: Tensor) -> Tensor:
        """Standard deviation of rows."""
        return (x.var(-1, unbiased=False) + EPSILON).sqrt()

    def frozen(self, number: int, vector: Tensor, spread: Tensor) -> Tensor:
        """Layer norm of a part, with the statistics of the whole and without its bias."""
        return (vector - vector.mean()) / spread * self.norms[number].weight.detach()

    def u(self, target: int, source: int) -> Tensor:
        """What one source adds to attention and residual connection."""
        found = sum(self.attention[head, target, source] * self.f(head, source) for head in range(self.heads))
        return found + self.x[target] if target == source else found

    def past_first(self, target: int, source: int) -> Tensor:
        """... after the first layer norm."""
        return self.frozen(0, self.u(target, source), self.spread(self.sum)[target])

    def past_second(self, target: int, source: int) -> Tensor:
        """... after the second, without the feed-forward block."""
        return self.frozen(1, self.past_first(target, source), self.spread(self.end)[target])


def plain_layers(model, numbers: list[int]) -> list[PlainLayer]:
    """All layers of a BertModel in float64, on these ids."""
    embeddings, ids = model.embeddings, torch.tensor(numbers)
    with torch.no_grad():
        x = embeddings.word_embeddings.weight[ids] + embeddings.position_embeddings.weight[: len(ids)]
        x = x + embeddings.token_type_embeddings.weight[0]
        spread = (x.var(-1, unbiased=False, keepdim=True) + EPSILON).sqrt()
        x = (x - x.mean(-1, keepdim=True)) / spread * embeddings.LayerNorm.weight + embeddings.LayerNorm.bias
        made = []
        for layer in model.encoder.layer:
            made.append(PlainLayer(layer, x, model.config.num_attention_heads))
            x = made[-1].result
    return made


def table(layer: PlainLayer, cell) -> Tensor:
    """cell(target, source) for all of them."""
    return torch.stack([torch.stack([cell(i, j) for j in range(layer.n)]) for i in range(layer.n)])


def ratio(layer: PlainLayer, vector) -> Tensor:
    """Kobayashi's mixing ratio."""
    made = []
    for i in range(layer.n):
        rest = sum(vector(i, j) for j in range(layer.n) if j != i).norm()
        made.append(rest / (rest + vector(i, i).norm()))
    return torch.stack(made)


def effective_attention(layer: PlainLayer) -> Tensor:
    """A minus its projection on the left null space of the values behind the output projection."""
    made = []
    for head in range(layer.heads):
        transformed = (layer.v[head] @ layer.out[:, head].T).numpy()
        null = scipy.linalg.null_space(transformed.T)
        weights = layer.attention[head].numpy()
        made.append(torch.tensor(weights - weights @ null @ null.T))
    return torch.stack(made)


def attn_n_head(layer: PlainLayer) -> Tensor:
    return torch.stack([table(layer, lambda i, j, h=h: (layer.attention[h, i, j] * layer.f(h, j)).norm()) for h in range(layer.heads)])


def attn(layer: PlainLayer, i: int, j: int) -> Tensor:
    return sum(layer.attention[h, i, j] * layer.f(h, j) for h in range(layer.heads))


def alti(layer: PlainLayer, order: int, last: bool) -> Tensor:
    part, output = (layer.past_second, layer.result) if last else (layer.past_first, layer.middle)
    length = lambda vector: vector.abs().sum() if order == 1 else vector.square().sum().sqrt()  # noqa: E731
    near = table(layer, lambda i, j: (length(output[i]) - length(output[i] - part(i, j))).clamp(min=0))
    return near / near.sum(1, keepdim=True)


def value_zeroing(layer: PlainLayer, head: int | None = None) -> Tensor:
    columns = []
    for j in range(layer.n):
        v = layer.v.clone()
        v[slice(None) if head is None else head, j] = 0
        columns.append(1 - torch.cosine_similarity(layer.run(v), layer.result, dim=-1, eps=0))
    layer.run(layer.v)
    found = torch.stack(columns, 1)
    return found / found.sum(1, keepdim=True)


def rolled(maps: list[Tensor]) -> list[Tensor]:
    """Sums over all paths, one step at a time."""
    made = [maps[0]]
    for each in maps[1:]:
        below, n = made[-1], len(each)
        cell = lambda i, j: sum(each[i, k] * below[k, j] for k in range(n))  # noqa: B023, E731
        made.append(torch.stack([torch.stack([cell(i, j) for j in range(n)]) for i in range(n)]))
    return made


def mixed(layer: PlainLayer) -> Tensor:
    return 0.5 * sum(layer.attention[h] for h in range(layer.heads)) / layer.heads + 0.5 * torch.eye(layer.n, dtype=torch.float64)


def flow(maps: list[Tensor]) -> Tensor:
    """Shortest augmenting paths, one pair at a time, for the last layer."""
    n, layers = len(maps[0]), len(maps)
    found = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            capacity = {}
            for number, each in enumerate(maps):
                for a in range(n):
                    for b in range(n):
                        capacity[(number + 1, a), (number, b)] = float(each[a, b])
                        capacity.setdefault(((number, b), (number + 1, a)), 0.0)
            found[i, j] = _largest(capacity, (layers, i), (0, j))
    return torch.tensor(found / found.sum(1, keepdims=True))


def _largest(capacity, start, end) -> float:
    neighbours = {}
    for one, other in capacity:
        neighbours.setdefault(one, []).append(other)
    total = 0.0
    while True:
        before, waiting = {start: None}, deque([start])
        while waiting and end not in before:
            here = waiting.popleft()
            for there in neighbours.get(here, ()):
                if there not in before and capacity[here, there] > 1e-13:
                    before[there] = here
                    waiting.append(there)
        if end not in before:
            return total
        path, here = [], end
        while before[here] is not None:
            path.append((before[here], here))
            here = before[here]
        amount = min(capacity[edge] for edge in path)
        for one, other in path:
            capacity[one, other] -= amount
            capacity[other, one] += amount
        total += amount
