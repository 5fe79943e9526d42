"""The collapsed engine: what it may assume is checked in every run, and where it does not hold the run falls back and says so."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from families import FAMILIES, ids, make_model, model
from jacobians import encoding

import glocal
from glocal.jacobian.layout import layout_of
from glocal.jacobian.making import make_maps
from glocal.methods._engines import Engines
from glocal.models.instrument import instrumented
from glocal.models.layers import layers
from glocal.models.observe import observe
from glocal.progress import tracker
from glocal.request import Request, Work


def test_a_layer_that_mixes_tokens_outside_its_attention_falls_back():
    network = make_model("Bert")

    class Smear(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + 0.1 * x.mean(-2, keepdim=True)

    inner = network.encoder.layer[1].output
    smear = Smear(48, 48).double()
    inner.dense = torch.nn.Sequential(smear, inner.dense)
    straight = glocal.analyze(ids(), network, engine="straight")
    story = glocal.analyze(ids(), network, engine="collapsed")
    assert story.attrs["engine"] == "straight"
    assert "fell back" in story.attrs["notes"][0] and "token by token" in story.attrs["notes"][0]
    np.testing.assert_array_equal(story.attribution, straight.attribution)


def test_an_attention_of_another_kind_falls_back(monkeypatch):
    network = make_model("Bert")
    import transformers.models.bert.modeling_bert as bert

    eager = bert.eager_attention_forward

    def squared(module, query, key, value, mask, *args, **kwargs):
        return eager(module, query * query.abs(), key, value, mask, *args, **kwargs)

    monkeypatch.setattr(bert, "eager_attention_forward", squared)
    straight = glocal.analyze(ids(), network, engine="straight")
    story = glocal.analyze(ids(), network, engine="collapsed")
    assert story.attrs["engine"] == "straight" and "softmax" in story.attrs["notes"][0]
    np.testing.assert_array_equal(story.attribution, straight.attribution)


@pytest.mark.parametrize("name", ["Bert", "Llama", "Qwen3", "Gemma2", "GptOss"])
def test_every_layout_gives_the_same_maps_of_a_layer(name, monkeypatch):
    """Scores or keys, own scores or queries: what is cheaper depends on the sizes, what comes out does not."""
    network = model(name)
    with instrumented(network), torch.no_grad():
        seen = observe(network, encoding(ids()))
        layer = layers(network, seen)[1]
        layout = layout_of(layer, output=True, frozen=False, first=False, dtype=torch.float64)
        tangents = torch.randn(5, 32, 7, dtype=torch.float64)
        results = []
        for scores in (True, False):
            for own in (True, False):
                monkeypatch.setattr(type(layout), "score_rows", scores)
                monkeypatch.setattr(type(layout), "own_scores", own)
                maps = make_maps(layer, layout, chunk=11)
                assert maps.rows.shape[2] == layout.rows
                mixed = maps.mix(tangents, 0)
                alone = torch.zeros_like(mixed)
                for source in range(5):
                    maps.mix_from(source, tangents[source], alone, 0)
                torch.testing.assert_close(alone, mixed)
                results.append((mixed, maps.leave(tangents, mixed, 0)))
    for mixed, left in results[1:]:
        torch.testing.assert_close(mixed, results[0][0])
        torch.testing.assert_close(left, results[0][1])


@pytest.mark.parametrize("name", ["Bert", "GPT2"])
def test_heads_enter_by_the_residual_path_where_that_holds(name):
    network = model(name)
    with instrumented(network), torch.no_grad():
        seen = observe(network, encoding(ids()))
        layer = layers(network, seen)[0]
        maps = make_maps(layer, layout_of(layer, output=True, frozen=False, first=True, dtype=torch.float64), chunk=50)
    assert maps.project is not None and maps.merge is None


def test_parallel_layers_have_a_path_of_their_own_for_the_heads():
    network = model("GPTNeoX")
    with instrumented(network), torch.no_grad():
        seen = observe(network, encoding(ids()))
        layer = layers(network, seen)[0]
        maps = make_maps(layer, layout_of(layer, output=True, frozen=False, first=True, dtype=torch.float64), chunk=50)
    assert maps.project is None and maps.merge is not None


@pytest.mark.parametrize("name", FAMILIES)
def test_parts_put_together_are_the_layer(name):
    network = model(name)
    with instrumented(network), torch.no_grad():
        seen = observe(network, encoding(ids()))
        for layer, part in enumerate(layers(network, seen)):
            query, key, value, output = part.local(part.hidden)
            torch.testing.assert_close(output, seen.hidden[layer + 1], rtol=0, atol=0)
            torch.testing.assert_close(part.merge(part.head), seen.hidden[layer + 1], rtol=0, atol=0)
            torch.testing.assert_close(part.attend(query, key, value), part.head, rtol=0, atol=0)


def test_longer_texts_take_the_way_by_keys():
    """Above the width of a head the scores are dearer than the keys; both ways meet here."""
    numbers = ids(24)
    straight, collapsed = (glocal.analyze(numbers, model("Llama"), probes=4, engine=engine) for engine in ("straight", "collapsed"))
    assert collapsed.attrs["engine"] == "collapsed"
    np.testing.assert_allclose(collapsed.attribution_norm, straight.attribution_norm, atol=1e-6 * float(straight.attribution_norm.max()))


@pytest.mark.real
def test_the_trained_model_in_float32(minilm):
    text = "The cat sat there."
    straight, collapsed = (glocal.analyze(text, *minilm, engine=engine, probes=32) for engine in ("straight", "collapsed"))
    assert collapsed.attrs["error_estimate"]["largest_difference_to_straight"] < 1e-4
    np.testing.assert_allclose(collapsed.attribution, straight.attribution, atol=1e-5)


@pytest.mark.real
def test_a_run_repeats_bit_for_bit(minilm):
    for engine in ("straight", "collapsed"):
        one, other = (glocal.analyze("The cat sat there.", *minilm, engine=engine, probes=8) for _ in range(2))
        assert one.drop_attrs().identical(other.drop_attrs())


@pytest.mark.parametrize(
    "options", [{}, {"probes": 3}, {"of": "hidden"}, {"origin": "word"}, {"layers": (1, 3)}, {"probes": "auto", "error": 0.05}]
)
@pytest.mark.parametrize("name", ["Bert", "Llama"])
def test_layer_by_layer_gives_the_same_and_needs_less_memory(name, options):
    outcomes, heard = [], []
    for by_layer in (False, True):
        with instrumented(model(name)):
            seen = observe(model(name), encoding(ids()))
            request = Request(engine="collapsed", **options).resolved(seen)
            engines = Engines(Work(model(name), seen, request, partial(tracker, lambda *now: heard.append(now)), {}))
            outcomes.append(engines.run(replace(engines.plan(), by_layer=by_layer, chunk=7)))
        assert heard[-1][0] == heard[-1][1]
    kept, layered = outcomes
    assert layered.plan.engine == "collapsed" and layered.check is not None and layered.notes == ()
    for one, other in zip(kept.squares.value, layered.squares.value, strict=True):
        torch.testing.assert_close(one, other)


def test_layer_by_layer_falls_back_too():
    network = make_model("Bert")

    class Smear(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + 0.1 * x.mean(-2, keepdim=True)

    inner = network.encoder.layer[1].output
    inner.dense = torch.nn.Sequential(Smear(48, 48).double(), inner.dense)
    with instrumented(network):
        seen = observe(network, encoding(ids()))
        request = Request(engine="collapsed").resolved(seen)
        engines = Engines(Work(network, seen, request, partial(tracker, False), {}))
        outcome = engines.run(replace(engines.plan(), by_layer=True))
    straight = glocal.analyze(ids(), network, engine="straight")
    assert outcome.plan.engine == "straight" and "fell back" in outcome.notes[0]
    np.testing.assert_allclose(torch.stack(outcome.squares.value).sqrt(), straight.attribution_norm, rtol=1e-12)
