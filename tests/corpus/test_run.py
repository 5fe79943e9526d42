"""A study is never lost, never mixed up, and gives the same bytes however it was run."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import transformers

import glocal
from glocal.corpus import run
from glocal.corpus.blocks import read_block, write_block
from glocal.errors import ChoiceError, StudyError

TEXTS = [f"The {animal} {verb} {count} times." for animal in ("cat", "dog") for verb in ("sat", "ran", "slept") for count in range(12)]


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    """A folder with a tiny model and a corpus with bad rows."""
    folder = tmp_path_factory.mktemp("study")
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    transformers.BertModel(config).save_pretrained(folder / "model")
    minilm[1].save_pretrained(folder / "model")
    lines = [*TEXTS[:5], "", *TEXTS[5:], "far too long " * 30]
    (folder / "texts.txt").write_text("\n".join(lines) + "\n")
    return folder


def study(place, out, **options):
    return glocal.study(place / "texts.txt", place / "model", out=out, **{"max_tokens": 40, "probes": 2, "progress": False} | options)


@pytest.fixture(scope="module")
def done(place):
    """One uninterrupted run."""
    study(place, place / "done")
    return place / "done"


def summary(folder):
    return (folder / "summary.block").read_bytes()


def test_the_summary_is_that_of_single_stories(place, done):
    found = glocal.open(done)
    stories = [glocal.analyze(text, *load(place), probes=2) for text in TEXTS]
    by_hand = np.stack([story.discrepancy_jsd.mean("target").values for story in stories]).astype(float)
    np.testing.assert_allclose(found.discrepancy_jsd, by_hand.mean(0), atol=1e-4)
    np.testing.assert_allclose(found.discrepancy_jsd_se, by_hand.std(0, ddof=1) / len(TEXTS) ** 0.5, rtol=0.05, atol=1e-5)
    assert (found.discrepancy_jsd_low <= found.discrepancy_jsd).all() and (found.discrepancy_jsd <= found.discrepancy_jsd_high).all()
    assert found.attrs["texts"] == len(TEXTS) and (found.discrepancy_jsd_count == len(TEXTS)).all()


def load(place):
    from glocal.models.load import load

    return load(place / "model")[:2]


def test_bad_rows_are_recorded_with_their_reason(done):
    rejected = glocal.open(done).attrs["rejected"]
    assert [row["number"] for row in rejected] == [5, len(TEXTS) + 1]
    assert "empty" in rejected[0]["reason"] and "max_tokens" in rejected[1]["reason"]


def test_a_second_call_computes_nothing_and_changes_no_byte(place, done, monkeypatch):
    before = summary(done)
    monkeypatch.setattr(run, "_block", lambda *_: pytest.fail("computed again"))
    study(place, done)
    assert summary(done) == before


def test_two_workers_and_shards_give_the_same_bytes(place, done, tmp_path):
    study(place, tmp_path / "two", workers=2)
    for shard in ("2/2", "1/2"):
        study(place, tmp_path / "shards", shard=shard)
    study(place, tmp_path / "shards")
    assert summary(tmp_path / "two") == summary(tmp_path / "shards") == summary(done)


@pytest.mark.parametrize("change", [{"probes": 3}, {"seed": 1}, {"max_tokens": 50}, {"measures": ("hellinger",)}, {"limit": 3}], ids=str)
def test_another_setting_is_refused_with_what_changed(place, done, change):
    with pytest.raises(StudyError, match=next(iter(change))):
        study(place, done, **change)


def test_another_corpus_is_refused(place, done, tmp_path):
    with pytest.raises(StudyError, match=r"corpus has changed(.|\n)*rows 32"):
        glocal.study([*(place / "texts.txt").read_text().splitlines()[:40], "new"], place / "model", out=done, max_tokens=40, probes=2)


def test_a_damaged_block_is_named(place, done, tmp_path):
    study(place, tmp_path / "a", limit=10)
    block = next((tmp_path / "a" / "blocks").iterdir())
    block.write_bytes(block.read_bytes()[:-3])
    with pytest.raises(StudyError, match=block.name):
        study(place, tmp_path / "a", limit=10)


def test_two_runs_on_one_folder(place, done):
    with run._alone(done), pytest.raises(StudyError, match="Another run"):
        study(place, done)


def test_a_folder_that_cannot_be_written(place, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StudyError, match="No space left"):
        study(place, tmp_path / "full", limit=3)
    monkeypatch.undo()
    study(place, tmp_path / "full", limit=3)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1"])
def test_shards_that_do_not_exist(place, tmp_path, shard):
    with pytest.raises(ChoiceError, match="shard"):
        study(place, tmp_path / "s", shard=shard)


def test_a_corpus_without_any_good_text(place, tmp_path):
    with pytest.raises(StudyError, match=r"No text(.|\n)*row 0"):
        glocal.study([""], place / "model", out=tmp_path / "none")


def test_blocks_come_back_and_their_damage_is_seen(tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros((0, 2), dtype=np.int64)}
    write_block(tmp_path / "a.block", arrays, {"x": "ü"})
    found, facts = read_block(tmp_path / "a.block")
    assert facts == {"x": "ü"} and all(np.array_equal(found[name], arrays[name]) for name in arrays)
    contents = (tmp_path / "a.block").read_bytes()
    for position in range(0, len(contents), 7):
        (tmp_path / "a.block").write_bytes(contents[:position] + bytes([contents[position] ^ 1]) + contents[position + 1 :])
        with pytest.raises(StudyError, match="damaged"):
            read_block(tmp_path / "a.block")


_ZYGOTE = """
import os, sys
import torch
torch.set_num_threads(1)
import glocal, glocal.corpus.run, glocal.pipeline
from glocal.models.load import quiet
quiet()
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        glocal.study(sys.argv[1] + "/texts.txt", sys.argv[1] + "/model", out=sys.argv[2], max_tokens=40, probes=2, progress=False)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_fifty_kills_at_random_moments_end_in_the_same_bytes(place, done, tmp_path):
    """One process imports everything once; its children are killed, mostly soon after their start, and at last one may finish."""
    moments, kills, out = random.Random(0), 0, tmp_path / "killed"
    command = [sys.executable, "-c", _ZYGOTE, str(place), str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as zygote:
        assert zygote.stdout.readline() == "ready\n"
        while kills < 50:
            zygote.stdin.write("go\n")
            zygote.stdin.flush()
            child = int(zygote.stdout.readline())
            time.sleep(moments.random() * 1.2)
            os.kill(child, signal.SIGKILL)
            status = int(zygote.stdout.readline())
            kills += os.WIFSIGNALED(status)
            if os.WIFEXITED(status):  # it was done before: begin anew
                assert status == 0 and summary(out) == summary(done)
                for file in (out / "blocks").iterdir():
                    file.unlink()
                (out / "summary.block").unlink()
        zygote.stdin.write("go\n")
        zygote.stdin.flush()
        zygote.stdout.readline()
        assert int(zygote.stdout.readline()) == 0
        zygote.stdin.close()
    assert summary(out) == summary(done)
    assert json.loads((out / "settings.json").read_text()) == json.loads((done / "settings.json").read_text())
