"""A study is never lost, never mixed up, and gives the same bytes however it was run."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers

import glocal
from glocal.corpus import engines
from glocal.corpus.blocks import packed, read_block
from glocal.corpus.places import place_of
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
    assert [row["number"] for row in rejected] == [6, len(TEXTS) + 2]
    assert "empty" in rejected[0]["reason"] and "max_tokens" in rejected[1]["reason"]
    assert pq.read_table(done / "rejected.parquet").to_pylist() == rejected


def test_a_second_call_computes_nothing_and_changes_no_byte(place, done, monkeypatch):
    before = summary(done)
    monkeypatch.setattr(engines, "compute", lambda *_: pytest.fail("computed again"))
    study(place, done)
    assert summary(done) == before


def test_two_workers_and_shards_give_the_same_bytes(place, done, tmp_path):
    study(place, tmp_path / "two", workers=2)
    for shard in ("2/2", "1/2"):
        study(place, tmp_path / "shards", shard=shard)
        study(place, tmp_path / f"shard {shard[0]}", shard=shard)
    study(place, tmp_path / "shards")
    assert summary(tmp_path / "two") == summary(tmp_path / "shards") == summary(done)
    with pytest.raises(StudyError, match="not complete"):
        glocal.merge(tmp_path / "half", tmp_path / "shard 1")
    glocal.merge(tmp_path / "merged", tmp_path / "shard 2", tmp_path / "shard 1")
    assert summary(tmp_path / "merged") == summary(done)
    for name in ("texts.parquet", "rejected.parquet"):
        assert (tmp_path / "merged" / name).read_bytes() == (done / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_folders_that_are_no_shards_of_one_study(place, done, tmp_path):
    study(place, tmp_path / "other", probes=3, limit=3)
    with pytest.raises(StudyError, match="other settings"):
        glocal.merge(tmp_path / "mixed", done, tmp_path / "other")
    with pytest.raises(StudyError, match="no study"):
        glocal.merge(tmp_path / "x", tmp_path / "nowhere")


@pytest.mark.filterwarnings("ignore")
def test_two_actors_of_a_ray_cluster_give_the_same_bytes(place, done, tmp_path):
    ray = pytest.importorskip("ray")
    with pytest.raises(StudyError, match="no Ray cluster"):
        study(place, tmp_path / "none", engine="ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    mark = str(tmp_path / "died")
    texts = (place / "texts.txt").read_text().splitlines()
    try:
        study(place, tmp_path / "ray", engine="ray", workers=2)
        options = {"max_tokens": 40, "probes": 2, "progress": False}
        glocal.study([*texts, DiesOnce(mark)], place / "model", out=tmp_path / "lost", engine="ray", workers=2, **options)
    finally:
        ray.shutdown()
    assert summary(tmp_path / "ray") == summary(done)
    assert Path(mark).exists()
    glocal.study([*texts, "I died once."], place / "model", out=tmp_path / "whole", **options)
    assert glocal.open(tmp_path / "lost").identical(glocal.open(tmp_path / "whole"))


class DiesOnce(str):
    """A text at whose first arrival a worker process ends."""

    def __reduce__(self):
        end = f"(open({str(self)!r}, 'w').close(), os._exit(3))"
        return eval, (f"(lambda os: 'I died once.' if os.path.exists({str(self)!r}) else {end})(__import__('os'))",)


def test_a_place_that_fsspec_reaches_holds_the_same_bytes(place, done):
    import fsspec

    study(place, "memory://studies/a")
    study(place, "memory://studies/a")
    files = fsspec.filesystem("memory")
    assert files.cat_file("/studies/a/summary.block") == summary(done)
    assert files.cat_file("/studies/a/texts.parquet") == (done / "texts.parquet").read_bytes()
    assert glocal.open("memory://studies/a").identical(glocal.open(done))
    with pytest.raises(StudyError, match="address"):
        study(place, "nonsense://a")


def test_the_table_has_a_row_per_text_layer_and_head(done):
    rows = pq.read_table(done / "texts.parquet").to_pandas()
    found = glocal.open(done)
    assert len(rows) == len(TEXTS) * 2 * 2 and rows.number.nunique() == len(TEXTS)
    means = rows.groupby(["layer", "head"]).mean(numeric_only=True)
    for column, expected in (
        ("discrepancy_jsd", found.discrepancy_jsd),
        ("own_share_attention", found.own_share.sel(map="attention")),
        ("category_mass_attribution_separator", found.category_mass.sel(map="attribution", pattern="separator")),
    ):
        np.testing.assert_allclose(means[column].values.reshape(2, 2), expected, atol=1e-5)


def test_every_statistic_has_its_companions_and_says_what_it_is(done):
    found = glocal.open(done)
    for name, array in found.data_vars.items():
        assert array.attrs["long_name"] and "unit" in array.attrs, name
        if f"{name}_se" in found:
            assert all(found[name + end].dims == array.dims for end in ("_se", "_low", "_high", "_count")), name
            assert "head" not in array.dims or name.endswith("_over_heads") or f"{name}_over_heads" in found, name
    np.testing.assert_allclose(found.discrepancy_jsd_over_heads, found.discrepancy_jsd.mean("head"), atol=1e-7)
    by_length = found.discrepancy_jsd_by_length
    assert np.isfinite(by_length.sel(length="9-16")).all() == (found.discrepancy_jsd_by_length_count.sel(length="9-16") > 0).all()
    middle = found.discrepancy_jsd_quantile
    assert (middle.diff("level") >= 0).all()


def test_stories_of_chosen_rows_are_kept(place, tmp_path):
    study(place, tmp_path / "a", limit=4, stories=[2, 4])
    assert sorted(path.name for path in (tmp_path / "a" / "stories").iterdir()) == ["2.zarr", "4.zarr"]
    assert glocal.open(tmp_path / "a" / "stories" / "4.zarr").attrs["text"] == TEXTS[3]


def test_long_texts_are_cut_or_windowed_and_counted(place, tmp_path):
    long = " ".join(TEXTS[:4])
    found = {
        how: glocal.study([TEXTS[0], long], place / "model", out=tmp_path / how, max_tokens=12, long=how, probes=2, progress=False)
        for how in ("skip", "truncate", "window")
    }
    assert [each.attrs["texts"] for each in found.values()] == [1, 2, 2]
    tokens = {how: pq.read_table(tmp_path / how / "texts.parquet").to_pandas().groupby("number").tokens.first() for how in found}
    assert tokens["truncate"][2] == 12 and tokens["window"][2] > 24
    assert found["skip"].attrs["tokens"] < found["truncate"].attrs["tokens"] < found["window"].attrs["tokens"]
    pair = glocal.study([(TEXTS[0], long)], place / "model", out=tmp_path / "p", max_tokens=12, long="truncate", probes=2)
    assert pair.attrs["tokens"] == 12
    with pytest.raises(StudyError, match="pair"):
        glocal.study([(TEXTS[0], long)], place / "model", out=tmp_path / "q", max_tokens=12, long="window", probes=2)
    with pytest.raises(ChoiceError, match="long"):
        study(place, tmp_path / "r", long="shorten")


def test_ladder_and_hidden_states_are_added(place, tmp_path):
    found = study(place, tmp_path / "a", limit=4, ladder=True, hidden=True)
    assert found.ladder_jsd.dims == ("source_layer", "layer", "head")
    inside = found.source_layer < found.layer
    assert np.isfinite(found.ladder_jsd.where(inside)).sum() == inside.sum() * 2 and np.isnan(found.ladder_jsd.where(~inside)).all()
    np.testing.assert_allclose(found.ladder_jsd.sel(source_layer=0), found.discrepancy_jsd, atol=1e-6)
    assert found.hidden_own_share.dims == ("layer",) and "hidden_other_largest" in found


def test_status_says_how_far_it_is(place, tmp_path, monkeypatch):
    seen = []
    study(place, tmp_path / "a", limit=40, progress=lambda done, total: seen.append((done, total)))
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert (status["state"], status["rows_done"], status["rows_total"], status["rejected"]) == ("done", 40, 40, 1)
    assert seen == [(32, 40), (40, 40)]
    monkeypatch.setattr(engines, "compute", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        study(place, tmp_path / "b", limit=40)
    assert json.loads((tmp_path / "b" / "status.json").read_text())["state"] == "interrupted"


_SCRIPT = """
import sys, glocal
glocal.study(sys.argv[1] + "/texts.txt", sys.argv[1] + "/model", out=sys.argv[2], max_tokens=40, probes=2, progress=False, workers=2)
"""


def test_workers_need_no_guard_in_a_script(place, done, tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    subprocess.run([sys.executable, tmp_path / "script.py", place, tmp_path / "out"], check=True, capture_output=True)
    assert summary(tmp_path / "out") == summary(done)


def test_a_worker_that_dies_is_told_and_nothing_is_lost(place, done, tmp_path):
    class Deadly(list):
        def __reduce__(self):
            return os._exit, (3,)

    texts = [*(place / "texts.txt").read_text().splitlines()[:40], Deadly()]
    with pytest.raises(StudyError, match="worker process died"):
        glocal.study(texts, place / "model", out=tmp_path / "a", max_tokens=40, probes=2, workers=2, progress=False)


def test_ctrl_c_on_the_command_line_ends_with_130_and_can_be_continued(place, done, tmp_path):
    arguments = [
        "study",
        str(place / "texts.txt"),
        "--model",
        str(place / "model"),
        "--out",
        str(tmp_path / "a"),
        "--max-tokens",
        "40",
        "--probes",
        "2",
    ]
    code = "import sys, time; from glocal.corpus import engines; slow = engines.compute\n"
    code += "def compute(*given):\n    print('begun', flush=True); time.sleep(0.5); return slow(*given)\n"
    code += "engines.compute = compute\nfrom glocal.cli import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
    assert running.returncode == 130 and "continue" in said and "Traceback" not in said
    study(place, tmp_path / "a")
    assert summary(tmp_path / "a") == summary(done)


@pytest.mark.parametrize(
    "change", [{"probes": 3}, {"seed": 1}, {"max_tokens": 50}, {"measures": ("hellinger",)}, {"limit": 3}, {"hidden": True}], ids=str
)
def test_another_setting_is_refused_with_what_changed(place, done, change):
    with pytest.raises(StudyError, match=next(iter(change))):
        study(place, done, **change)


def test_another_corpus_is_refused(place, done, tmp_path):
    with pytest.raises(StudyError, match=r"corpus has changed(.|\n)*rows 33"):
        glocal.study([*(place / "texts.txt").read_text().splitlines()[:40], "new"], place / "model", out=done, max_tokens=40, probes=2)


def test_a_damaged_block_is_named(place, done, tmp_path):
    study(place, tmp_path / "a", limit=10)
    block = next((tmp_path / "a" / "blocks").iterdir())
    block.write_bytes(block.read_bytes()[:-3])
    with pytest.raises(StudyError, match=block.name):
        study(place, tmp_path / "a", limit=10)


def test_two_runs_on_one_folder(place, done):
    with place_of(done).alone(), pytest.raises(StudyError, match="Another run"):
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
    with pytest.raises(StudyError, match=r"No text(.|\n)*row 1"):
        glocal.study([""], place / "model", out=tmp_path / "none")


def test_blocks_come_back_and_their_damage_is_seen(tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros((0, 2), dtype=np.int64)}
    (tmp_path / "a.block").write_bytes(packed(arrays, {"x": "ü"}))
    found, facts = read_block(place_of(tmp_path), "a.block")
    assert facts == {"x": "ü"} and all(np.array_equal(found[name], arrays[name]) for name in arrays)
    contents = (tmp_path / "a.block").read_bytes()
    for position in range(0, len(contents), 7):
        (tmp_path / "a.block").write_bytes(contents[:position] + bytes([contents[position] ^ 1]) + contents[position + 1 :])
        with pytest.raises(StudyError, match="damaged"):
            read_block(place_of(tmp_path), "a.block")


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
