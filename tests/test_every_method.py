"""Laws of every method x every family: a new file in methods/ is tested the day it lands."""

import copy

import numpy as np
import pytest
import torch
from families import FAMILIES, ids, make_model, model

import glocal
from glocal import registry
from glocal.dims import HEAD, LAYER, SOURCE, TARGET
from glocal.errors import GlocalError

# `attribution` has its own, longer laws in test_every_family.py.
NAMES = [name for name in registry.names("methods") if name != "attribution"]
TO_OUTPUT = {name for name in NAMES if dict(registry.cards("methods")[name].extra).get("to") == "output"}
READ_AT = 2
NEEDS = {
    "post": {"attnresln_n", "globenc", "globenc_rollout", "alti", "alti_rollout"},
    "plain": {"attnres_n"},
    "constant": {"decompx", "decompx_output"},
}
# Rows are shares: they sum to one, but for attention with sinks.
SHARES = {"attention", "rollout", "flow", "alti", "alti_rollout", "value_zeroing", "value_zeroing_rollout"}
SIGNED = {"effective_attention", "integrated_gradients", "occlusion", "attcat", "decompx_output"}
PER_HEAD = {"attention", "effective_attention", "attn_n_head", "head_occlusion"}
every = pytest.mark.parametrize(("name", "family"), [(name, family) for name in NAMES for family in FAMILIES])
every_method = pytest.mark.parametrize("name", NAMES)


def applies(name, family):
    residual = FAMILIES[family].residual
    if name in NEEDS["constant"]:
        return "activation" in FAMILIES[family].freezes
    return residual == "post" if name in NEEDS["post"] else residual != "other" or name not in NEEDS["plain"]


def part_of_one_state(outputs):
    """A linear function of one position's last state, which every family has; the last one's where tokens were taken away."""
    states = outputs.last_hidden_state[0]
    state = states[min(READ_AT, len(states) - 1)]
    return (state * torch.linspace(-1, 1, len(state), dtype=state.dtype)).sum()


def methods(name):
    return {name: {"references": [ids(4, seed=5), ids(7, seed=6)]} if name == "contrast_cat" else {}}


def analysed(name, text, network, **options):
    explain = {"explain": part_of_one_state} if name in TO_OUTPUT else {}
    return glocal.analyze(text, network, methods=methods(name), measures=(), **explain | options)


def story_of(name, family, numbers=None, **options):
    return analysed(name, ids() if numbers is None else numbers, model(family), **options)


def dims_of(name):
    if name in TO_OUTPUT:
        return (SOURCE,)
    return (LAYER, HEAD, TARGET, SOURCE) if name in PER_HEAD else (LAYER, TARGET, SOURCE)


def maps(story, name):
    return {each: torch.tensor(story[each].values) for each in story.data_vars if each.startswith(name)}


def close(actual, expected, tolerance):
    torch.testing.assert_close(actual, expected, rtol=0, atol=float(tolerance * expected.nan_to_num().abs().max()), equal_nan=True)


@every
def test_shapes_shares_and_causality_or_a_refusal_by_name(name, family):
    if not applies(name, family):
        with pytest.raises(GlocalError) as refusal:
            story_of(name, family)
        assert name in NEEDS["constant"] or (name in str(refusal.value) and "allowed:" in str(refusal.value))
        assert "do:" in str(refusal.value)
        return
    story = story_of(name, family)
    found = story[name]
    assert found.dims == dims_of(name)
    assert found.attrs["unit"] and found.attrs["long_name"]
    values = torch.tensor(found.values)
    if name not in SIGNED:
        assert bool((values.nan_to_num() >= 0).all())
    if name in SHARES and not FAMILIES[family].sinks:
        rows = values.sum(-1)
        torch.testing.assert_close(rows[rows.isfinite()], torch.ones_like(rows[rows.isfinite()]), rtol=0, atol=1e-6)
    if FAMILIES[family].causal and name in TO_OUTPUT - {"contrast_cat"}:
        assert bool((values[READ_AT + 1 :] == 0).all()) and bool((values[: READ_AT + 1] != 0).all())
    if FAMILIES[family].causal and name not in TO_OUTPUT:
        future = torch.triu(torch.ones(values.shape[-2:]), 1).bool()
        assert bool((values[..., future].nan_to_num() == 0).all())


@every
def test_a_list_equals_singles_and_choices_are_slices(name, family):
    if not applies(name, family):
        return
    texts = [ids(5), ids(3, seed=1)]
    together = analysed(name, texts, model(family))
    for text, story in zip(texts, together, strict=True):
        for variable, value in maps(story_of(name, family, text), name).items():
            close(torch.tensor(story[variable].values), value, 1e-6)
    if name in TO_OUTPUT:
        return
    whole = story_of(name, family)
    chosen = story_of(name, family, layers=[2], targets=[1, 4], **({"heads": [2, 3]} if name in PER_HEAD else {}))
    where = {LAYER: [2], TARGET: [1, 4]} | ({HEAD: [2, 3]} if name in PER_HEAD else {})
    for variable, value in maps(chosen, name).items():
        close(value, torch.tensor(whole[variable].sel(where).values), 1e-6)


@every_method
def test_the_model_is_left_as_found(name):
    network = make_model("Bert").train()
    next(iter(network.parameters())).requires_grad_(False)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    flags = [(module.training, len(module._forward_hooks), len(module._forward_pre_hooks)) for module in network.modules()]
    gradients = [parameter.requires_grad for parameter in network.parameters()]
    analysed(name, ids(), network)
    assert flags == [(module.training, len(module._forward_hooks), len(module._forward_pre_hooks)) for module in network.modules()]
    assert gradients == [parameter.requires_grad for parameter in network.parameters()]
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert network.config._attn_implementation != "glocal"


@every_method
def test_heads_in_another_order_change_nothing_else(name):
    order = [2, 0, 3, 1]
    rows = torch.cat([torch.arange(8) + 8 * head for head in order])
    network = copy.deepcopy(model("Bert"))
    with torch.no_grad():
        for layer in network.encoder.layer:
            own = layer.attention.self
            for linear in (own.query, own.key, own.value):
                linear.weight.copy_(linear.weight[rows])
                linear.bias.copy_(linear.bias[rows])
            dense = layer.attention.output.dense
            dense.weight.copy_(dense.weight[:, rows])
    one = story_of(name, "Bert")[name].values
    other = analysed(name, ids(), network)[name].values
    np.testing.assert_allclose(other, one[:, order] if name in PER_HEAD else one, rtol=0, atol=1e-9 * np.nanmax(np.abs(one)))


@every_method
def test_groups_are_sums_or_refused(name):
    numbers = [0, 0, 1, 2, 2]
    if name in ("effective_attention", "contrast_cat"):
        with pytest.raises(GlocalError, match="groups"):
            story_of(name, "Bert", groups=numbers)
        return
    found = torch.tensor(story_of(name, "Bert", groups=numbers)[name].values)
    single = torch.tensor(story_of(name, "Bert")[name].values)
    assert found.shape == (*single.shape[:-1], 3) and bool(found.nan_to_num().isfinite().all())
    if name in {"attention", "rollout", "flow", "globenc_rollout", "value_zeroing_rollout", "attn_n_head"} | {
        "integrated_gradients", "attcat", "decompx_output",
    }:  # fmt: skip
        close(found, torch.stack([single[..., :2].sum(-1), single[..., 2], single[..., 3:].sum(-1)], -1), 1e-9)


@every_method
def test_the_card_says_what_a_table_needs(name):
    card = registry.cards("methods")[name]
    assert card.summary and card.source and card.needs and card.cost and card.limits


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rollout", {"residual": 1.0}), ("rollout", {"normalise": "yes"}), ("flow", {"residual": -0.1}),
        ("effective_attention", {"tolerance": -1.0}), ("alti", {"norm": "l3"}), ("alti_rollout", {"through": "ln3"}),
        ("head_occlusion", {"replace": "noise"}), ("rollout", {"nothing": 1}), ("gradient", {"norm": "l3"}),
        ("gradient_x_input", {"reduce": "max"}), ("integrated_gradients", {"steps": 0}), ("integrated_gradients", {"rule": "left"}),
        ("integrated_gradients", {"baseline": "noise"}), ("occlusion", {"replace": "noise"}), ("decompx", {"bias": "dot"}),
        ("contrast_cat", {"references": "a text"}),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused_with_what_was_asked(name, options):
    with pytest.raises(GlocalError) as refusal:
        glocal.analyze(ids(), model("Bert"), methods={name: options}, measures=(), explain=part_of_one_state)
    key, value = next(iter(options.items()))
    assert key in str(refusal.value) and repr(value).strip("'") in str(refusal.value) and "allowed:" in str(refusal.value)


def test_options_are_kept_in_the_story():
    story = glocal.analyze(ids(), model("Bert"), methods={"rollout": {"residual": 0.25}, "flow": {}}, measures=())
    assert story.attrs["settings"]["method_options"] == {"rollout": {"residual": 0.25}}


def test_rollout_normalised_by_the_receptive_field_is_even_where_attention_is():
    network = make_model("GPT2")
    with torch.no_grad():
        for block in network.h:
            block.attn.c_attn.weight[:, :64] = 0
            block.attn.c_attn.bias[:64] = 0
    story = glocal.analyze(ids(), network, methods={"rollout": {"normalise": "receptive_field"}}, measures=())
    expected = torch.ones(5, 5).tril().double()
    torch.testing.assert_close(torch.tensor(story.rollout.values[-1]), expected / expected.sum(-1, keepdim=True), rtol=0, atol=1e-6)
