"""Methods to an output: their naive doubles, and what must hold exactly."""

import oracles_output as oracles
import pytest
import torch
from families import ids, make_model

import glocal
from glocal.errors import ChoiceError, FreezeError, MemoryBudgetError, ModelError

N, CLASS = 6, 2
EVERYTHING = ("attention", "norm", "activation")


@pytest.fixture(scope="module")
def network():
    return make_model("Bert", head="ForSequenceClassification", num_labels=3)


@pytest.fixture(scope="module")
def plain(network):
    return oracles.PlainClassifier(network, ids(N))


def story(network, methods, explain=f"class:{CLASS}", text=None, **options):
    return glocal.analyze(text or ids(N), network, methods=methods, measures=(), explain=explain, **options)


def found(network, name, variable=None, explain=f"class:{CLASS}", more=None, **options):
    return torch.tensor(story(network, {name: options}, explain, **more or {})[variable or name].values)


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=0, atol=float(tolerance * expected.abs().max()))


def test_the_plain_classifier_is_bert(network, plain):
    with torch.no_grad():
        close(plain.logits(plain.hidden(plain.embedded())[0][-1]), network(torch.tensor([ids(N)])).logits[0], 1e-12)


def test_gradients(network, plain):
    x = plain.embedded()
    slope = oracles.slope(plain, x, CLASS)
    close(found(network, "gradient"), torch.stack([row.norm() for row in slope]))
    close(found(network, "gradient", norm="l1"), torch.stack([row.abs().sum() for row in slope]))
    close(found(network, "gradient_x_input"), torch.stack([(row * x[i]).norm() for i, row in enumerate(slope)]))
    close(found(network, "gradient_x_input", reduce="sum"), torch.stack([row @ x[i] for i, row in enumerate(slope)]))
    close(found(network, "gradient_x_input", reduce="l1"), torch.stack([(row * x[i]).abs().sum() for i, row in enumerate(slope)]))


def test_integrated_gradients(network, plain):
    x = plain.embedded()
    steps = [oracles.slope(plain, x * (k + 1) / 7, CLASS) for k in range(7)]
    close(found(network, "integrated_gradients", steps=7, rule="right"), (x * sum(steps) / 7).sum(-1))
    half = [oracles.slope(plain, x * (k + 0.5) / 7, CLASS) for k in range(7)]
    close(found(network, "integrated_gradients", steps=7, rule="midpoint", reduce="l2"), (x * sum(half) / 7).norm(dim=-1))


@pytest.mark.parametrize(("rule", "bound"), [("gauss", 1e-8), ("midpoint", 1e-3), ("right", 1e-1)])
@pytest.mark.parametrize("baseline", ["zero", "mean"])
def test_the_completeness_gap_falls_with_the_steps(network, rule, bound, baseline):
    gaps = [
        abs(story(network, {"integrated_gradients": {"steps": steps, "rule": rule, "baseline": baseline}}).attrs["explained"][
            "integrated_gradients"
        ]["completeness_gap"])
        for steps in (5, 20, 80)
    ]  # fmt: skip
    assert gaps[0] > gaps[1] > gaps[2] or gaps[2] < 1e-12
    assert gaps[2] < bound


def test_occlusion(network, plain):
    x = plain.embedded()
    words = network.bert.embeddings.word_embeddings.weight.detach()
    whole = plain.y(x, CLASS)
    rows = words[torch.tensor(ids(N))]

    def without(token, instead):
        changed = rows.clone()
        changed[token] = instead
        return whole - plain.y(plain.embedded(changed), CLASS)

    close(found(network, "occlusion"), torch.stack([without(token, torch.zeros(32).double()) for token in range(N)]))
    close(found(network, "occlusion", replace="mean"), torch.stack([without(token, words.mean(0)) for token in range(N)]))
    shorter = [whole - plain.y(plain.embedded(numbers=[n for i, n in enumerate(ids(N)) if i != token]), CLASS) for token in range(N)]
    close(found(network, "occlusion", replace="delete"), torch.stack(shorter))


def test_attcat(network, plain):
    close(found(network, "attcat"), oracles.attcat(plain, CLASS))


def test_decompx(network, plain):
    layers, scores = oracles.decompx(plain, CLASS)
    close(found(network, "decompx"), torch.stack([layer.norm(dim=-1) for layer in layers]))
    close(found(network, "decompx_output"), scores)


@pytest.mark.parametrize("bias", ["absdot", "norm", "equal", "source", "none"])
def test_contributions_and_biases_add_up_to_the_output(network, bias):
    made = story(network, {"decompx_output": {"bias": bias}})
    facts = made.attrs["explained"]
    assert abs(made.decompx_output.values.sum() + facts["decompx_output"]["bias"] - facts["value"]) < 1e-10
    assert (facts["decompx_output"]["bias"] == 0) == (bias not in ("source", "none"))
    assert facts["decompx_output"]["largest_gap"] < 1e-10


def test_a_bias_of_its_own_is_beside_the_sources(network):
    one, other = (story(network, {"decompx": {"bias": bias}}) for bias in ("source", "none"))
    assert one.decompx.equals(other.decompx) and "decompx_bias" not in other
    assert one.decompx_bias.dims == ("layer", "target") and (one.decompx_bias > 0).all()


def test_frozen_gradient_times_input_is_decompx_without_biases(network):
    frozen = found(network, "gradient_x_input", reduce="sum", more={"freeze": EVERYTHING})
    close(frozen, found(network, "decompx_output", bias="none"))
    facts = story(network, {"gradient_x_input": {"reduce": "sum"}}, freeze=EVERYTHING).attrs["explained"]
    assert abs(facts["gradient_x_input"]["remainder"] + frozen.sum().item() - facts["value"]) < 1e-10


HEADS = [
    ("Roberta", "ForSequenceClassification", "class:1"), ("Electra", "ForSequenceClassification", "predicted_class"),
    ("DistilBert", "ForSequenceClassification", "class:0"), ("Albert", "ForSequenceClassification", "class:LABEL_1"),
    ("GPT2", "ForSequenceClassification", "class:1"), ("Llama", "ForSequenceClassification", "difference:0/1"),
    ("Bert", "ForMaskedLM", "token:2"), ("Roberta", "ForMaskedLM", "token:0"), ("GPT2", "LMHeadModel", "next_token"),
    ("GPT2", "LMHeadModel", "token:3"), ("Llama", "ForCausalLM", "next_token:#7"), ("Gemma2", "ForCausalLM", "difference:#7/#9"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "head", "explain"), HEADS)
def test_every_head_is_decomposed_and_all_methods_run(family, head, explain):
    network = make_model(family, head=head)
    padding = network.config.pad_token_id
    network.config.pad_token_id = None
    try:
        made = story(network, ["decompx_output"], explain)
        assert abs(made.decompx_output.values.sum() - made.attrs["explained"]["value"]) < 1e-6
        made = story(network, ["gradient", "integrated_gradients", "occlusion", "attcat"], explain)
        assert all(abs(made[name]).max() > 0 for name in made.data_vars)
        # A batch without a padding token: the model is told of none.
        assert network.config.pad_token_id is None
    finally:
        network.config.pad_token_id = padding


def test_the_value_is_what_the_model_says(network):
    logits = network(torch.tensor([ids(N)])).logits[0]
    best = int(logits.argmax())
    facts = story(network, ["gradient"], "predicted_class").attrs["explained"]
    assert facts["name"] == f"class:LABEL_{best}"
    assert abs(facts["value"] - logits[best].item()) < 1e-12 and abs(facts["probability"] - logits.softmax(-1)[best].item()) < 1e-12
    assert abs(story(network, ["gradient"], "probability:1").attrs["explained"]["value"] - logits.softmax(-1)[1].item()) < 1e-12
    assert abs(story(network, ["gradient"], "difference:0/2").attrs["explained"]["value"] - (logits[0] - logits[2]).item()) < 1e-12


def test_next_token_scores_are_read_at_the_last_position():
    network = make_model("GPT2", head="LMHeadModel")
    logits = network(torch.tensor([ids(N)])).logits[0]
    assert abs(story(network, ["gradient"], "next_token:#7").attrs["explained"]["value"] - logits[-1, 7].item()) < 1e-12
    token = story(network, ["gradient"], "token:3").attrs["explained"]
    assert abs(token["value"] - logits[2, ids(N)[3]].item()) < 1e-12 and token["name"].startswith("token at 3")


def test_similarity_is_the_cosine_of_mean_states_and_linear_when_frozen(minilm):
    from torch.nn.functional import cosine_similarity

    network, tokenizer = minilm
    mean = lambda text: network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)  # noqa: E731
    one, other = "A cat sat.", "A dog slept on the mat."
    with torch.no_grad():
        expected = cosine_similarity(mean(one), mean(other), dim=0).item()
    made = glocal.analyze(one, methods=("decompx_output", "gradient", "occlusion"), measures=(), explain=f"similarity:{other}")
    facts = made.attrs["explained"]
    assert abs(facts["value"] - expected) < 1e-5 and abs(made.decompx_output.values.sum() - expected) < 1e-4
    assert facts["decompx_output"]["largest_gap"] < 1e-5


def test_contrast_cat_is_scaled_and_keeps_the_best_references(network):
    texts = [ids(4, seed=seed) for seed in range(1, 6)] + [ids(9, seed=9)]
    made = story(network, {"contrast_cat": {"references": texts}})
    assert made.contrast_cat.min() == 0 and made.contrast_cat.max() == 1
    facts = made.attrs["explained"]["contrast_cat"]
    assert facts["references"] == 6 and 1 <= facts["kept"] < 6


def test_contrast_cat_against_nothing_is_attcat_scaled(network):
    import glocal.methods.contrast_cat as module

    reference = module._reference
    try:
        module._reference = lambda work, explained, text: [torch.zeros_like(each) for each in work.seen.hidden[:-1]]
        made = found(network, "contrast_cat", references=[ids(3)])
    finally:
        module._reference = reference
    plainly = found(network, "attcat")
    close(made, (plainly - plainly.min()) / (plainly.max() - plainly.min()))


@pytest.mark.parametrize(
    ("explain", "error", "said"),
    [
        ("class:wonderful", ChoiceError, "LABEL_0"), ("class", ChoiceError, "argument"), ("klass:1", ChoiceError, "no such target"),
        ("next_token", ModelError, "AutoModelForCausalLM"), ("masked_token", ChoiceError, "mask token"),
        ("token:99", ChoiceError, "from 0 to 5"), ("token:1", ModelError, "scores of tokens"),
        ("difference:0", ChoiceError, "slash"), ("predicted_class:1", ChoiceError, "no argument"),
        (lambda outputs: outputs.logits, ChoiceError, "one finite number"), (lambda outputs: 1.0, ChoiceError, "no gradient"),
        (lambda outputs: float("nan"), ChoiceError, "one finite number"),
    ],
)  # fmt: skip
def test_targets_that_cannot_be_read(network, explain, error, said):
    with pytest.raises(error, match=said):
        story(network, ["gradient"], explain)


@pytest.mark.parametrize("name", ["gradient", "occlusion", "decompx_output", "contrast_cat"])
def test_a_target_must_be_named(network, name):
    with pytest.raises(ChoiceError, match="none was named"):
        glocal.analyze(ids(), network, methods=(name,), measures=())


def test_a_checkpoint_without_the_head_is_refused_and_says_which():
    with pytest.raises(ModelError, match="AutoModelForSequenceClassification"):
        glocal.analyze("A text.", methods=("gradient",), measures=(), explain="class:0")


def test_what_a_method_cannot_follow_is_refused(network):
    with pytest.raises(FreezeError, match="taken apart"):
        story(network, ["decompx_output"], "probability:1")
    with pytest.raises(ChoiceError, match="freeze"):
        story(network, ["integrated_gradients"], freeze=("norm",))
    with pytest.raises(ChoiceError, match="source_layer"):
        story(network, ["occlusion"], source_layer=1)
    with pytest.raises(ChoiceError, match="origin"):
        story(network, ["decompx"], origin="word")
    with pytest.raises(MemoryBudgetError, match="copy of the text"):
        story(network, ["decompx"], memory="10kB")
    with pytest.raises(MemoryBudgetError, match="pass of gradient"):
        story(network, ["gradient"], memory="10kB")


def test_a_user_function_may_read_any_output_and_the_model_is_left_as_found(network):
    before = network.config.to_dict()

    def pooled(outputs):
        assert outputs.logits.shape == (1, 3)
        return outputs.logits[0, 0] - outputs.logits[0, 1:].mean()

    made = story(network, ["occlusion", "gradient"], pooled)
    assert made.attrs["explained"]["name"] == "pooled" == made.attrs["settings"]["explain"]
    assert network.config.to_dict() == before


def test_origins_and_layers_of_gradients(network):
    low, high = (story(network, ["gradient"], source_layer=layer).gradient.values for layer in (0, 2))
    word = story(network, ["gradient"], origin="word").gradient.values
    assert abs(low - high).max() > 1e-6 and abs(low - word).max() > 1e-6
