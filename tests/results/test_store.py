"""Storing: identical after the round trip, atomic, readable about everything else, and never deleting what is not a Story."""

import json
import math
import os

import numpy
import pytest
import torch
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from stories import make_story

from glocal.errors import StoryError
from glocal.results import store
from glocal.results.store import check_destination, open_story, save

TEXT = st.one_of(
    st.text(max_size=5), st.sampled_from(["", "\x00", "a\x00", "\x00\x00b\x00", "👩‍👩‍👧", "\x1b[31m", "\u202e", "\ufeff", "NaN", " "])
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


def assert_same(first, second):
    """Equal to the last bit, in names, order, types, values and attributes."""
    assert list(first.data_vars) == list(second.data_vars)
    assert set(first.coords) == set(second.coords)
    assert dict(first.sizes) == dict(second.sizes)
    # NaN is unequal to itself, and True equals 1; their written forms tell all apart.
    assert repr(first.attrs) == repr(second.attrs)
    for name in first.variables:
        one, other = first[name], second[name]
        assert (one.dims, one.dtype, repr(one.attrs)) == (other.dims, other.dtype, repr(other.attrs))
        assert one.values.tolist() == other.values.tolist() if one.dtype == object else one.values.tobytes() == other.values.tobytes()
        assert not one.encoding and not other.encoding


@settings(deadline=None, max_examples=20)
@given(
    tokens=st.lists(TEXT, min_size=1, max_size=5), layers=st.integers(1, 3), heads=st.integers(1, 3), sketch=st.booleans(),
    ladder=st.booleans(), of=st.sampled_from(["head", "hidden"]), wide=st.booleans(),
)  # fmt: skip
def test_stories_come_back_identical(tmp_path_factory, wide, **options):
    story = make_story(dtype=torch.float64 if wide else torch.float32, **options)
    assert_same(story, open_story(save(story, tmp_path_factory.mktemp("story") / "a.zarr")))


@settings(deadline=None, max_examples=20)
@given(bits=st.lists(st.integers(0, 2**32 - 1), min_size=9, max_size=9))
def test_every_bit_of_every_value_comes_back(tmp_path_factory, bits):
    story = make_story(3, 1, 1)
    story.attention.values[...] = numpy.array(bits, dtype="uint32").view("float32").reshape(1, 1, 3, 3)
    assert_same(story, open_story(save(story, tmp_path_factory.mktemp("story") / "a.zarr")))


@pytest.mark.parametrize("value", [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324])
def test_chunks_of_one_value_come_back(tmp_path, value):
    story = make_story(3, 2, 1, dtype=torch.float64)
    story.attention.values[...] = value
    assert_same(story, open_story(save(story, tmp_path / "a.zarr")))


@settings(deadline=None, max_examples=40)
@given(plan=st.dictionaries(TEXT, JSON, max_size=4), notes=st.lists(JSON, max_size=4), text=TEXT)
def test_attributes_come_back_identical(tmp_path_factory, plan, notes, text):
    story = make_story(2, 1, 1, attributes={"plan": plan, "notes": notes, "text": text})
    assert_same(story, open_story(save(story, tmp_path_factory.mktemp("story") / "a.zarr")))


@pytest.mark.parametrize("name", ["mine", "discrepancy_<lambda>", "a/b", "é😀", "a..b", "c", "x\x00y", "zarr.json"])
def test_any_name_of_a_function_is_stored(tmp_path, name):
    story = make_story()
    attributes = {"long_name": "x", "unit": "bit", "method": "x"}
    story[name] = (
        story.discrepancy_jsd.assign_attrs(attributes) if name.startswith("discrepancy") else story.attention.assign_attrs(attributes)
    )
    assert_same(story, open_story(save(story, tmp_path / "a.zarr")))


def test_a_selection_comes_back_identical(tmp_path):
    story = make_story(ladder=True).sel(layer=[2], head=[1, 3], target=[0, 4]).drop_vars("ladder_jsd")
    assert_same(story, open_story(save(story, tmp_path / "a.zarr")))


def test_what_was_opened_is_in_memory_and_can_be_changed_and_saved_again(tmp_path):
    story = open_story(save(make_story(), tmp_path / "a.zarr"))
    story.attention.values[...] = 1
    again = open_story(save(story, tmp_path / "a.zarr", overwrite=True))
    assert_same(story, again)
    assert (again.attention == 1).all()


def test_other_programs_can_read_it(tmp_path):
    story = make_story(tokens=["[CLS]", "a\x00", "", "😀"])
    with xarray.open_zarr(save(story, tmp_path / "a.zarr"), consolidated=False) as opened:
        assert (
            opened.attention.equals(story.attention.drop_vars([name for name in story.coords if name not in story.dims]))
            or (opened.attention.values == story.attention.values).all()
        )
        assert opened.source_token.values.tolist() == story.source_token.values.tolist()
        assert set(opened.coords) == set(story.coords)


def test_the_file_is_strict_json_even_with_nan(tmp_path):
    path = save(make_story(attributes={"notes": [math.nan, -math.inf]}), tmp_path / "a.zarr")

    def refuse(constant):
        raise AssertionError(constant)

    stored = json.loads((path / "zarr.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert stored["attributes"]["notes"] == [{"glocal:number": "nan"}, {"glocal:number": "-inf"}]


def test_saving_returns_the_path_and_leaves_nothing_else(tmp_path):
    assert save(make_story(), str(tmp_path / "a.zarr")) == tmp_path / "a.zarr"
    save(make_story(), tmp_path / "a.zarr", overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr"]


def test_a_relative_path_is_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(make_story(), "a.zarr")
    assert_same(open_story("a.zarr"), open_story(tmp_path / "a.zarr"))


def test_a_link_stays_a_link(tmp_path):
    save(make_story(), tmp_path / "real.zarr")
    (tmp_path / "link.zarr").symlink_to(tmp_path / "real.zarr")
    story = make_story(seed=1)
    save(story, tmp_path / "link.zarr", overwrite=True)
    assert (tmp_path / "link.zarr").is_symlink()
    assert_same(story, open_story(tmp_path / "real.zarr"))


def listing(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("failure", [OSError("no space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write", "_swap"])
def test_a_failure_leaves_everything_as_it_was(tmp_path, monkeypatch, failure, step):
    path = save(make_story(), tmp_path / "a.zarr")
    before = listing(tmp_path)
    original = getattr(store, step)

    def fail(*arguments):
        if step == "write":
            original(*arguments)
        raise failure

    monkeypatch.setattr(store, step, fail)
    expected = (StoryError, r"cannot be written\.\n  asked: .*a.zarr\n  found: no space left\n  do: check free space")
    kind, message = expected if isinstance(failure, OSError) else (KeyboardInterrupt, None)
    with pytest.raises(kind, match=message):
        save(make_story(seed=1), path, overwrite=True)
    assert listing(tmp_path) == before


def test_if_the_new_one_cannot_get_the_name_the_old_one_gets_it_back(tmp_path):
    path = save(make_story(), tmp_path / "a.zarr")
    before = listing(tmp_path)
    with pytest.raises(FileNotFoundError):
        store._swap(tmp_path / "missing", path, tmp_path / "replaced")
    assert listing(tmp_path) == before


def test_something_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    path, original = tmp_path / "a.zarr", store.write

    def slow(*arguments):
        original(*arguments)
        path.mkdir()
        (path / "thesis.txt").write_text("all of it")

    monkeypatch.setattr(store, "write", slow)
    with pytest.raises(StoryError, match="something at this path already"):
        save(make_story(), path)
    assert [file.name for file in tmp_path.rglob("*")] == ["a.zarr", "thesis.txt"]


def story_with_a_file(path):
    save(make_story(), path)
    (path / "thesis.txt").write_text("all of it")


def story_with_a_deep_file(path):
    save(make_story(), path)
    (path / "attention" / "thesis.txt").write_text("all of it")


def other_zarr(path):
    xarray.Dataset({"x": ("y", numpy.ones(3))}).to_zarr(path, consolidated=False)


OTHERS = {
    "file": (lambda path: path.write_text("thesis"), "a file"),
    "empty folder": (lambda path: path.mkdir(), "an empty folder"),
    "own folder": (lambda path: (path / "thesis").mkdir(parents=True), "a folder with thesis"),
    "another zarr": (other_zarr, "a folder with x, zarr.json"),
    "broken link": (lambda path: path.symlink_to("nowhere"), "a link to nothing"),
    "story with a file": (story_with_a_file, "a folder with .* and more"),
    "story with a deep file": (story_with_a_deep_file, "a folder with .* and more"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_nothing_but_a_story_is_ever_deleted(tmp_path, case):
    path = tmp_path / "a.zarr"
    make, found = OTHERS[case]
    make(path)
    before = listing(tmp_path)
    for overwrite, message in ((False, "something at this path already"), (True, "Only a Story is overwritten")):
        with pytest.raises(StoryError, match=rf"{message}.*\n  asked: .*a\.zarr\n  found: {found}\n(.*\n)?  do: choose another path"):
            save(make_story(), path, overwrite=overwrite)
    assert listing(tmp_path) == before
    assert os.path.lexists(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.nc", r"not stored in NetCDF\.\n  asked: .*a\.nc\n  found: ending '\.nc'\n  allowed: \.zarr\n  do: use a\.zarr"),
        ("a.csv", r"does not say that it is a Story\.\n  asked: .*\n  found: ending '\.csv'\n  allowed: \.zarr\n  do: use a\.zarr"),
        ("a", r"does not say that it is a Story\.\n  asked: .*\n  found: ending ''\n  allowed: \.zarr\n  do: use a\.zarr"),
    ],
)
def test_other_endings_are_refused_everywhere(tmp_path, name, message):
    for act in (lambda path: save(make_story(), path), open_story, check_destination):
        with pytest.raises(StoryError, match=message):
            act(tmp_path / name)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(
        StoryError, match=r"folder for the Story does not exist\.\n  asked: .*a\.zarr\n  found: no folder .*missing\n  do: make it"
    ):
        check_destination(tmp_path / "missing" / "a.zarr")


def test_only_stories_are_saved(tmp_path):
    with pytest.raises(StoryError, match="lacks coordinate 'source_word'"):
        save(make_story().drop_vars("source_word"), tmp_path / "a.zarr")
    assert not list(tmp_path.iterdir())


def test_what_is_no_story_does_not_open(tmp_path):
    path = tmp_path / "a.zarr"
    with pytest.raises(StoryError, match=r"no such Story\.\n  asked: .*a\.zarr\n  found: nothing\n  do: check"):
        open_story(path)
    path.write_text("thesis")
    with pytest.raises(StoryError, match=r"no such Story\.\n  asked: .*a\.zarr\n  found: a file\n  do: check"):
        open_story(path)
    path.unlink()
    other_zarr(path)
    with pytest.raises(
        StoryError, match=r"folder is not a Story\.\n  asked: .*\n  found: a folder with x, zarr\.json\n  allowed: .*\n  do: check"
    ):
        open_story(path)


def edited(path, change):
    metadata = json.loads((path / "zarr.json").read_text(encoding="utf-8"))
    change(metadata["attributes"])
    (path / "zarr.json").write_text(json.dumps(metadata), encoding="utf-8")


def test_a_newer_story_says_so(tmp_path):
    path = save(make_story(), tmp_path / "a.zarr")
    edited(path, lambda attributes: attributes.update(glocal_schema=2))
    with pytest.raises(StoryError, match=r"newer glocal\.\n  found: glocal_schema=2.*\n.*\n  do: update"):
        open_story(path)


def remove(folder):
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    folder.rmdir()


DAMAGE = {
    "attributes": (lambda path: edited(path, lambda attributes: attributes.update(text="other")), "the attributes are not those"),
    "digests": (lambda path: edited(path, lambda attributes: attributes.pop("glocal_digests")), "KeyError: 'glocal_digests'"),
    "missing variable": (lambda path: remove(path / "attribution"), "the variable 'attribution' is missing"),
    "foreign variable": (lambda path: (path / "mine").mkdir(), "a foreign variable in the folder, 'mine'"),
    "missing chunk": (lambda path: remove(path / "attention" / "c" / "0"), "the values of 'attention' are not those"),
    "cut chunk": (lambda path: (path / "attention" / "c" / "0" / "0" / "0" / "0").write_bytes(b"\x28\xb5"), "[A-Za-z]*Error: "),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named(tmp_path, case):
    path = save(make_story(), tmp_path / "a.zarr")
    damage, found = DAMAGE[case]
    damage(path)
    with pytest.raises(StoryError, match=rf"This Story is damaged\.\n  asked: .*a\.zarr\n  found: {found}.*\n  do: restore it"):
        open_story(path)
    save(make_story(), path, overwrite=True) if case != "foreign" else None


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_changed_byte_goes_unnoticed(tmp_path_factory, data):
    story = make_story(3, 1, 1)
    path = save(story, tmp_path_factory.mktemp("story") / "a.zarr")
    file = data.draw(st.sampled_from(sorted(file for file in path.rglob("*") if file.is_file())))
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place:] = data.draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=1).map(lambda byte: byte + content[place + 1 :])))
    file.write_bytes(content)
    try:
        opened = open_story(path)
    except StoryError:
        return
    assert_same(story, opened)


def test_strangers_beside_the_variables_do_not_hide_a_story(tmp_path):
    story = make_story()
    path = save(story, tmp_path / "a.zarr")
    (path / ".DS_Store").write_bytes(b"")
    assert_same(story, open_story(path))
