"""The command line: what it prints, where, and with which exit code."""

import json
import subprocess
import sys

import pytest

import glocal
from glocal import registry
from glocal.cli import main

pytestmark = pytest.mark.real
TEXT = "The cat sat."


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_summary_says_what_the_text_shows(capsys):
    code, out, err = run(capsys, "analyze", TEXT, "--probes", "4")
    assert code == 0 and err == ""
    for piece in ("layer", "discrepancy", "own-token", "special", "straight"):
        assert piece in out.lower(), piece


def test_json_is_one_document(capsys):
    code, out, _ = run(capsys, "analyze", TEXT, "--probes", "4", "--json", "--layers", "1,3-4", "--heads", "2")
    document = json.loads(out)
    assert code == 0
    assert document["attributes"]["settings"]["layers"] == [1, 3, 4]


def test_an_output_is_explained(capsys):
    code, out, err = run(capsys, "analyze", TEXT, "--methods", "occlusion", "--explain", "similarity:A cat sat.")
    assert code == 0 and err == ""
    assert "similarity:A cat sat." in out and "occlusion" in out
    code, _, err = run(capsys, "analyze", TEXT, "--methods", "occlusion")
    assert code == 1 and "explain" in err


def test_files_are_written_and_named(capsys, tmp_path):
    code, out, _ = run(capsys, "analyze", TEXT, "--probes", "4", "--out", str(tmp_path / "a.zarr"), "--report", str(tmp_path / "a.html"))
    assert code == 0 and "a.zarr" in out and "a.html" in out
    assert glocal.open(tmp_path / "a.zarr").attrs["text"] == TEXT
    assert TEXT in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_an_existing_story_is_refused_before_anything_is_computed(capsys, tmp_path):
    glocal.save(glocal.analyze(TEXT, probes=2), tmp_path / "a.zarr")
    code, out, err = run(capsys, "analyze", TEXT, "--model", "does-not-exist", "--out", str(tmp_path / "a.zarr"))
    assert code == 1 and out == "" and "a.zarr" in err and "overwrite" in err


@pytest.mark.parametrize(("options", "said"), [(("--report", "a.txt"), "ending"), (("--report", "a.html", "--groups", "word"), "groups")])
def test_a_report_that_cannot_be_is_refused_before_anything_is_computed(options, said, capsys):
    code, out, err = run(capsys, "analyze", TEXT, "--model", "does-not-exist", *options)
    assert code == 1 and out == "" and said in err


def test_the_ladder_is_shown(capsys):
    code, out, _ = run(capsys, "analyze", TEXT, "--probes", "2", "--ladder", "--layers", "2,4")
    rows = [line.split() for line in out.split("to the input of layer")[1].splitlines()[1:4]]
    assert code == 0 and rows[0][0] == "layer" and [row[0] for row in rows[1:]] == ["2", "4"]
    assert [len(row) for row in rows[1:]] == [3, 5]


def test_a_pair_and_standard_input(capsys, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("From a pipe.\n"))
    code, out, _ = run(capsys, "analyze", "-", "--pair", "Second.", "--probes", "2", "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["attributes"]["text"], document["attributes"]["text_pair"]) == ("From a pipe.", "Second.")


def test_deliberate_errors_are_texts_and_not_tracebacks(capsys):
    code, out, err = run(capsys, "analyze", "")
    assert code == 1 and out == ""
    assert err.startswith("glocal: The text is empty.") and "Traceback" not in err


@pytest.mark.parametrize("arguments", ["analyze", "analyze a --of x", "analyze a --layers x", "analyze a --measures x", ""])
def test_wrong_arguments_end_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2


@pytest.mark.parametrize("folder", ["methods", "measures", "metrics"])
def test_tables_list_the_registry(folder, capsys):
    _, out, _ = run(capsys, folder)
    _, plain, _ = run(capsys, folder, "--json")
    for name in registry.names(folder):
        assert name in out
    assert set(json.loads(plain)) == set(registry.names(folder))


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"glocal {glocal.__version__}\n"


def test_markup_in_a_text_is_text(capsys):
    _, out, _ = run(capsys, "analyze", "[bold]x[/bold] [/] \x1b[31m", "--probes", "2")
    assert "[bold]" in out and "\x1b[31m" not in out


def test_a_pipe_gets_no_progress_bar_and_a_closed_pipe_no_traceback():
    command = f"{sys.executable} -m glocal.cli analyze '{TEXT}' --json | head -c 10"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.stdout == '{"schema":' or len(result.stdout) == 10
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("option", "value"), [("--groups", "1,a"), ("--probes", "many"), ("--layers", "3-1"), ("--layers", "1,x"), ("--engine", "fast")]
)
def test_wrong_values_are_refused_by_the_parser(option, value, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["analyze", "a", option, value])
    assert caught.value.code == 2 and value.split(",")[-1] in capsys.readouterr().err


@pytest.mark.real
def test_a_plan_says_what_would_be_done_and_does_not_do_it(capsys):
    assert main(["plan", "The cat sat on the mat.", "--memory", "2GiB"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("engine   collapsed, exact") and "instead  straight" in said and "instead  reverse" in said
    assert main(["plan", "A cat.", "--targets", "0", "--layers", "2", "--heads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "reverse"
    assert main(["plan", "A cat sat.", "--time", "0.01s", "--groups", "word"]) == 0
    assert "sketch" in capsys.readouterr().out
