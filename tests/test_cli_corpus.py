"""The commands about a corpus, end to end."""

import json

import pytest
import torch
import transformers

import glocal
from glocal.cli import main

TEXTS = [f"The {animal} sat {count} times, on the mat." for animal in ("cat", "dog") for count in range(4)]


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    folder = tmp_path_factory.mktemp("commands")
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    transformers.BertModel(config).save_pretrained(folder / "model")
    minilm[1].save_pretrained(folder / "model")
    rows = [{"sentence": text, "second": "It was tired.", "key": f"k{number}"} for number, text in enumerate(TEXTS)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"sentence": "", "second": "x", "key": "bad"}])))
    return folder


def run(capsys, *arguments):
    code = main([str(each) for each in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def done(place):
    columns = ["--text", "sentence", "--pair", "second", "--id", "key"]
    options = ["--model", place / "model", "--probes", "2", "--measures", "jsd,top1", *columns]
    assert main([str(each) for each in ("study", place / "rows.jsonl", "--out", place / "done", *options)]) == 0
    return place / "done"


def test_the_summary_has_intervals_and_the_rejected_rows(place, done, capsys):
    code, out, _ = run(capsys, "merge", done)
    found = glocal.open(done)
    assert code == 0 and "8 texts" in out and "1 rejected" in out and "row 9" in out and "empty" in out
    assert found.attrs["rejected"][0]["name"] == "bad"
    for layer in (1, 2):
        value, low, high = (float(found[f"discrepancy_jsd_over_heads{end}"].sel(layer=layer)) for end in ("", "_low", "_high"))
        assert f"{value:.3f} ± {(high - low) / 2:.3f}" in out
    own = found.own_share_over_heads.sel(layer=2)
    assert f"{float(own.sel(map='attention')):.1%} → {float(own.sel(map='attribution')):.1%}" in out
    assert max(map(len, out.splitlines()[:6])) <= 100


def test_a_study_is_one_json_document(place, done, capsys):
    columns = ["--text", "sentence", "--pair", "second", "--id", "key"]
    options = ["--model", place / "model", "--probes", "2", "--measures", "jsd,top1", *columns]
    code, out, _ = run(capsys, "study", place / "rows.jsonl", "--out", done, *options, "--json")
    document = json.loads(out)
    values = document["by_layer"]["discrepancy_jsd_over_heads"]["values"]
    assert code == 0 and values == pytest.approx(glocal.open(done).discrepancy_jsd_over_heads.values.tolist())


def test_figures_and_page(place, done, capsys):
    code, out, _ = run(capsys, "plot", done, "--formats", "svg", "--names", "own_share")
    assert code == 0 and sorted(path.name for path in (done / "figures").iterdir()) == ["own_share.csv", "own_share.svg"]
    code, out, _ = run(capsys, "report", done)
    page = done.with_suffix(".html").read_text(encoding="utf-8")
    assert code == 0 and "done.html" in out and 'name="generator" content="glocal' in page
    story = glocal.analyze(TEXTS[0], place / "model", probes=2)
    glocal.save(story, place / "one.zarr")
    code, out, _ = run(capsys, "report", place / "one.zarr", "--out", place / "one.html")
    assert code == 0 and TEXTS[0] in (place / "one.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("study", "nothing.txt", "--out", "{place}/x"), "no such corpus"),
        (("study", "{place}/rows.jsonl", "--out", "{place}/y", "--model", "{place}/model"), "no column 'text'"),
        (("study", "{place}/rows.jsonl", "--out", "{place}/z", "--report", "a.txt"), "ending"),
        (("plot", "{place}"), "Story"),
        (("merge", "{place}/nowhere"), "no study"),
        (("report", "{place}/nowhere"), "no such"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_errors_are_texts(arguments, said, place, capsys):
    code, _, err = run(capsys, *(each.format(place=place) for each in arguments))
    assert code == 1 and said.lower() in err.lower() and "Traceback" not in err


def test_evaluate_prints_the_ranking(place, capsys):
    arguments = (
        "evaluate",
        f"{place}/rows.jsonl",
        "--text",
        "sentence",
        "--limit",
        3,
        "--model",
        f"{place}/model",
        "--methods",
        "attention,attribution",
    )
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "spearman (higher is better)" in out and "jsd (lower is better)" in out and "random" in out
    code, out, _ = run(capsys, *arguments, "--json", "--measures", "cosine")
    found = json.loads(out)
    assert found["coordinates"]["explanation"] == ["attention", "attribution", "random"] and found["attributes"]["texts"] >= 1
    assert set(found["values"]) >= {"mean", "low", "high", "rank", "by_layer", "difference_q"} and "value" not in found["values"]


def test_evaluate_an_output_with_every_choice(place, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "A cat sat.", "other": "A dog ran."}\n{"text": "It rains today.", "other": "The sun shines."}\n')
    arguments = (
        "evaluate", rows, "--explain", "similarity:{pair}", "--pair", "other", "--methods", "gradient_x_input,rollout", "--metrics",
        "aopc,blank_out", "--replace", "mask", "--rounding", "floor", "--fractions", "0.3,0.6", "--bins", "0.5", "--special", "--row",
        "mean", "--plots", tmp_path / "plots",
    )  # fmt: skip
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "replace=mask, scale=output, rounding=floor, special tokens may go" in out and "fractions 0.3, 0.6" in out
    assert (tmp_path / "plots/tokens_removed.png").exists() and str(tmp_path / "plots/ranking.pdf") in out
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0 and json.loads(out)["attributes"]["settings"]["explain"] == "similarity:{pair}"


@pytest.mark.parametrize(("option", "said"), [(("--fractions", "a"), "shares"), (("--row", "x"), "mean"), (("--metrics", "x"), "aopc")])
def test_evaluate_refuses_what_it_cannot_read(option, said, capsys):
    with pytest.raises(SystemExit):
        run(capsys, "evaluate", "rows.jsonl", *option)
    assert said in capsys.readouterr().err
