"""The main verb on the real model and on odd requests."""

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from families import ids, make_model, model

import glocal
from glocal.errors import ChoiceError, ModelError, TextError, UnseenLayersError
from glocal.models.load import load, weights_fingerprint

TEXT = "The cat sat on the mat because it was tired."


@pytest.fixture(scope="module")
def story(minilm):
    return glocal.analyze(TEXT, *minilm, measures=("jsd", "total_variation", "spearman"))


@pytest.mark.real
def test_the_real_model_tells_a_whole_story(story):
    assert dict(story.sizes) == {"layer": 6, "head": 12, "target": 13, "source": 13}
    assert set(story.data_vars) >= {"attention", "attribution", "attribution_norm", "discrepancy_jsd", "discrepancy_total_variation"}
    for name in ("attention", "attribution"):
        np.testing.assert_allclose(story[name].sum("source"), 1, atol=2e-6)
        assert story[name].dtype == np.float32
    assert story.attrs["not_finite"] == [] and story.attrs["masked_rows"] == 0
    assert story.attrs["engine"] == "collapsed" and story.attrs["seconds"] > 0
    assert story.source_token.values[2] == "cat"


@pytest.mark.real
def test_in_the_first_layer_there_is_little_mixing_and_more_above(story):
    """No mixing lies below layer 1: what remains there is the query/key path."""
    by_layer = story.discrepancy_jsd.mean(("head", "target")).values
    assert by_layer[0] < by_layer[1:].min()


@pytest.mark.real
def test_a_sentence_pair(minilm):
    story = glocal.analyze(("A cat sat.", "Nobody stood."), *minilm, probes=4)
    assert set(story.source_segment.values) == {0, 1}
    assert (story.attrs["text"], story.attrs["text_pair"]) == ("A cat sat.", "Nobody stood.")


@pytest.mark.real
def test_the_name_minilm_loads_the_bundled_model(minilm):
    by_name = glocal.analyze("A cat.", probes=2)
    by_object = glocal.analyze("A cat.", *minilm, probes=2)
    assert by_name.attrs["model"] == "minilm"
    assert by_name.attrs["weights_fingerprint"] == by_object.attrs["weights_fingerprint"]
    assert by_name.drop_attrs().identical(by_object.drop_attrs())


@pytest.mark.real
def test_the_ladder_ends_where_the_attribution_is(minilm):
    story = glocal.analyze("A cat sat.", *minilm, ladder=True, layers=[1, 2, 4], probes=8)
    ladder = story.ladder_jsd
    np.testing.assert_allclose(ladder.sel(source_layer=0), story.discrepancy_jsd.mean("target"), rtol=1e-4, atol=1e-6)
    for layer in (1, 2, 4):
        assert ladder.sel(layer=layer).isnull().sum() == 12 * (6 - layer)
    assert story.attrs["not_finite"] == []


def test_the_ladder_of_frozen_attention_begins_at_zero():
    story = glocal.analyze(ids(), model("Bert"), ladder=True, freeze=("attention",))
    for layer in (1, 2, 3):
        np.testing.assert_allclose(story.ladder_jsd.sel(layer=layer, source_layer=layer - 1), 0, atol=1e-12)


@pytest.mark.real
def test_a_cut_text_says_so(minilm):
    story = glocal.analyze("word " * 600, *minilm, truncation=True, methods=("attention",))
    assert story.attrs["truncated"] == 90 and "cut off" in story.attrs["notes"][0]


@pytest.mark.parametrize("of", ["head", "hidden"])
def test_one_token(of):
    story = glocal.analyze([7], model("Bert"), of=of)
    np.testing.assert_allclose(story.attribution, 1)
    np.testing.assert_allclose(story.attention, 1)


def test_one_method_alone():
    attention = glocal.analyze(ids(), model("Bert"), methods=("attention",))
    attribution = glocal.analyze(ids(), model("Bert"), methods=["attribution"])
    assert set(attention.data_vars) == {"attention"}
    assert set(attribution.data_vars) == {"attribution", "attribution_norm"}


def test_hidden_states_have_no_heads_and_no_discrepancy():
    story = glocal.analyze(ids(), model("Bert"), of="hidden")
    assert story.attribution.dims == ("layer", "target", "source")
    assert story.attention.dims == ("layer", "head", "target", "source")
    assert not [name for name in story.data_vars if name.startswith("discrepancy")]
    assert "no head dimension" in story.attrs["notes"][-1]


def test_functions_are_accepted_wherever_names_are():
    def largest_gap(attention, attribution):
        return (attention - attribution).abs().amax(-1)

    story = glocal.analyze(ids(), model("Bert"), measures=("jsd", largest_gap))
    expected = abs(story.attention - story.attribution).max("source")
    np.testing.assert_allclose(story.discrepancy_largest_gap, expected, atol=1e-12)


def test_options_of_measures():
    nats = glocal.analyze(ids(), model("Bert"), measures={"jsd": {}})
    bits = glocal.analyze(ids(), model("Bert"), measures={"jsd": {"base": 2}})
    np.testing.assert_allclose(nats.discrepancy_jsd, bits.discrepancy_jsd * np.log(2), rtol=1e-12)


def test_an_encoding_is_a_text(minilm):
    network, tokenizer = minilm
    encoded = tokenizer("A cat.", return_tensors="pt")
    by_text = glocal.analyze("A cat.", network, tokenizer, probes=2)
    for thing in (encoded, encoded["input_ids"], encoded["input_ids"][0], encoded["input_ids"][0].tolist()):
        story = glocal.analyze(thing, network, tokenizer, probes=2)
        np.testing.assert_array_equal(story.attribution, by_text.attribution)


def test_an_empty_list_is_no_story():
    assert glocal.analyze([], model("Bert")) == []


def test_a_bad_text_in_a_list_is_an_error_and_not_a_hole():
    with pytest.raises(TextError, match="no tokens"):
        glocal.analyze([ids(), []], model("Bert"))


@pytest.mark.parametrize("verb", [glocal.analyze, glocal.plan])
def test_an_error_says_which_text_of_a_list_it_is_about(verb):
    with pytest.raises(TextError, match=r"Text 2 of the list \(counted from 0\): "):
        verb([ids(3), ids(4), []], model("Bert"))


def test_a_fixed_number_of_probes_and_an_error_exclude_each_other():
    with pytest.raises(ChoiceError, match="fixed number of probes"):
        glocal.analyze(ids(3), model("Bert"), probes=4, error=0.1)


def test_the_public_names_are_listed():
    assert {"analyze", "describe", "open", "plan", "report", "save", "study"} <= set(dir(glocal))


@pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama"])
def test_task_models_are_analysed_without_their_heads(name):
    kind = {"Bert": "BertForMaskedLM", "GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}[name]
    network = getattr(transformers, kind)(model(name).config).double().eval()
    network.base_model.load_state_dict(model(name).state_dict(), strict=False)
    story = glocal.analyze(ids(), network)
    np.testing.assert_allclose(story.attribution, glocal.analyze(ids(), model(name)).attribution, rtol=1e-6)


def test_encoder_decoders_are_refused_with_a_way_out():
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=50)
    with pytest.raises(ModelError, match="get_encoder"):
        glocal.analyze([5, 6], transformers.T5ForConditionalGeneration(config))


def test_layers_without_attention_are_named():
    network = make_model("Bert")
    network.encoder.layer[1].attention.forward = lambda hidden, *args, **kwargs: (hidden, None)
    with pytest.raises(UnseenLayersError, match="layers missed: 2"):
        glocal.analyze(ids(), network)


@pytest.mark.parametrize("thing", [3, torch.nn.Linear(2, 2)], ids=type)
def test_other_things_are_no_models(thing):
    with pytest.raises(ModelError, match="PreTrainedModel"):
        glocal.analyze("a", thing)


def test_a_model_that_does_not_exist(tmp_path):
    with pytest.raises(ModelError, match="could not be loaded"):
        glocal.analyze("a", tmp_path)


def test_pickled_weights_are_off_unless_asked_for(tmp_path):
    network = make_model("Bert", torch.float32)
    network.config.save_pretrained(tmp_path)
    torch.save(network.state_dict(), tmp_path / "pytorch_model.bin")
    tokenizer_of("minilm").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="allow_pickle"):
        load(tmp_path)
    loaded, _, _ = load(tmp_path, allow_pickle=True)
    assert weights_fingerprint(loaded) == weights_fingerprint(network)


def tokenizer_of(name):
    return load(name)[1]


def test_missing_weights_are_not_made_up(tmp_path):
    network = make_model("Bert", torch.float32)
    state = {key: value for key, value in network.state_dict().items() if "layer.1" not in key}
    network.save_pretrained(tmp_path, state_dict=state)
    tokenizer_of("minilm").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="made up"):
        load(tmp_path)


def test_remote_code_is_off_unless_asked_for(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "odd", "auto_map": {"AutoConfig": "odd.Odd", "AutoModel": "odd.OddModel"}}')
    (tmp_path / "odd.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelError, match="trust_remote_code=True"):
        load(tmp_path)


def test_fingerprints_tell_weights_apart():
    one, other = make_model("Bert"), make_model("Bert")
    assert weights_fingerprint(one) == weights_fingerprint(other)
    with torch.no_grad():
        other.encoder.layer[2].output.dense.weight[3, 4] += 1e-6
    assert weights_fingerprint(one) != weights_fingerprint(other)


def test_progress_functions_hear_of_every_tangent():
    heard = []
    glocal.analyze(ids(), model("Bert"), probes=3, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (15, 15)


_INTERRUPTED = """
import os, signal, sys, threading, time
import glocal
from glocal.models.load import load
model, tokenizer, _ = load("minilm")
state = lambda: (model.config._attn_implementation, model.training, sum(len(m._forward_hooks) for m in model.modules()))
before, sent = state(), []
def interrupt():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(4.0, interrupt).start()
try:
    glocal.analyze("The cat sat on the mat because it was tired. " * 8, model, tokenizer, engine=sys.argv[1], time=None)
except KeyboardInterrupt:
    print(before == state(), time.perf_counter() - sent[0])
"""


@pytest.mark.real
@pytest.mark.parametrize("engine", ["straight", "collapsed", "reverse"])
def test_ctrl_c_ends_an_engine_soon_and_leaves_the_model_as_found(engine):
    """On a quiet machine it takes a few tenths of a second; the bound only tells waiting for the end from stopping."""
    result = subprocess.run([sys.executable, "-c", _INTERRUPTED, engine], check=True, capture_output=True, text=True, timeout=120)
    same, seconds = result.stdout.split()
    assert same == "True" and float(seconds) < 10


@pytest.mark.real
def test_ctrl_c_on_the_command_line_ends_with_130():
    command = [sys.executable, "-m", "glocal.cli", "analyze", "The cat sat on the mat because it was tired. " * 8]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(12)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in err and out == ""


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"freeze": "attention"}, "must be a list"),
        ({"seed": -1}, "whole number"),
        ({"seed": 2**70}, "whole number"),
        ({"probes": 1}, "from 2 to the width"),
        ({"measures": {"jsd": {"bse": 2}}}, "no option 'bse'(.|\n)*allowed: base"),
        ({"methods": {"attention": {"x": 1}}}, "no option 'x'(.|\n)*no options"),
        ({"methods": (lambda work: 3,)}, "what a method must"),
    ],
    ids=lambda each: re.sub(" at 0x[0-9a-f]+", "", str(each)),
)
def test_arguments_that_cannot_be_meant_are_refused(options, match):
    with pytest.raises(ChoiceError, match=match):
        glocal.analyze(ids(4), model("Bert"), **options)


_WRONG_KINDS = """
import transformers, glocal
from glocal.errors import ChoiceError
network = transformers.BertModel(transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=20))
for options in (
    {"layers": 1}, {"targets": 2.5}, {"heads": "12"}, {"measures": None}, {"methods": 3}, {"groups": 5}, {"groups": [0.5, 1]},
    {"seed": "x"}, {"probes": 2.5}, {"probes": True}, {"error": "small"}, {"time": [1]}, {"memory": None}, {"precision": 32},
    {"engine": None}, {"freeze": None},
):
    try:
        glocal.analyze([5, 6], network, **options)
        print("accepted", options)
    except ChoiceError:
        pass
    except Exception as error:
        print(type(error).__name__, options, error)
"""


def test_arguments_of_another_type_are_refused():
    """In a process without the tests' type checker, which would answer first."""
    result = subprocess.run([sys.executable, "-c", _WRONG_KINDS], check=True, capture_output=True, text=True, timeout=120)
    assert result.stdout == ""


@pytest.mark.parametrize(
    "thing",
    [
        3,
        np.zeros((1, 2, 3), dtype=np.int64),
        torch.zeros(1, 2, 3, dtype=torch.long),
        {"input_ids": [5, 6], "attention_mask": [1]},
        {"input_ids": [5, 6], "token_type_ids": [[0, 0]]},
    ],
    ids=str,
)
def test_shapes_that_are_no_text_are_refused(thing):
    with pytest.raises(TextError, match="shape"):
        glocal.analyze(thing, model("Bert"))


def test_rows_of_an_array_are_texts_and_are_never_joined():
    stories = glocal.analyze(np.array([[5, 6], [7, 8]]), model("Bert"))
    assert [story.source_token_id.values.tolist() for story in stories] == [[5, 6], [7, 8]]


def test_numpy_numbers_are_numbers():
    story = glocal.analyze(ids(4), model("Bert"), layers=np.array([1, 2]), targets=np.arange(2), groups=np.array([0, 0, 1, 1]))
    assert dict(story.sizes) == {"layer": 2, "head": 4, "target": 2, "source": 2}


def test_models_without_weights_or_without_tokens_are_refused():
    with pytest.raises(ModelError, match="meta"):
        glocal.analyze(ids(4), make_model("Bert").to("meta"))
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    with pytest.raises(ModelError, match="does not read tokens"):
        glocal.analyze(ids(4), transformers.ViTModel(transformers.ViTConfig(**size)))


def test_threads_that_share_a_model_take_turns():
    network = make_model("Bert")
    with ThreadPoolExecutor(4) as pool:
        stories = list(pool.map(lambda seed: glocal.analyze(ids(4, seed=seed), network), range(6)))
    for seed, story in enumerate(stories):
        assert story.drop_attrs().identical(glocal.analyze(ids(4, seed=seed), network).drop_attrs())
    assert network.config._attn_implementation == "sdpa" and not any(module._forward_hooks for module in network.modules())
