"""Differences between studies: in pairs where the texts are the same, and never more certain than they are."""

import numpy as np
import pytest
import torch
import transformers
from scipy import stats

import glocal
from glocal.errors import StudyError

TEXTS = [f"The {animal} {verb} {count} times." for animal in ("cat", "dog") for verb in ("sat", "ran", "slept") for count in range(7)]


def tiny(folder, seed, layers=2, heads=2):
    torch.manual_seed(seed)
    config = transformers.BertConfig(hidden_size=16, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=16)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def studies(tmp_path_factory, minilm):
    place = tmp_path_factory.mktemp("contrast")
    models = {"one": tiny(place / "m1", 1), "two": tiny(place / "m2", 2), "deep": tiny(place / "m3", 3, layers=3)}
    for name, model in models.items():
        minilm[1].save_pretrained(model)
        glocal.study(TEXTS, model, out=place / name, probes=2, progress=False)
    glocal.study(TEXTS[::-1], models["one"], out=place / "reversed", probes=2, progress=False)
    glocal.study([*TEXTS[:30], *TEXTS[30:][::-1]], models["one"], out=place / "same", probes=2, progress=False, limit=30)
    return place


def per_text(place, name, number):
    from glocal.corpus.blocks import read_block
    from glocal.corpus.places import place_of

    blocks = place_of(place / name / "blocks")
    return np.concatenate([read_block(blocks, each)[0][number] for each in blocks.names(".block")]).astype(float)


def test_the_same_texts_are_compared_in_pairs(studies):
    found = glocal.compare(studies / "one", studies / "two")
    assert found.attrs["paired"] and found.attrs["texts"] == len(TEXTS)
    apart = per_text(studies, "two", "discrepancy_jsd") - per_text(studies, "one", "discrepancy_jsd")
    np.testing.assert_allclose(found.discrepancy_jsd, apart.mean(0), atol=1e-9)
    np.testing.assert_allclose(found.discrepancy_jsd_se, apart.std(0, ddof=1) / len(TEXTS) ** 0.5, rtol=1e-6)
    np.testing.assert_allclose(found.discrepancy_jsd_over_heads, apart.mean((0, 2)), atol=1e-9)
    np.testing.assert_allclose(found.discrepancy_jsd_overall, apart.mean(), atol=1e-9)
    expected = 2 * stats.norm.sf(np.abs(found.discrepancy_jsd / found.discrepancy_jsd_se))
    np.testing.assert_allclose(found.discrepancy_jsd_p, expected, rtol=1e-6)
    np.testing.assert_allclose(found.discrepancy_jsd_q.values.reshape(-1), stats.false_discovery_control(expected.reshape(-1)), rtol=1e-6)
    assert (found.discrepancy_jsd_low < found.discrepancy_jsd).all() and (found.discrepancy_jsd < found.discrepancy_jsd_high).all()
    assert (found.discrepancy_jsd_q < 0.05).any()


def test_other_texts_are_independent_and_give_wider_intervals(studies):
    paired, independent = (glocal.compare(studies / "two", studies / name) for name in ("one", "reversed"))
    assert paired.attrs["paired"] and not independent.attrs["paired"]
    np.testing.assert_allclose(independent.own_share_overall, paired.own_share_overall, atol=0.02)
    two, other = (per_text(studies, name, "own_share").mean((2, 3)) for name in ("two", "reversed"))
    error = np.sqrt(two.var(0, ddof=1) / len(two) + other.var(0, ddof=1) / len(other))
    np.testing.assert_allclose(independent.own_share_overall_se, error, rtol=1e-6)


def test_a_study_does_not_differ_from_itself(studies):
    found = glocal.compare(studies / "one", studies / "one")
    for name, array in found.data_vars.items():
        same = array == (1 if name.endswith(("_p", "_q")) else 0)
        assert (same | array.isnull()).all() and same.any(), name


def test_models_of_other_sizes_are_compared_as_far_as_they_go(studies):
    found = glocal.compare(studies / "one", studies / "deep")
    assert "discrepancy_jsd_overall" in found and "discrepancy_jsd" not in found and "discrepancy_jsd_over_heads" not in found
    assert found.category_mass_overall.dims == ("map", "pattern")


def test_what_cannot_be_compared(studies, tmp_path):
    with pytest.raises(StudyError, match="no finished study"):
        glocal.compare(studies / "one", tmp_path)


@pytest.mark.parametrize("second", ["two", "deep", "reversed"])
def test_the_command_prints_and_writes_the_differences(studies, second, tmp_path, capsys):
    import json

    import pandas

    from glocal.cli import main

    assert main(["compare", str(studies / "one"), str(studies / second), "--out", str(tmp_path / "a.csv")]) == 0
    said = capsys.readouterr().out
    assert "own_share attention" in said and ("in pairs" in said) == (second != "reversed")
    table = pandas.read_csv(tmp_path / "a.csv")
    found = glocal.compare(studies / "one", studies / second)
    row = table[(table.statistic == "own_share_overall") & (table["map"] == "attribution")]
    np.testing.assert_allclose(row.difference.item(), found.own_share_overall.sel(map="attribution"))
    assert main(["compare", str(studies / "one"), str(studies / second), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(table)
