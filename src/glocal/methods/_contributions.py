"""What every source adds to the output of an attention: vectors that sum to it, but for biases."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from glocal.errors import MemoryBudgetError, ModelError
from glocal.models.norms import Normaliser, Surroundings, surroundings
from glocal.models.observe import Pass
from glocal.models.outputs import check_attention_is_linear_in_values
from glocal.request import Made, Work

# Arrays of the size of the vectors that are held at a time.
_COPIES = 6


class Contributions:
    """The vectors of all layers of one pass, target by target.

    f^h(x_j) = W_O^h v_j^h, the value with its bias, without the output projection's; u_{i<-j} = sum_h A^h_ij f^h(x_j), with `residual`
    plus the layer's own input x_i where i = j. Sources that are groups of tokens add up.
    """

    def __init__(self, work: Work, name: str, *, residual: bool = False):
        check_attention_is_linear_in_values(work.seen)
        self.work, self.name, self.residual = work, name, residual
        self.seen: Pass = work.seen
        assert work.request.layers and work.request.targets
        self.layers, self.targets = work.request.layers, torch.tensor(work.request.targets, device=self.seen.hidden[0].device)
        count = len(self.seen.hidden[0])
        self.group = torch.tensor(work.request.groups or range(count), device=self.targets.device)
        self.sources = int(self.group.max()) + 1

    def chunks(self) -> list[Tensor]:
        """Targets, as many at a time as fit into the memory budget; raises `MemoryBudgetError`."""
        tokens, width = self.seen.hidden[0].shape
        per_target = _COPIES * tokens * width * self.seen.hidden[0].element_size()
        fits = self.work.request.memory // per_target
        if fits < 1:
            raise MemoryBudgetError(
                f"Not even one target of {self.name} fits into the memory budget.",
                asked=f"memory={self.work.request.memory} bytes",
                found=f"{per_target} bytes",
                do="give it more memory",
            )
        return list(self.targets.split(int(fits)))

    def vectors(self, layer: int, targets: Tensor) -> Float[Tensor, "target source width"]:
        """u of these targets, for every token."""
        seen = self.seen
        weights = seen.attention[layer - 1].index_select(1, targets)
        added = (weights.permute(2, 1, 0) @ read(seen, layer, self.name).transpose(0, 1)).transpose(0, 1)
        if self.residual:
            if not self.around[layer - 1].residual:
                raise ModelError(
                    f"{self.name} cannot be computed: layer {layer} does not go on with the sum of its input and its attention's output.",
                    asked=f"family {self.work.model.config.model_type!r}",
                    found="no normaliser of that sum: one part is scaled or normalised before, or a feed-forward block runs beside it",
                    allowed="layers with a plain residual connection around their attention (BERT, GPT-2, Llama, ...)",
                    do="use attn_n or attribution with source_layer",
                )
            rows = torch.arange(len(targets), device=targets.device)
            added[rows, targets] += seen.hidden[layer - 1].index_select(0, targets)
        return added

    @cached_property
    def around(self) -> tuple[Surroundings, ...]:
        """What the layers do with the output of their attention."""
        return surroundings(self.work.model, self.seen)

    def after(self, layer: int) -> Normaliser:
        """The normaliser behind the attention; raises `ModelError` where the layer normalises before it."""
        norm = self.around[layer - 1].after
        if norm is None:
            raise self._refusal(layer, "no normaliser of the sum of its attention and its input")
        return norm

    def last(self, layer: int) -> Normaliser:
        """The normaliser that the layer ends with."""
        norm = self.around[layer - 1].last
        if norm is None:
            raise self._refusal(layer, "no normaliser at its end")
        return norm

    def _refusal(self, layer: int, found: str) -> ModelError:
        return ModelError(
            f"{self.name} is defined for layers that normalise after their attention.",
            asked=f"family {self.work.model.config.model_type!r}",
            found=f"layer {layer} has {found}",
            allowed="post-norm families (BERT, RoBERTa, ELECTRA, ALBERT, DistilBERT, ...)",
            do="use attnres_n, value_zeroing or attribution",
        )

    def grouped(self, vectors: Float[Tensor, "target source width"]) -> Float[Tensor, "target group width"]:
        """Sums over the tokens of every group."""
        if self.work.request.groups is None:
            return vectors
        total = vectors.new_zeros(len(vectors), self.sources, vectors.shape[-1])
        return total.index_add_(1, self.group, vectors)

    def every(self, change: Callable[[int, Tensor, Tensor], Tensor] | None = None) -> Iterator[tuple[int, list[tuple[Tensor, Tensor]]]]:
        """Of each layer: targets and their vectors after `change(layer, targets, vectors)`, chunk by chunk."""
        for layer in self.layers:
            chunks = []
            for targets in self.chunks():
                made = self.vectors(layer, targets)
                chunks.append((targets, self.grouped(made if change is None else change(layer, targets, made))))
            yield layer, chunks


def read(seen: Pass, layer: int, name: str) -> Float[Tensor, "head source width"]:
    """f^h(x_j) = W_O^h v_j^h of one layer; raises `ModelError` where no linear map follows the heads."""
    projection, value = seen.projection[layer - 1], seen.value[layer - 1]
    if projection is None:
        raise ModelError(
            f"{name} cannot be computed: layer {layer} has no linear output projection right behind its heads.",
            allowed="layers whose heads are followed by a linear map",
            do="use attention or attribution",
        )
    value = value.repeat_interleave(len(projection) // len(value), 0)
    return torch.einsum("hdv,hsv->hsd", projection, value)


def through(norm: Normaliser, targets: Tensor, vectors: Float[Tensor, "target source width"]) -> Float[Tensor, "target source width"]:
    """The normaliser without its bias, with the statistics of the targets held constant: g(v) = gain (v - mean v) scale."""
    centred = vectors - vectors.mean(-1, keepdim=True) if norm.centred else vectors
    return norm.gain * centred * norm.scale.index_select(0, targets).unsqueeze(1)


class EncoderVectors(Contributions):
    """The vectors after both normalisers of an encoder layer, without what its feed-forward block computes: GlobEnc's."""

    def vectors(self, layer: int, targets: Tensor) -> Float[Tensor, "target source width"]:
        """g^2(g^1(u)) of these targets."""
        return through(self.last(layer), targets, through(self.after(layer), targets, super().vectors(layer, targets)))


def norms_and_mixing(contributions: Contributions, name: str, change: Callable[[int, Tensor, Tensor], Tensor] | None = None) -> Made:
    """Norms [layer, target, source] of the vectors, and the mixing ratio [layer, target].

    r_i = ||sum_{j != i} w_{i<-j}|| / (||sum_{j != i} w_{i<-j}|| + ||w_{i<-i}||): 0 where a token keeps to itself.
    """
    maps, ratios = [], []
    for _, chunks in contributions.every(change):
        maps.append(torch.cat([vectors.norm(dim=-1) for _, vectors in chunks]))
        ratios.append(torch.cat([_mixing(vectors, contributions.group[targets]) for targets, vectors in chunks]))
    return Made({name: torch.stack(maps), f"{name}_mixing_ratio": torch.stack(ratios)}, {})


def _mixing(vectors: Tensor, own: Tensor) -> Tensor:
    kept = vectors[torch.arange(len(vectors), device=own.device), own]
    rest = (vectors.sum(1) - kept).norm(dim=-1)
    return rest / (rest + kept.norm(dim=-1))


def multiplied(maps: Sequence[Tensor] | Tensor) -> Float[Tensor, "layer target source"]:
    """R_1 = M_1, R_l = M_l R_{l-1}."""
    made = [maps[0]]
    for each in maps[1:]:
        made.append(each @ made[-1])
    return torch.stack(made)
