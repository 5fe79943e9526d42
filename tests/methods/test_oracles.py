"""Methods agree with their naive doubles on a plain BERT layer stack in float64."""

import oracles
import pytest
import torch
from families import ids, make_model, model

import glocal

N = 6


@pytest.fixture(scope="module")
def plain():
    return oracles.plain_layers(model("Bert"), ids(N))


def found(name, variable=None, **options):
    story = glocal.analyze(ids(N), model("Bert"), methods={name: options}, measures=())
    return torch.tensor(story[variable or name].values)


def close(actual, expected, tolerance=1e-10):
    expected = torch.stack(expected) if isinstance(expected, list) else expected
    torch.testing.assert_close(actual, expected, rtol=0, atol=float(tolerance * expected.nan_to_num().abs().max()), equal_nan=True)


def test_the_plain_stack_is_bert(plain):
    with torch.no_grad():
        hidden = model("Bert").eval()(torch.tensor([ids(N)]), output_hidden_states=True).hidden_states
    close(plain[-1].result, hidden[-1][0], 1e-12)


def test_effective_attention(plain):
    close(found("effective_attention"), [oracles.effective_attention(layer) for layer in plain])


def test_effective_attention_of_more_tokens_than_the_head_is_wide():
    numbers = ids(12)
    plain = oracles.plain_layers(model("Bert"), numbers)
    story = glocal.analyze(numbers, model("Bert"), methods=("attention", "effective_attention"), measures=())
    effective = torch.tensor(story.effective_attention.values)
    close(effective, [oracles.effective_attention(layer) for layer in plain])
    assert (effective - torch.tensor(story.attention.values)).abs().max() > 0.01
    for number, layer in enumerate(plain):
        close(effective[number] @ layer.v, layer.attention @ layer.v)


def test_attn_n_head(plain):
    close(found("attn_n_head"), [oracles.attn_n_head(layer) for layer in plain])


VECTORS = {
    "attn_n": lambda layer: lambda i, j: oracles.attn(layer, i, j),
    "attnres_n": lambda layer: layer.u,
    "attnresln_n": lambda layer: layer.past_first,
    "globenc": lambda layer: layer.past_second,
}


@pytest.mark.parametrize("name", VECTORS)
def test_norms_and_mixing_ratios(plain, name):
    vectors = [VECTORS[name](layer) for layer in plain]
    close(found(name), [oracles.table(layer, lambda i, j, v=v: v(i, j).norm()) for layer, v in zip(plain, vectors, strict=True)])
    close(found(name, f"{name}_mixing_ratio"), [oracles.ratio(layer, v) for layer, v in zip(plain, vectors, strict=True)])


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("through", ["ln1", "ln2"])
def test_alti(plain, norm, through):
    expected = [oracles.alti(layer, {"l1": 1, "l2": 2}[norm], through == "ln2") for layer in plain]
    actual = found("alti", norm=norm, through=through)
    close(actual, expected)
    rows = actual.sum(-1)
    close(rows[rows.isfinite()], torch.ones(int(rows.isfinite().sum()), dtype=torch.float64))
    assert rows.isfinite().double().mean() > 0.9  # a row is undefined where every part is further away than the output is long
    close(found("alti_rollout", norm=norm, through=through), oracles.rolled(expected))


def test_value_zeroing(plain):
    expected = [oracles.value_zeroing(layer) for layer in plain]
    close(found("value_zeroing"), expected, 1e-9)  # 1 - cos loses seven digits in the double
    close(found("value_zeroing_rollout"), oracles.rolled(expected), 1e-9)
    heads = [torch.stack([oracles.value_zeroing(layer, head) for head in range(4)]) for layer in plain]
    close(found("value_zeroing", "value_zeroing_head", per_head=True), heads, 1e-8)


def test_rollout_and_flow(plain):
    maps = [oracles.mixed(layer) for layer in plain]
    close(found("rollout"), oracles.rolled(maps))
    expected = [oracles.flow(maps[: number + 1]) for number in range(3)]
    close(found("flow"), expected, 1e-6)
    close(found("flow")[0], maps[0], 1e-6)
    close(found("rollout")[0], maps[0])
    close(
        found("globenc_rollout"),
        oracles.rolled([oracles.table(each, lambda i, j, e=each: e.past_second(i, j).norm()) for each in plain]),
        1e-7,
    )


def test_values_that_change_nothing_are_an_error_and_not_zeros():
    network = make_model("Bert")
    with torch.no_grad():
        network.encoder.layer[1].attention.output.dense.weight.zero_()
    with pytest.raises(glocal.errors.ModelError, match="nothing changes in layer 2"):
        glocal.analyze(ids(N), network, methods=("value_zeroing",), measures=())


def test_a_head_without_values_has_empty_rows_that_are_counted():
    network = make_model("Bert")
    with torch.no_grad():
        network.encoder.layer[0].attention.self.value.weight[:8] = 0
        network.encoder.layer[0].attention.self.value.bias[:8] = 0
    story = glocal.analyze(ids(N), network, methods={"value_zeroing": {"per_head": True}, "attn_n_head": {}}, measures=())
    assert story.value_zeroing_head.sel(layer=1, head=1).isnull().all() and not story.value_zeroing_head.sel(layer=1, head=2).isnull().any()
    assert (story.attn_n_head.sel(layer=1, head=1) == 0).all()
    assert [(each["variable"], each["layer"], each["head"]) for each in story.attrs["not_finite"]] == [("value_zeroing_head", 1, 1)]
