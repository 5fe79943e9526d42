"""Synthetic Studies that follow the schema, without a corpus: smooth numbers with a shape that a reader can recognise."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray

MAPS = ["attention", "attribution"]
PATTERNS = ["self", "previous", "next", "first_special", "separator", "punctuation", "other"]
CATEGORIES = ["first_special", "separator", "punctuation", "other"]
LENGTHS = ["1-8", "9-16", "17-32", "33-64", "65-128", "129+"]
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
OFFSETS = list(range(-8, 9))
COMPANIONS = ("se", "low", "high", "count")


class _Maker:
    """Collects variables, each with what the schema wants beside it."""

    def __init__(self, layers: int, heads: int, texts: int, seed: int):
        self.layers, self.heads, self.texts = layers, heads, texts
        self.generator = np.random.default_rng(seed)
        self.depth = np.linspace(0, 1, layers)
        self.variables: dict[str, tuple[tuple[str, ...], Any, dict[str, str]]] = {}

    def around(self, by_layer: Any, spread: float = 0.2) -> np.ndarray:
        """Values [..., layer, head] scattered around means [..., layer]."""
        by_layer = np.asarray(by_layer, dtype=float)
        return by_layer[..., None] * np.exp(spread * self.generator.standard_normal((*by_layer.shape, self.heads)))

    def add(self, name: str, dims: tuple[str, ...], values: Any, unit: str = "share", long_name: str = "") -> None:
        attributes = {"long_name": long_name or name.replace("_", " "), "unit": unit}
        self.variables[name] = (dims, np.asarray(values), attributes)

    def statistic(self, name: str, dims: tuple[str, ...], values: np.ndarray, unit: str = "share", long_name: str = "") -> None:
        """A statistic, its mean over heads, and the companions of both."""
        both = [(name, dims, values, 1.0)]
        if dims[-1] == "head":
            both.append((f"{name}_over_heads", dims[:-1], values.mean(-1), self.heads**-0.5))
        for each, where, value, shrink in both:
            self.add(each, where, value, unit, long_name)
            error = 0.6 * shrink * np.abs(value) * max(self.texts, 1) ** -0.5 * (0.8 + 0.4 * self.generator.random(value.shape))
            # Intervals of a bootstrap are not symmetric.
            for companion, found in zip(COMPANIONS, (error, value - 1.9 * error, value + 2.1 * error), strict=False):
                self.add(f"{each}_{companion}", where, found, unit, long_name)
            self.add(f"{each}_count", where, np.where(np.isfinite(value), float(self.texts), 0.0), "texts", long_name)

    def patterns(self) -> None:
        """Category masses, own shares, entropies and position profiles of both maps."""
        depth = self.depth
        level = {
            "self": 0.12 - 0.06 * depth, "previous": 0.16 - 0.1 * depth, "next": 0.12 - 0.07 * depth, "first_special": 0.1 + 0.05 * depth,
            "separator": 0.08 + 0.5 * np.sin(2.6 * depth), "punctuation": 0.05 + 0.1 * depth, "other": 0.5 - 0.3 * np.sin(2.6 * depth),
        }  # fmt: skip
        attention = np.stack([level[pattern] for pattern in PATTERNS])
        attribution = 0.25 * attention + 0.75 * np.array([0.28, 0.1, 0.09, 0.03, 0.05, 0.05, 0.5])[:, None]
        self.statistic("category_mass", ("map", "pattern", "layer", "head"), self.around(np.stack([attention, attribution]), 0.5))
        own = np.stack([0.1 - 0.05 * depth, 0.62 - 0.4 * depth])
        self.statistic("own_share", ("map", "layer", "head"), self.around(own), long_name="share on the own token")
        entropy = np.stack([2.2 - 0.7 * np.sin(3 * depth), 1.4 + 1.1 * depth])
        self.statistic("entropy", ("map", "layer", "head"), self.around(entropy, 0.1), "nats")
        offset = np.array(OFFSETS)[:, None]
        profile = np.exp(-np.abs(offset + 0.6) / (1.2 + 4 * depth)) * 0.2
        self.statistic(
            "position_profile",
            ("map", "offset", "layer", "head"),
            self.around(np.stack([profile, 0.6 * profile + 0.5 * np.exp(-np.abs(offset) / (0.4 + depth)) * (1 - 0.6 * depth)])),
        )

    def discrepancies(self, measure: str, unit: str) -> None:
        """One measure by layer and head, by category and by length, with its bias and quantiles."""
        name, by_layer = f"discrepancy_{measure}", 0.1 + 0.35 * self.depth * (1.3 - self.depth)
        values = self.around(by_layer)
        self.statistic(name, ("layer", "head"), values, unit)
        self.statistic(f"bias_{measure}", ("layer", "head"), 0.01 * values, unit)
        step = np.linspace(-0.6, 0.6, len(LEVELS))[:, None, None]
        self.add(f"{name}_quantile", ("level", "layer", "head"), values * np.exp(step), unit)
        factor = np.array([0.7, 1.3, 1.1, 1.0])[:, None]
        self.statistic(f"{name}_by_category", ("category", "layer", "head"), self.around(factor * by_layer), unit)
        factor = np.linspace(0.6, 1.4, len(LENGTHS))[:, None]
        by_length = self.around(factor * by_layer)
        by_length[-1] = np.nan  # no text is that long
        self.statistic(f"{name}_by_length", ("length", "layer", "head"), by_length, unit)

    def ladder(self, measure: str, unit: str) -> None:
        """Discrepancy to the input of every lower layer; it grows with what lies between."""
        layer, source = np.arange(1, self.layers + 1), np.arange(self.layers)[:, None]
        between = (layer - source) / self.layers
        values = np.where(source < layer, 0.05 + 0.3 * (1 - np.exp(-2.5 * between)) * (0.7 + 0.3 * layer / self.layers), np.nan)
        self.statistic(f"ladder_{measure}", ("source_layer", "layer", "head"), self.around(values, 0.1), unit)

    def hidden(self) -> None:
        """What layers' outputs as a whole depend on."""
        self.statistic("hidden_own_share", ("layer",), 0.75 - 0.5 * self.depth, long_name="share of the own token in a hidden vector")
        name = "share of tokens whose largest source is another token"
        self.statistic("hidden_other_largest", ("layer",), 0.02 + 0.3 * self.depth, long_name=name)

    def persistence(self) -> None:
        """Whether heads that read a pattern also depend on it."""
        correlation = np.clip(self.around(0.9 - 0.7 * self.depth, 0.3), -1, 1)
        self.add("persistence", ("layer", "head"), correlation, "correlation")
        self.add("persistence_low", ("layer", "head"), np.clip(correlation - 0.1, -1, 1), "correlation")
        self.add("persistence_high", ("layer", "head"), np.clip(correlation + 0.08, -1, 1), "correlation")
        alike = np.clip(np.linspace(0.95, -0.4, len(PATTERNS))[:, None] * (1 - 0.5 * self.depth), -1, 1)
        alike[-1] = np.nan  # the same for all heads
        for suffix, shift in (("", 0.0), ("_low", -0.05), ("_high", 0.04)):
            self.add(f"mass_correlation{suffix}", ("pattern", "layer"), np.clip(alike + shift, -1, 1), "correlation")
        dominant = self.generator.integers(0, len(PATTERNS), (2, self.layers, self.heads))
        self.add("dominant_pattern", ("map", "layer", "head"), dominant, "index into pattern")
        agreement = 0.8 - 0.6 * self.depth
        for suffix, shift in (("", 0.0), ("_low", -0.11), ("_high", 0.09)):
            self.add(f"dominant_agreement{suffix}", ("layer",), agreement + shift, "share of heads")
        # The last pattern but one is no head's dominant one.
        count = np.stack([(dominant[0] == pattern).sum(-1) for pattern in range(len(PATTERNS))]).astype(float)
        count[5] = 0
        some = np.where(count > 0, 1.0, np.nan)
        expected = np.linspace(0.3, 0.08, len(PATTERNS))[:, None] * (1 - 0.4 * self.depth) * some
        survival = expected * (1.6 - 0.7 * self.depth)
        where = ("pattern", "layer")
        self.add("survival", where, survival)
        self.add("survival_expected", where, expected)
        self.add("survival_expected_high", where, 1.3 * expected)
        self.add("survival_p", where, np.where(survival > 1.3 * expected, 0.01, 0.4) * some, "probability")
        self.add("survival_heads", where, count * some, "heads")

    def places(self) -> None:
        """Distances of heads, their places on a map and their clusters."""
        size = (2, self.layers, self.heads, 2)
        centre = np.stack([np.cos(2 * self.depth), np.sin(3 * self.depth)], -1)[None, :, None, :]
        place = 0.1 * centre + 0.03 * self.generator.standard_normal(size)
        flat = place.reshape(2, -1, 2)
        distance = np.linalg.norm(flat[:, :, None] - flat[:, None], axis=-1).reshape(2, self.layers, self.heads, self.layers, self.heads)
        self.add("head_distance", ("map", "layer", "head", "other_layer", "other_head"), distance, "nats")
        self.add("head_place", ("map", "layer", "head", "axis"), place, "nats")
        self.add("head_cluster", ("map", "layer", "head"), self.generator.integers(1, 4, size[:-1]), "cluster number")


def make_study(
    layers: int = 3,
    heads: int = 2,
    texts: int = 40,
    *,
    measures: Sequence[str] = ("jsd",),
    ladder: bool = True,
    hidden: bool = True,
    seed: int = 0,
    model: str = "synthetic",
    rejected: Sequence[dict[str, Any]] = (),
    mantel: bool = True,
) -> xarray.Dataset:
    """A Study of so many texts and a model with so many layers and heads."""
    units = {"jsd": "nats", "cosine": "none", "top1": "share of rows", "wasserstein": "tokens"}
    maker = _Maker(layers, heads, texts, seed)
    maker.patterns()
    for measure in measures:
        maker.discrepancies(measure, units.get(measure, "none"))
        if ladder:
            maker.ladder(measure, units.get(measure, "none"))
    if hidden:
        maker.hidden()
    maker.persistence()
    maker.places()
    numbers, all_heads = np.arange(1, layers + 1), np.arange(1, heads + 1)
    coordinates: dict[str, Any] = {
        "layer": numbers, "head": all_heads, "other_layer": numbers, "other_head": all_heads, "axis": ["x", "y"], "map": MAPS,
        "pattern": PATTERNS, "offset": OFFSETS, "category": CATEGORIES, "length": LENGTHS, "level": LEVELS,
    }  # fmt: skip
    if ladder:
        coordinates["source_layer"] = np.arange(layers)
    attributes: dict[str, Any] = {
        "settings": {
            "glocal_version": "0.1.0", "torch_version": "2.13.0", "model": model, "weights_fingerprint": "0" * 16,
            "options": {"measures": list(measures), "probes": 8, "seed": seed, "memory": "4GiB", "time": None},
            "columns": {"text": "text", "pair": None}, "limit": None, "max_tokens": 128, "threads": 1, "block": 32,
        },
        "texts": texts, "tokens": texts * 17, "rejected": list(rejected), "study_schema": 1,
    }  # fmt: skip
    if mantel:
        attributes["mantel"] = {"correlation": 0.412, "p": 0.001, "permutations": 999}
    study = xarray.Dataset(maker.variables, coordinates, attributes)
    # Of no text, nothing is known.
    return study if texts else study.map(lambda variable: variable.where(False), keep_attrs=True)
