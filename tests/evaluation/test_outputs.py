"""What an output loses with the tokens that methods find important: by hand, and every choice that changes numbers."""

import numpy as np
import pytest
import torch
from families import ids, make_model
from scipy import stats

import glocal
from glocal.corpus.texts import Item
from glocal.errors import ChoiceError, TextError
from glocal.evaluation.order import count, shuffled
from glocal.evaluation.outputs import target_of
from glocal.request import Made

TEXTS = [ids(7, seed=seed) for seed in range(4)]
METRICS = (
    "aopc",
    "comprehensiveness",
    "sufficiency",
    "deletion",
    "insertion",
    "log_odds",
    "accuracy_left",
    "blank_out",
    "blank_out_signed",
)


@pytest.fixture(scope="module")
def network():
    return make_model("Bert", head="ForSequenceClassification", num_labels=3)


def evaluated(network, texts=TEXTS, **options):
    return glocal.evaluate(
        texts,
        network,
        **{
            "explain": "predicted_class",
            "methods": ("gradient_x_input", "occlusion"),
            "metrics": METRICS,
            "fractions": (0.2, 0.5),
            **options,
        },
    )


def probability(network, numbers, label):
    """Of one text alone, by the model itself."""
    if not numbers:
        return float("nan")
    with torch.no_grad():
        return network(torch.tensor([numbers])).logits.softmax(-1)[0, label].item()


def without(numbers, gone):
    return [number for place, number in enumerate(numbers) if place not in gone]


@pytest.mark.parametrize("rounding", ["ceil", "floor", "round"])
def test_metrics_by_hand_with_tokens_deleted(network, rounding):
    fractions, bins = (0.2, 0.5), (0.1, 0.4)
    found = evaluated(network, rounding=rounding, fractions=fractions, bins=bins)
    for number, text in enumerate(TEXTS):
        with torch.no_grad():
            label = int(network(torch.tensor([text])).logits.argmax())
        story = glocal.analyze(text, network, methods=("occlusion",), measures=(), explain=f"class:{label}")
        scores = {"occlusion": story.occlusion.values, "random": shuffled(7, 0, number)}
        whole = probability(network, text, label)
        for name, values in scores.items():
            order = np.argsort(-values, kind="stable").tolist()
            top = {each: set(order[: count(7, each, rounding)]) for each in (0.0, *fractions, *bins)}
            removed = {each: probability(network, without(text, some), label) for each, some in top.items()}
            kept = {each: probability(network, without(text, set(range(7)) - some), label) for each, some in top.items()}
            value = lambda metric, name=name, number=number: found.value.sel(metric=metric, explanation=name).values[number]  # noqa: E731
            assert np.isclose(value("aopc"), np.mean([whole - removed[each] for each in fractions]), atol=1e-12)
            assert np.isclose(value("comprehensiveness"), sum(whole - removed[each] for each in bins) / 3, atol=1e-12)
            # Nothing is left of a text without special tokens of which nothing is kept.
            assert np.isnan(value("sufficiency")) and np.isnan(kept[0.0])
        singles = [whole - probability(network, without(text, {place}), label) for place in range(7)]
        assert np.isclose(value("blank_out", "occlusion"), stats.spearmanr(np.abs(scores["occlusion"]), np.abs(singles)).statistic)
        assert np.isclose(value("blank_out_signed", "occlusion"), stats.spearmanr(scores["occlusion"], singles).statistic)


def test_inverted_scores_are_those_of_the_reverse_order(network):
    def reverse(work):
        made = glocal.registry.get("methods", "occlusion")(work)
        return Made({"reverse": -made.variables["occlusion"]}, {})

    found = evaluated(network, methods={"occlusion": {}, reverse: {}}, metrics=("aopc", "deletion"))
    forward, backward = (found.sel(explanation=name) for name in ("occlusion", "reverse"))
    np.testing.assert_array_equal(forward.inverse.values, backward.value.values)
    np.testing.assert_array_equal(forward.inverse_mean.values, backward["mean"].values)
    assert found.inverse_mean.sel(explanation="random").isnull().all()


def test_falls_are_means_over_texts(network):
    found = evaluated(network, metrics=("aopc",))
    assert found.fall_removed.dims == ("explanation", "fraction") and found.fraction.values.tolist() == [0.2, 0.5]
    np.testing.assert_allclose(found.fall_removed.mean("fraction"), found["mean"].sel(metric="aopc"))
    assert (found.fall_removed_low <= found.fall_removed).all() and (found.fall_removed <= found.fall_removed_high).all()


def test_the_same_call_gives_the_same_numbers_and_leaves_the_model_as_found(network):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert evaluated(network).identical(evaluated(network))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_one_text_has_the_numbers_that_it_has_among_others(network):
    many, one = evaluated(network), evaluated(network, TEXTS[:1])
    np.testing.assert_allclose(one.value.values[..., 0], many.value.values[..., 0], atol=1e-12)


def test_true_class_and_predicted_class(network):
    rows = [{"text": text, "label": str(number % 3)} for number, text in enumerate(TEXTS)]
    found = evaluated(network, rows, explain="class:{label}", label="label", metrics=("aopc", "accuracy_left"))
    first = evaluated(network, TEXTS[:1], explain="class:0", metrics=("aopc", "accuracy_left"))
    np.testing.assert_allclose(found.value.values[..., 0], first.value.values[..., 0], atol=1e-12)
    assert found.attrs["settings"]["explain"] == "class:{label}"


def test_scales_are_those_of_the_output(network):
    by_scale = {scale: evaluated(network, scale=scale, metrics=("aopc",))["mean"].values for scale in ("logit", "output", "probability")}
    np.testing.assert_array_equal(by_scale["logit"], by_scale["output"])
    assert not np.allclose(by_scale["logit"], by_scale["probability"])


def test_the_position_that_is_read_stays_and_moves_with_deletion():
    network = make_model("GPT2", head="LMHeadModel")
    found = evaluated(network, explain="next_token", metrics=("comprehensiveness", "sufficiency"), bins=(0.5,))
    text = TEXTS[0]
    with torch.no_grad():
        label = int(network(torch.tensor([text])).logits[0, -1].argmax())
    place = lambda numbers: network(torch.tensor([numbers])).logits[0, -1].softmax(-1)[label].item()  # noqa: E731
    story = glocal.analyze(text, network, methods=("gradient_x_input",), measures=(), explain=f"next_token:#{label}")
    top = set(np.argsort(-story.gradient_x_input.values[:-1], kind="stable")[:3].tolist())
    with torch.no_grad():
        expected = (place(text) - place(without(text, top))) / 2
        kept = (2 * place(text) - place(text[-1:]) - place(without(text, set(range(6)) - top))) / 2
    values = found.value.sel(explanation="gradient_x_input").values[:, 0]
    np.testing.assert_allclose(values, [expected, kept], atol=1e-12)


def test_special_tokens_stay_unless_they_may_go(minilm):
    texts = ["The cat sat.", "A dog ran away."]
    options = {"explain": "similarity:A cat.", "methods": ("occlusion",), "metrics": ("sufficiency", "comprehensiveness")}
    stay, go = (glocal.evaluate(texts, *minilm, special=special, replace="mask", **options) for special in (False, True))
    assert np.isfinite(stay["mean"]).all() and not np.allclose(stay["mean"], go["mean"])


def test_maps_give_the_row_that_the_output_is_read_at(network):
    maps = {"attention": {}, "rollout": {}, "attribution": {}}
    found = evaluated(network, methods=maps, metrics=("saliency_agreement", "aopc"))
    assert found.explanation.values.tolist() == [*maps, "random"] and np.isfinite(found["mean"]).all()
    mean, last = (evaluated(network, methods=("rollout",), metrics=("aopc",), row=row)["mean"].values[0, 0] for row in ("mean", -1))
    first = evaluated(network, methods=("rollout",), metrics=("aopc",), row=0)["mean"].values[0, 0]
    assert first == found["mean"].sel(metric="aopc", explanation="rollout") and len({mean, last, first}) == 3


def test_cues_are_found_in_the_text(minilm):
    rows = [{"text": "The cat sat because the cat slept.", "cue": "cat"}, {"text": "A dog ran.", "cue": ""}]
    found = glocal.evaluate(
        rows, *minilm, explain="similarity:A cat.", methods=("occlusion",), metrics=("cue_mass", "cue_precision"), cue="cue"
    )
    assert found["count"].sel(explanation="occlusion").values.tolist() == [1, 1]
    story = glocal.analyze(rows[0]["text"], *minilm, methods=("occlusion",), measures=(), explain="similarity:A cat.")
    scores = np.maximum(story.occlusion.values[1:-1], 0)
    known = story.source_token.values[1:-1] == "cat"
    assert known.sum() == 2
    assert np.isclose(found.value.sel(metric="cue_mass", explanation="occlusion").values[0], scores[known].sum() / scores.sum())


def test_two_texts_likeness_is_of_the_first(minilm):
    rows = [{"text": "A cat sat.", "other": "A dog ran."}, {"text": "It rains.", "other": "The sun shines."}]
    options = {"methods": ("gradient_x_input",), "metrics": ("aopc",)}
    found = glocal.evaluate(rows, *minilm, explain="similarity:{pair}", pair="other", **options)
    alone = glocal.evaluate(["It rains."], *minilm, explain="similarity:The sun shines.", **options)
    np.testing.assert_allclose(found.value.values[..., 1], alone.value.values[..., 0], atol=1e-6)
    assert found.attrs["settings"]["scale"] == "output"


def test_a_label_that_looks_like_a_field_stays_what_it_is():
    item = Item(1, "a", "{label}", "1", "{pair}")
    assert target_of("difference:{label}/{pair}", item) == "difference:{pair}/{label}"


def test_functions_of_outputs_and_of_evidence(network):
    def margin(outputs):
        return outputs.logits[0, 0] - outputs.logits[0, 1]

    def tokens(evidence):
        return float(len(evidence.scores))

    found = evaluated(network, explain=margin, metrics=("aopc", tokens), methods=("gradient_x_input",))
    assert found.attrs["settings"]["explain"] == "margin" and (found["mean"].sel(metric="tokens") == 7).all()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"replace": "zero"}, ChoiceError, "delete, mask"),
        ({"replace": "mask"}, ChoiceError, "mask token"),
        ({"rounding": "up"}, ChoiceError, "ceil, floor, round"),
        ({"bins": (0.5, 0.1)}, ChoiceError, "larger than the one before"),
        ({"fractions": (0.5, 1.5)}, ChoiceError, "up to 1"),
        ({"fractions": ()}, ChoiceError, "fractions"),
        ({"scale": "odds"}, ChoiceError, "probability"),
        ({"explain": "class:{label}"}, ChoiceError, "label"),
        ({"explain": "similarity:{pair}"}, ChoiceError, "pair"),
        ({"explain": "nothing"}, ChoiceError, "next_token"),
        ({"metrics": ("nothing",)}, ChoiceError, "aopc"),
        ({"measures": ("jsd",)}, ChoiceError, "measures has no meaning with explain"),
        ({"methods": ("rollout",), "row": 9}, ChoiceError, "no such row"),
        ({"methods": {"value_zeroing": {}}, "explain": lambda outputs: outputs.logits[0, 0]}, ChoiceError, "row=POSITION"),
        ({"methods": ("head_occlusion",), "options": {"targets": [1]}}, ChoiceError, "no such row"),
    ],
)
def test_refusals(network, options, error, said):
    with pytest.raises(error, match=said):
        evaluated(network, **options)


@pytest.mark.parametrize("option", [{"metrics": ("aopc",)}, {"special": True}, {"cue": "cue"}, {"bins": (0.1,)}, {"row": 1}])
def test_arguments_that_would_be_ignored_are_refused(network, option):
    with pytest.raises(ChoiceError, match="without explain"):
        glocal.evaluate(TEXTS, network, **option)


def test_a_bad_cue_or_a_text_without_tokens_says_which_row(minilm):
    options = {"explain": "similarity:A cat.", "methods": ("occlusion",), "metrics": ("cue_mass",)}
    with pytest.raises(TextError, match=r"Text 2: The cue is not in the text"):
        glocal.evaluate([{"text": "A cat.", "cue": "cat"}, {"text": "A dog.", "cue": "cat"}], *minilm, cue="cue", **options)
    with pytest.raises(TextError, match=r"Text 1: There is no token"):
        glocal.evaluate([[101, 102]], *minilm, **options)
