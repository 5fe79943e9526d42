"""Attribution where the answer is known in closed form, and its options."""

from functools import partial

import numpy as np
import pytest
import torch
from families import ids, make_model, model
from jacobians import blocks, frobenius

import glocal
from glocal.errors import ChoiceError, FreezeError, ModelError
from glocal.jacobian.shares import share_errors, shares
from glocal.methods.attribution import attribution
from glocal.models.instrument import instrumented
from glocal.models.observe import observe
from glocal.models.outputs import Origin, outputs_function
from glocal.progress import tracker
from glocal.request import Request, Work


@pytest.fixture
def without_queries():
    """BERT whose queries are zero: every head averages its values."""
    network = make_model("Bert")
    with torch.no_grad():
        for layer in network.encoder.layer:
            layer.attention.self.query.weight.zero_()
            layer.attention.self.query.bias.zero_()
    return network


def value_norms(network):
    weight = network.encoder.layer[0].attention.self.value.weight
    return weight.reshape(4, 8, 32).square().sum((1, 2)).sqrt().detach()


every_engine = pytest.mark.parametrize("engine", ["straight", "collapsed", "reverse"])


@every_engine
def test_without_queries_every_source_weighs_the_same(without_queries, engine):
    story = glocal.analyze(ids(5), without_queries, engine=engine)
    expected = (value_norms(without_queries) / 5)[:, None, None].expand(4, 5, 5)
    np.testing.assert_allclose(story.attribution_norm.values[0], expected, rtol=1e-12)
    np.testing.assert_allclose(story.attribution.values[0], 1 / 5, rtol=1e-12)
    np.testing.assert_allclose(story.discrepancy_jsd.values[0], 0, atol=1e-12)


@every_engine
def test_without_queries_padding_weighs_nothing(without_queries, engine):
    """The engines themselves, not only the stripping before them."""
    inputs = {"input_ids": torch.tensor([[*ids(4), 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 0, 0]])}
    with instrumented(without_queries):
        seen = observe(without_queries, inputs)
        request = Request(engine=engine, layers=(1,), targets=(0, 1, 2, 3)).resolved(seen)
        made = attribution(Work(without_queries, seen, request, partial(tracker, False), {}))
    norm = made.variables["attribution_norm"][0]
    assert made.facts["engine"] == engine
    expected = (value_norms(without_queries) / 4)[:, None, None].expand(4, 4, 4)
    torch.testing.assert_close(norm[..., :4], expected, rtol=1e-12, atol=0)
    assert bool((norm[..., 4:] == 0).all())


def test_minilm_in_float32_equals_reverse_mode_in_float64(minilm):
    """Two layers of the trained model, by the oracle: all components of two heads would take minutes."""
    network, tokenizer = minilm
    text = "The cat sat."
    story = glocal.analyze(text, network, tokenizer)
    wide = type(network)(network.config).double().eval()
    wide.load_state_dict(network.state_dict())
    inputs = dict(tokenizer(text, return_tensors="pt").items())
    with instrumented(wide):
        seen = observe(wide, inputs)
        x = Origin().point(seen).requires_grad_()
        function = outputs_function(wide, seen, origin=Origin(), of="head", layers=[1, 4])
        with torch.enable_grad():
            outputs = function(x)
            for layer, output in zip((1, 4), outputs, strict=True):
                for head, target in ((0, 0), (7, 3)):
                    rows = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in output[target, head]]
                    norm = torch.stack(rows).square().sum((0, 2)).sqrt().numpy()
                    ours = story.attribution_norm.sel(layer=layer, head=head + 1, target=target).values
                    np.testing.assert_allclose(ours, norm, rtol=1e-5)


@every_engine
def test_summed_norm_and_input_scaling_equal_the_oracle(engine):
    jacobians = blocks(model("Bert"), ids(4))
    summed = glocal.analyze(ids(4), model("Bert"), norm="summed", engine=engine)
    scaled = glocal.analyze(ids(4), model("Bert"), times_input=True, engine=engine)
    with instrumented(model("Bert")):
        x = observe(model("Bert"), {"input_ids": torch.tensor([ids(4)])}).hidden[0]
    for layer, jacobian in enumerate(jacobians):
        expected = jacobian.sum(2).square().sum(-1).sqrt().permute(1, 0, 2)
        np.testing.assert_allclose(summed.attribution_norm.values[layer], expected, rtol=1e-9)
        np.testing.assert_allclose(scaled.attribution_norm.values[layer], frobenius(jacobian * x), rtol=1e-9)


def test_the_summed_norm_vanishes_behind_a_layer_norm_with_constant_gain():
    network = make_model("Bert")
    with torch.no_grad():
        for layer in network.encoder.layer:
            layer.output.LayerNorm.weight.fill_(1)
    story = glocal.analyze(ids(4), network, of="hidden", norm="summed")
    full = glocal.analyze(ids(4), network, of="hidden")
    assert float(story.attribution_norm.max()) < 1e-12 * float(full.attribution_norm.max())


@every_engine
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_give_float32_results(dtype, engine):
    network = make_model("Bert", dtype)
    story = glocal.analyze(ids(4), network, progress=False, engine=engine)
    wide = glocal.analyze(ids(4), model("Bert"), progress=False)
    assert story.attribution.dtype == story.attention.dtype == np.float32
    assert float(abs(story.attribution - wide.attribution).sum("source").mean()) / 2 < 0.03
    assert next(network.parameters()).dtype == dtype


@every_engine
def test_a_dead_head_gives_counted_nan_and_does_not_touch_others(engine):
    network = make_model("Bert")
    with torch.no_grad():
        network.encoder.layer[0].attention.self.value.weight[:8] = 0
        network.encoder.layer[0].attention.self.value.bias[:8] = 0
    story = glocal.analyze(ids(4), network, engine=engine)
    assert story.attribution.sel(layer=1, head=1).isnull().all()
    assert not story.attribution.sel(layer=1, head=2).isnull().any()
    entries = {(entry["variable"], entry["layer"], entry["head"]) for entry in story.attrs["not_finite"]}
    assert ("attribution", 1, 1) in entries
    assert all((layer, head) == (1, 1) for _, layer, head in entries)


@every_engine
def test_infinite_weights_are_named_by_layer_and_head(engine):
    network = make_model("Bert")
    with torch.no_grad():
        network.encoder.layer[1].attention.self.value.weight[8:16] = torch.inf
    story = glocal.analyze(ids(4), network, engine=engine)
    variables = {(entry["variable"], entry["layer"], entry["head"]) for entry in story.attrs["not_finite"]}
    assert ("attribution_norm", 2, 2) in variables
    assert not story.attribution.sel(layer=1).isnull().any()


@pytest.mark.real
@pytest.mark.parametrize("probes", [4, 16, 64])
def test_ninety_five_percent_intervals_of_a_sketch_cover_as_much(minilm, probes):
    """On the trained model: each of the numbers below is a mean over thousands of blocks and four seeds."""
    network, tokenizer = minilm
    text = "Stock prices fell sharply on Monday."
    exact = glocal.analyze(text, network, tokenizer)
    inside = {"norm": [], "share": []}
    estimated, found = [], []
    for seed in range(4):
        sketch = glocal.analyze(text, network, tokenizer, probes=probes, seed=seed)
        inside["norm"].append(float((abs(sketch.attribution_norm - exact.attribution_norm) <= 1.96 * sketch.attribution_norm_se).mean()))
        inside["share"].append(float((abs(sketch.attribution - exact.attribution) <= 1.96 * sketch.attribution_se).mean()))
        found.append(float((abs(sketch.attribution - exact.attribution).sum("source") / 2).mean()))
        estimated.append(sketch.attrs["error_estimate"]["mean_total_variation_of_a_row"])
    assert 0.925 < np.mean(inside["norm"]) < 0.975, inside
    assert 0.925 < np.mean(inside["share"]) < 0.975, inside
    assert 0.9 < np.mean(estimated) / np.mean(found) < 1.1


@pytest.mark.real
@pytest.mark.parametrize("error", [0.05, 0.03])
def test_probes_are_added_until_the_error_is_met(minilm, error):
    sketch = glocal.analyze("The cat sat there.", *minilm, probes="auto", error=error, measures=())
    exact = glocal.analyze("The cat sat there.", *minilm, measures=())
    assert sketch.attrs["error_estimate"]["mean_total_variation_of_a_row"] <= error
    assert float((abs(sketch.attribution - exact.attribution).sum("source") / 2).mean()) < 1.2 * error
    again = glocal.analyze("The cat sat there.", *minilm, probes=sketch.attrs["plan"]["probes"], measures=())
    np.testing.assert_allclose(sketch.attribution, again.attribution, atol=1e-5)


def test_an_error_beyond_reach_ends_with_exact_results():
    story = glocal.analyze(ids(4), model("Bert"), probes="auto", error=1e-9)
    assert story.attrs["plan"]["probes"] == 0 and "attribution_se" not in story
    np.testing.assert_allclose(story.attribution, glocal.analyze(ids(4), model("Bert")).attribution, rtol=1e-9)


def test_beyond_the_time_budget_a_sketch_is_made_and_says_so():
    hurried = glocal.analyze(ids(6), model("Bert"), time=1e-9, error=0.05)
    assert "attribution_se" in hurried
    assert "time budget" in hurried.attrs["notes"][0] and "time=None" in hurried.attrs["notes"][0]
    for options in ({"time": None}, {"engine": "straight"}, {}):
        patient = glocal.analyze(ids(6), model("Bert"), **{"time": 1e-9} | options) if options else glocal.analyze(ids(6), model("Bert"))
        assert "attribution_se" not in patient and patient.attrs["notes"] == []


def test_few_targets_take_the_reverse_engine():
    story = glocal.analyze(ids(12), model("Bert"), targets=[3], layers=[2], heads=[4])
    whole = glocal.analyze(ids(12), model("Bert"), engine="straight").sel(layer=[2], head=[4], target=[3])
    assert story.attrs["engine"] == "reverse" and story.attrs["plan"]["tangents"] == 8
    np.testing.assert_allclose(story.attribution, whole.attribution, rtol=1e-9)


@pytest.mark.parametrize("engine", ["straight", "collapsed"])
@pytest.mark.parametrize("precision", ["float64", "float32", "reduced_products", "bfloat16"])
def test_precisions_agree_and_note_their_difference(engine, precision):
    network = make_model("Bert", torch.float32)
    if (engine, precision) == ("straight", "bfloat16"):
        with pytest.raises(ChoiceError, match="collapsed"):
            glocal.analyze(ids(), network, engine=engine, precision=precision)
        return
    exact = glocal.analyze(ids(), model("Bert"), engine="straight")
    before = torch.get_float32_matmul_precision()
    story = glocal.analyze(ids(), network, engine=engine, precision=precision)
    assert story.attrs["settings"]["precision"] == precision
    assert story.attribution.dtype == (np.float64 if precision == "float64" else np.float32)
    assert torch.get_float32_matmul_precision() == before and next(network.parameters()).dtype == torch.float32
    variation = float((abs(story.attribution - exact.attribution).sum("source") / 2).mean())
    reduced = precision in ("reduced_products", "bfloat16")
    assert variation < (0.01 if reduced else 1e-5)
    noted = story.attrs["error_estimate"].get("mean_difference_of_norms_to_straight")
    assert (noted is not None) == (reduced or engine == "collapsed")
    if precision == "bfloat16":
        assert 1e-4 < noted < 0.05


def test_noise_makes_divergences_too_large_and_the_bias_is_estimated():
    network = model("Bert")
    exact = float(glocal.analyze(ids(8), network).discrepancy_jsd.mean())
    sketches = [glocal.analyze(ids(8), network, probes=4, seed=seed) for seed in range(20)]
    moved = np.mean([float(story.discrepancy_jsd.mean()) for story in sketches]) - exact
    estimated = np.mean([story.attrs["error_estimate"]["mean_bias_jsd"] for story in sketches])
    assert moved > 0 and estimated > 0
    assert abs(moved - estimated) < 0.6 * moved
    assert "bias_jsd" not in glocal.analyze(ids(8), network)


def test_share_errors_by_finite_differences():
    norm = torch.rand(2, 4, dtype=torch.float64) + 0.5
    variance = torch.rand(2, 4, dtype=torch.float64) * 0.01
    gradient = torch.func.vmap(torch.func.jacrev(lambda square: shares(square.sqrt())))(norm.square())
    expected = (gradient.square() @ variance[..., None]).squeeze(-1).sqrt()
    torch.testing.assert_close(share_errors(norm, variance)[1], expected)


def test_sources_that_cannot_matter_have_no_error():
    norm, variance = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    for error in share_errors(norm, variance):
        assert torch.equal(error, torch.zeros(1, 2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"of": "heads"}, "head, head_output, hidden"),
        ({"norm": "spectral"}, "frobenius, summed"),
        ({"origin": "tokens"}, "embedding_output, word"),
        ({"freeze": ("norms",)}, "attention, norm, activation"),
        ({"engine": "fast"}, "auto, straight, collapsed, reverse"),
        ({"probes": "many"}, '"auto"'),
        ({"probes": "auto", "engine": "reverse"}, "does not choose"),
        ({"error": 0}, "between 0 and 1"),
        ({"time": "soon"}, "cannot be read"),
        ({"precision": "float8"}, "float64, float32, reduced_products, bfloat16"),
        ({"source_layer": 3}, "0 .the embeddings. to 2"),
        ({"source_layer": -1}, "no source layer -1"),
        ({"origin": "word", "source_layer": 1}, "no choice of origin"),
        ({"layers": [4]}, "1 to 3"),
        ({"layers": [1], "source_layer": 1}, "2 to 3"),
        ({"heads": [0]}, "1 to 4"),
        ({"targets": [4]}, "0 to 3"),
        ({"targets": []}, "no entry"),
        ({"memory": "lots"}, "cannot be read"),
        ({"methods": ("atention",)}, "no method called"),
        ({"measures": ("jds",)}, "no measure called"),
    ],
    ids=str,
)
def test_wrong_choices_are_refused_with_what_is_allowed(options, match):
    with pytest.raises(ChoiceError, match=match):
        glocal.analyze(ids(4), model("Bert"), **options)


def test_a_norm_of_another_kind_cannot_be_frozen():
    network = make_model("Bert")

    class OddNorm(torch.nn.LayerNorm):
        def forward(self, x):
            return super().forward(x) + 0.1 * x.square()

    odd = OddNorm(32).double()
    network.encoder.layer[1].output.LayerNorm = odd
    with pytest.raises(FreezeError, match="OddNorm"):
        glocal.analyze(ids(4), network, freeze=("norm",))


def test_head_outputs_need_a_linear_projection():
    network = make_model("Bert")

    class Bent(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(2 * x)

    layer = network.encoder.layer[0].attention.output
    layer.dense = Bent(layer.dense)
    with pytest.raises(ModelError, match="no linear output projection"):
        glocal.analyze(ids(4), network, of="head_output")
