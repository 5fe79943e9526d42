"""Occlusion of head outputs, against the model run by hand."""

import pytest
import torch
from families import FAMILIES, ids, make_model, model

import glocal
from glocal.errors import ChoiceError, MemoryBudgetError

ONLY = {"methods": ("head_occlusion",), "measures": ()}


def test_it_is_what_the_model_does_without_the_word_vector():
    network = make_model("Bert")
    network.eval()
    words = network.get_input_embeddings()(torch.tensor([ids()])).detach()
    heads = []
    hooks = [
        layer.attention.output.dense.register_forward_pre_hook(lambda _, args: heads.append(args[0][0].unflatten(-1, (4, 8))))
        for layer in network.encoder.layer
    ]

    def run(vectors):
        heads.clear()
        with torch.no_grad():
            outputs = network(inputs_embeds=vectors, output_hidden_states=True).hidden_states[1:]
        return torch.stack(heads), torch.stack([each[0] for each in outputs])

    whole = run(words)
    changes = []
    for source in range(len(ids())):
        altered = words.clone()
        altered[0, source] = 0
        changes.append([(one - other).norm(dim=-1) for one, other in zip(run(altered), whole, strict=True)])
    for hook in hooks:
        hook.remove()
    for of, number in (("head", 0), ("hidden", 1)):
        expected = torch.stack([each[number] for each in changes], -1)  # layer, target, (head,) source
        expected = expected.transpose(1, 2) if of == "head" else expected
        found = torch.tensor(glocal.analyze(ids(), network, of=of, **ONLY).head_occlusion.values)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_future_tokens_have_no_effect_and_others_have(name):
    story = glocal.analyze(ids(), model(name), **ONLY)
    found = torch.tensor(story.head_occlusion.values)
    assert found.isfinite().all() and found.shape[1] == story.sizes["head"]
    future = torch.triu(torch.ones(found.shape[-2:]), 1).bool()
    if FAMILIES[name].causal:
        assert bool((found[..., future] == 0).all())
        assert bool((found[..., -1, :] > 0).any(0).any(0).all())
    else:
        assert bool((found[-1] > 0).any(0).all())


def test_choices():
    story = glocal.analyze(ids(), model("Bert"), layers=[2], heads=[1, 3], targets=[0, 4], **ONLY)
    whole = glocal.analyze(ids(), model("Bert"), **ONLY)
    chosen = whole.head_occlusion.sel(layer=[2], head=[1, 3], target=[0, 4])
    torch.testing.assert_close(torch.tensor(story.head_occlusion.values), torch.tensor(chosen.values))
    mean = glocal.analyze(ids(), model("Bert"), methods={"head_occlusion": {"replace": "mean"}}, measures=())
    assert not (mean.head_occlusion == whole.head_occlusion).all()
    projected = glocal.analyze(ids(), model("Bert"), of="head_output", **ONLY)
    assert projected.head_occlusion.shape == whole.head_occlusion.shape


def test_groups_are_taken_away_together():
    number = [0, 0, *range(1, len(ids()) - 1)]
    both = glocal.analyze(ids(), model("Bert"), groups=number, **ONLY).head_occlusion
    single = glocal.analyze(ids(), model("Bert"), **ONLY).head_occlusion
    assert both.shape[-1] == len(ids()) - 1
    torch.testing.assert_close(torch.tensor(both.values[..., 1:]), torch.tensor(single.values[..., 2:]))
    assert not (both[..., 0].values == single[..., 0].values).all()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"source_layer": 1}, ChoiceError, "source_layer=1"),
        ({"methods": {"head_occlusion": {"replace": "noise"}}}, ChoiceError, "noise"),
        ({"memory": 1000}, MemoryBudgetError, "memory"),
    ],
)
def test_refusals(options, error, said):
    with pytest.raises(error, match=said):
        glocal.analyze(ids(), model("Bert"), **(ONLY | options))
