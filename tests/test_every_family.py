"""Laws of the instrument and the engine, for every family of the table."""

import copy

import numpy as np
import pytest
import torch
from families import FAMILIES, UNSEEN, ids, make_model, model
from jacobians import blocks, encoding, frobenius, look
from torch.func import jvp

import glocal
from glocal.choices import ENGINES
from glocal.errors import UnseenLayersError
from glocal.models.freeze import frozen
from glocal.models.instrument import BACKEND, instrumented
from glocal.models.observe import observe
from glocal.models.outputs import Origin, outputs_function

every_family = pytest.mark.parametrize("name", FAMILIES)


def story_of(name, numbers=None, **options):
    return glocal.analyze(ids() if numbers is None else numbers, model(name), **options)


def close(actual, expected, tolerance):
    """Raise unless equal to `tolerance` relative to the largest expected value."""
    scale = torch.as_tensor(expected).abs().max()
    torch.testing.assert_close(torch.as_tensor(actual), torch.as_tensor(expected), rtol=0, atol=float(tolerance * scale))


@every_family
def test_observing_gives_eager_outputs_bit_for_bit(name):
    network = make_model(name, torch.float32)
    network.set_attn_implementation("eager")
    if getattr(network.config, "_experts_implementation", None):
        network.set_experts_implementation("eager")
    reference, observed = [], []
    hook = lambda into: lambda _m, _a, output: into.append(output[0] if isinstance(output, tuple) else output.last_hidden_state)  # noqa: E731
    with torch.no_grad():
        handle = network.register_forward_hook(hook(reference))
        network(**encoding(ids()))
        handle.remove()
        handle = network.register_forward_hook(hook(observed))
        with instrumented(network):
            observe(network, encoding(ids()))
        handle.remove()
    assert torch.equal(reference[0], observed[0])


@every_family
def test_the_model_is_left_as_found(name):
    network = make_model(name)
    network.train()
    next(network.children()).eval()
    next(iter(network.parameters())).requires_grad_(False)
    before = state(network)
    glocal.analyze(ids(), network, probes=2)
    assert state(network) == before
    network.get_input_embeddings().register_forward_hook(raise_interrupt)
    before = state(network)
    with pytest.raises(KeyboardInterrupt):
        glocal.analyze(ids(), network)
    assert state(network) == before


def raise_interrupt(*_):
    raise KeyboardInterrupt


def state(network):
    return {
        "backend": network.config._attn_implementation,
        "experts": getattr(network.config, "_experts_implementation", None),
        "training": [module.training for module in network.modules()],
        "gradients": [(parameter.requires_grad, parameter.grad) for parameter in network.parameters()],
        "types": [(parameter.dtype, parameter.device) for parameter in network.parameters()],
        "hooks": [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in network.modules()],
        "config": copy.deepcopy(network.config.to_dict()),
        "attributes": [sorted(vars(module)) for module in network.modules()],
    }


every_engine = pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "auto"])


@every_family
@every_engine
@pytest.mark.parametrize("options", [{}, {"word": True}, {"source_layer": 1}, {"of": "hidden"}], ids=str)
def test_every_engine_equals_reverse_mode(name, engine, options):
    word = options.get("word", False)
    asked = {"origin": "word"} if word else options
    story = story_of(name, **asked, measures=(), engine=engine)
    assert (story.attrs["engine"], story.attrs["notes"]) == (engine, [])
    for layer, jacobian in enumerate(blocks(model(name), ids(), **options)):
        norm = torch.from_numpy(story.attribution_norm.values[layer])
        close(norm if norm.dim() == 3 else norm[None], frobenius(jacobian), FAMILIES[name].tolerance)


@every_family
@every_engine
def test_output_projection_slices_explain_the_attention_output(name, engine):
    seen = look(model(name), ids())
    story = story_of(name, of="head_output", measures=(), engine=engine)
    for layer, jacobian in enumerate(blocks(model(name), ids())):
        projected = torch.einsum("hoc,thcsw->thosw", seen.projection[layer], jacobian)
        close(story.attribution_norm.values[layer], frobenius(projected), FAMILIES[name].tolerance * 10)


@every_family
@every_engine
def test_causal_models_draw_nothing_from_the_future(name, engine):
    story = story_of(name, engine=engine, measures=())
    future = torch.ones(5, 5).triu(1).bool()
    attribution = torch.from_numpy(story.attribution.values)[..., future]
    assert bool((attribution == 0).all()) == FAMILIES[name].causal
    assert story.attrs["causal"] == FAMILIES[name].causal


@every_family
@every_engine
def test_shares_sum_to_one(name, engine):
    story = story_of(name, engine=engine, measures=())
    close(story.attribution.sum("source").values, torch.ones(3, 4, 5, dtype=torch.float64), 1e-12)
    attention = torch.from_numpy(story.attention.sum("source").values)
    if FAMILIES[name].sinks:
        assert bool((attention < 1).all())
    else:
        close(attention, torch.ones(3, 4, 5, dtype=torch.float64), 1e-6)


@every_family
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_equals_singles(name, side):
    texts = [ids(5), ids(3, seed=1)]
    pad = [0, 0]
    rows = [texts[0], pad + texts[1] if side == "left" else texts[1] + pad]
    mask = [[1] * 5, [0, 0, 1, 1, 1] if side == "left" else [1, 1, 1, 0, 0]]
    batch = glocal.analyze({"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}, model(name))
    for story, numbers in zip(batch, texts, strict=True):
        alone = story_of(name, numbers)
        assert story.drop_attrs().identical(alone.drop_attrs())


@every_family
def test_a_list_equals_singles(name):
    texts = [ids(4), ids(3, seed=1)]
    for story, numbers in zip(glocal.analyze(texts, model(name), probes=2), texts, strict=True):
        assert story.drop_attrs().identical(story_of(name, numbers, probes=2).drop_attrs())


@every_family
def test_texts_of_one_length_are_computed_together_and_equal_singles(name):
    texts = [ids(4, seed=seed) for seed in range(3)]
    pushes = []
    stories = glocal.analyze(texts, model(name), probes=2, progress=lambda done, total: pushes.append(total))
    assert pushes == [8]
    for story, numbers in zip(stories, texts, strict=True):
        alone = story_of(name, numbers, probes=2)
        assert np.array_equal(story.attention, alone.attention)
        for variable in alone.data_vars:
            close(story[variable].values, alone[variable].values, FAMILIES[name].tolerance * 10)


@every_family
def test_padding_inside_a_pass_is_never_a_source(name):
    """The engine itself, not only the stripping before it: columns of masked positions are exactly zero."""
    numbers = [*ids(4), 0, 0]
    inputs = {"input_ids": torch.tensor([numbers]), "attention_mask": torch.tensor([[1, 1, 1, 1, 0, 0]])}
    network = model(name)
    with instrumented(network):
        seen = observe(network, inputs)
        origin = Origin()
        function = outputs_function(network, seen, origin=origin, of="head", layers=[1, 2, 3])
        tangent = torch.zeros_like(origin.point(seen))
        tangent[4:] = torch.randn(2, tangent.shape[1], dtype=tangent.dtype)
        with torch.no_grad():
            moved = jvp(function, (origin.point(seen),), (tangent,))[1]
    assert all(bool((each[:4] == 0).all()) for each in moved)


@every_family
@every_engine
def test_frozen_attention_gives_attention_times_a_factor_of_the_source(name, engine):
    """norm[i, j] = A[i, j] ||W_V dn(x_j)||: the factor is constant where values are read straight from the layer's input."""
    seen = look(model(name), ids())
    story = story_of(name, source_layer=1, layers=[2], freeze=("attention",), measures=(), engine=engine)
    attention, norm = seen.attention[1], torch.from_numpy(story.attribution_norm.values[0])
    factor = (norm.sum(1) / attention.sum(1))[:, None]  # per head and source
    close(norm, attention * factor, max(FAMILIES[name].tolerance, 1e-12))


POST_NORM = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Electra", "Albert", "DistilBert", "Ernie", "NomicBert", "Bart", "Olmo2")


@pytest.mark.parametrize("name", POST_NORM)
@every_engine
def test_frozen_attention_gives_back_attention_exactly(name, engine):
    """Where values are read straight from the layer's input, frozen attribution to it is attention."""
    for layer in (1, 2, 3):
        story = story_of(name, source_layer=layer - 1, layers=[layer], freeze=("attention",), engine=engine, measures=())
        close(story.attribution.values, story.attention.values, max(FAMILIES[name].tolerance, 1e-12))


@every_family
def test_frozen_networks_are_linear_and_their_contributions_sum_to_the_hidden_states(name):
    kinds = FAMILIES[name].freezes
    if len(kinds) < 3:
        with pytest.raises(glocal.errors.FreezeError, match=r"activation|gated"):
            story_of(name, freeze=("activation",))
        return
    network = make_model(name)
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            if key.endswith("bias"):
                parameter.zero_()
    with instrumented(network), torch.no_grad():
        seen = observe(network, encoding(ids()))
        origin = Origin()
        with frozen(network, kinds, lambda: observe(network, seen.inputs)):
            function = outputs_function(network, seen, origin=origin, of="hidden", layers=[1, 2, 3], freeze=kinds)
            outputs, contributions = jvp(function, (origin.point(seen),), (origin.point(seen),))
    for hidden, output, contribution in zip(seen.hidden[1:], outputs, contributions, strict=True):
        assert torch.equal(hidden, output)
        close(contribution, hidden, max(FAMILIES[name].tolerance, 1e-12))


@every_family
@pytest.mark.parametrize("kinds", [("attention",), ("norm",), ("attention", "norm")], ids=str)
def test_engines_agree_on_frozen_networks(name, kinds):
    straight = story_of(name, freeze=kinds, measures=(), engine="straight")
    for engine in ("collapsed", "reverse"):
        story = story_of(name, freeze=kinds, measures=(), engine=engine)
        assert (story.attrs["engine"], story.attrs["notes"]) == (engine, [])
        close(story.attribution_norm.values, straight.attribution_norm.values, FAMILIES[name].tolerance)


@every_family
def test_engines_agree_on_a_sketch(name):
    straight, collapsed = (story_of(name, probes=3, engine=engine, measures=()) for engine in ("straight", "collapsed"))
    assert (collapsed.attrs["engine"], collapsed.attrs["notes"]) == ("collapsed", [])
    for variable in straight.data_vars:
        # Standard errors pool relative variances over blocks, of which the smallest are known to few digits.
        slack = 1000 if variable.endswith("_se") else 10
        close(collapsed[variable].values, straight[variable].values, FAMILIES[name].tolerance * slack)


@every_family
@pytest.mark.parametrize("engine", ["straight", "collapsed"])
def test_a_sketch_with_all_directions_is_exact(name, engine):
    width = look(model(name), ids()).hidden[0].shape[1]
    exact, sketch = story_of(name, engine=engine), story_of(name, probes=width, engine=engine)
    close(sketch.attribution_norm.values, exact.attribution_norm.values, 1e-7)
    close(sketch.attribution_se.values + 1, torch.ones(3, 4, 5, 5, dtype=torch.float64), 1e-7)


@every_family
@every_engine
def test_subsets_are_parts_of_the_whole(name, engine):
    whole = story_of(name, probes=2, engine=engine, measures=())
    part = story_of(name, probes=2, layers=[1, 3], heads=[2], targets=[0, -1], engine=engine, measures=())
    expected = whole.sel(layer=[1, 3], head=[2], target=[0, 4])
    for variable in part.data_vars:
        close(part[variable].values, expected[variable].values, 1e-9)
    assert part.sizes["source"] == 5


@pytest.mark.parametrize("name", UNSEEN)
def test_families_that_cannot_be_seen_are_refused_by_name(name):
    network = make_model(name)
    before = state(network)
    with pytest.raises(UnseenLayersError, match=network.config.model_type):
        glocal.analyze(ids(), network)
    assert state(network) == before
    assert network.config._attn_implementation != BACKEND
