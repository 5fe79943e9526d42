"""The schema: documented as it is, followed by what `label` makes, and every departure named."""

import re
from pathlib import Path

import numpy
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from stories import make_story

from glocal.errors import StoryError
from glocal.results.schema import ATTRIBUTES, DIMENSIONS, FIELDS, VARIABLES, VERSION, check, pattern

DOCUMENT = Path(__file__).parents[2] / "docs" / "story.md"


def table(heading):
    """First cells' names -> the other cells, for every row of the table below a heading."""
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]
    assert rows
    return {name: cells for first, *cells in rows for name in re.findall("`([^`]+)`", first)}


def test_documented_dimensions_are_those_of_the_schema():
    assert {name: int(cells[0].split("..")[0]) for name, cells in table("Dimensions").items()} == DIMENSIONS


def test_documented_fields_are_those_of_the_schema():
    assert {name: cells[0] for name, cells in table("Coordinates").items()} == FIELDS


def test_documented_variables_are_those_of_the_schema():
    documented = {
        name: (tuple(tuple(dims.split()) for dims in cells[0].split(" or ")), cells[1]) for name, cells in table("Variables").items()
    }
    asked = {
        "discrepancy_<measure>": "the measure's",
        "bias_<measure>": "the measure's",
        "ladder_<measure>": "the measure's",
        "<method>": "the method's",
    }
    assert documented == {name: (rule.shapes, rule.unit or asked[name]) for name, rule in VARIABLES.items()}


def test_documented_attributes_are_those_of_the_schema():
    documented = {name: tuple(cells[0].split(" or ")) for name, cells in table("Attributes").items()}
    assert documented == {name: tuple(kind.__name__ for kind in types) for name, types in ATTRIBUTES.items()}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("attribution_se", "attribution_se"),
        ("attribution_extra", "<method>"),
        ("discrepancy_jsd", "discrepancy_<measure>"),
        ("ladder_jsd", "ladder_<measure>"),
        ("bias_jsd", "bias_<measure>"),
        ("discrepancy_", "<method>"),
        ("globenc", "<method>"),
    ],
)
def test_every_name_follows_one_row(name, row):
    assert pattern(name) == row


@settings(deadline=None, max_examples=20)
@given(
    n=st.integers(1, 5), layers=st.integers(1, 3), heads=st.integers(1, 3), causal=st.booleans(), sketch=st.booleans(),
    ladder=st.booleans(), of=st.sampled_from(["head", "hidden"]),
)  # fmt: skip
def test_synthetic_stories_follow_the_schema(**options):
    check(make_story(**options))


def test_a_story_stays_one_without_some_variables_and_with_chosen_layers_heads_and_targets():
    story = make_story(ladder=True)
    check(story.drop_vars(["attribution_norm", "ladder_jsd"]))
    check(story.sel(layer=[2], head=[1, 3], target=[0, 4]))


def changed(**attributes):
    return make_story().assign_attrs(attributes)


def lacking(name):
    story = make_story()
    del story.attrs[name]
    return story


def own(name="mine", dims=("layer", "head", "target", "source"), **attributes):
    story = make_story()
    return story.assign({name: (dims, numpy.zeros([story.sizes[dim] for dim in dims], "float32"), attributes)})


SAID = {"long_name": "mine", "unit": "share", "method": "mine"}


@pytest.mark.parametrize("dims", VARIABLES["<method>"].shapes)
def test_a_declared_variable_of_a_further_method_is_allowed(dims):
    check(own(dims=dims, **SAID))


def text(position, values):
    array = numpy.empty(len(values), dtype=object)
    array[:] = values
    return (position, array)


BROKEN = {
    "no dataset": (lambda: 3, r"This is not a Story\.\n  found: a int\n  allowed: an xarray.Dataset .*\n  do: pass"),
    "no story": (lambda: xarray.Dataset(), r"This is not a Story\.\n  found: glocal_schema=None\n  allowed: glocal_schema=1\n  do: pass"),
    "version as text": (lambda: changed(glocal_schema="1"), r"not a Story\.\n  found: glocal_schema='1'"),
    "newer": (
        lambda: changed(glocal_schema=VERSION + 1, glocal_version="9.0"),
        r"written by a newer glocal\.\n  found: glocal_schema=2, glocal_version='9.0'\n  allowed: glocal_schema up to 1\n  do: update",
    ),
    "attribute missing": (lambda: lacking("causal"), r"lacks attribute 'causal'\.\n  found: glocal_version, .*\n  allowed: .*causal.*\n  do: start"),
    "attribute foreign": (lambda: changed(mood="good"), r"foreign attribute, 'mood'\.\n  found: 'mood'\n  allowed: .*\n  do: remove it, or say it"),
    "attribute of another type": (lambda: changed(causal=1), r"'causal' has the wrong type\.\n  found: 1 \(int\)\n  allowed: bool\n  do: set"),
    "tuple inside": (
        lambda: changed(settings={"freeze": ("norm",)}),
        r"'settings', key 'freeze' cannot be stored as JSON\.\n  found: \('norm',\) \(tuple\)\n  allowed: text.*\n  do: convert it",
    ),
    "numpy number inside": (lambda: changed(notes=["a", numpy.float64(1)]), r"'notes', entry 1 cannot .*\n  found: np.float64\(1.0\) \(float64\)"),
    "number as key": (lambda: changed(plan={1: 2}), r"'plan' cannot be stored as JSON\.\n  found: \{1: 2\}"),
    "our own key": (lambda: changed(plan={"glocal:number": "nan"}), r"'plan' cannot be stored as JSON"),
    "half a character": (lambda: changed(text="\ud83d"), r"'text' holds half a character.*\n  found: '\\ud83d'\n  allowed: text.*\n  do: decode"),
    "half a character as key": (lambda: changed(plan={"\ud83d": 1}), r"'plan' holds half a character"),
    "variable undeclared": (
        lambda: own(unit="share"),
        r"'mine' is foreign: .*\n  found: attributes \['unit'\]\n  allowed: attributes long_name, unit, method, each a text\n  do: remove it, or",
    ),
    "variable unsaid": (lambda: own("attention"), r"'attention' does not say what it is\.\n  found: attributes \[\]"),
    "variable attribute not JSON": (lambda: own(**SAID, more=(1,)), r"'mine', its attributes, key 'more' cannot be stored as JSON"),
    "variable name": (lambda: own("_mine", **SAID), r"cannot be called '_mine'\.\n  found: '_mine'\n  allowed: names that begin.*\n  do: rename"),
    "variable name with a blank": (lambda: own("my own", **SAID), r"cannot be called 'my own'"),
    "variable turned": (
        lambda: make_story().transpose("source", ...),
        r"'attention' has the wrong dimensions\.\n  found: \(source, layer, head, target\)\n  allowed: \(layer, head, target, source\)\n  do: tr",
    ),
    "variable selected": (lambda: make_story().sel(layer=1), r"'attention' has the wrong dimensions.*\n.*\n.*\n  do: .*select with lists"),
    "variable of another type": (
        lambda: make_story().astype("float16"),
        r"'attention' has the wrong type\.\n  found: dtype\('float16'\)\n  allowed: float32 or float64\n  do: convert",
    ),
    "variable of another byte order": (lambda: make_story().astype(">f4"), r"'attention' has the wrong type\.\n  found: dtype\('>f4'\)"),
    "coordinate missing": (lambda: make_story().drop_vars("source_word"), r"lacks coordinate 'source_word'\.\n  found: .*\n  allowed: .*\n  do"),
    "coordinate foreign": (
        lambda: make_story().assign_coords(mood=("source", numpy.arange(6))),
        r"foreign coordinate, 'mood'\.\n  found: 'mood'\n  allowed: layer, .*\n  do: remove it with story.drop_vars",
    ),
    "coordinate ill-shaped": (
        lambda: make_story().assign_coords(source_word=("target", numpy.arange(6))),
        r"'source_word' has the wrong dimensions\.\n  found: \(target\)\n  allowed: \(source\)\n  do: select with lists",
    ),
    "coordinate of another type": (
        lambda: make_story().assign_coords(source_word=("source", numpy.arange(6.0))),
        r"'source_word' has the wrong type\.\n  found: dtype\('float64'\)\n  allowed: int64\n  do: convert",
    ),
    "fixed-width text": (
        lambda: make_story().assign_coords(source_token=("source", numpy.array(["a"] * 6))),
        r"'source_token' has the wrong type\.\n  found: dtype\('<U1'\)\n  allowed: object",
    ),
    "text that is none": (
        lambda: make_story().assign_coords(source_token=text("source", ["a", 1, "c", "d", "e", "f"])),
        r"'source_token' has an entry that is not text\.\n  found: 1\n  allowed: str\n  do: convert",
    ),
    "coordinate attribute not JSON": (
        lambda: make_story().assign_coords(source_word=("source", make_story().source_word.values, {"more": (1,)})),
        r"'source_word', its attributes, key 'more' cannot be stored as JSON",
    ),
    "part of the sources": (
        lambda: make_story().isel(source=[1, 2]),
        r"'source' has the wrong numbers\.\n  found: \[1, 2\]\n  allowed: 0 to 1 without a gap\n  do: select positions along target",
    ),
    "targets twice": (lambda: make_story().isel(target=[0, 0]), r"'target' has the wrong .*\n  found: \[0, 0\]\n  allowed: rising numbers from 0, below 6"),
    "layer nought": (lambda: make_story().assign_coords(layer=[0, 1]), r"'layer' has the wrong numbers\.\n  found: \[0, 1\]\n  allowed: rising numbers from 1"),
    "nothing left": (lambda: make_story().isel(head=[]), r"'head' has the wrong numbers\.\n  found: \[\]"),
    "sides disagree": (
        lambda: make_story().assign_coords(target_token=text("target", list("abcdef"))),
        r"Coordinates 'target_token' and 'source_token' disagree\.\n  found: \['a', .*\n  allowed: \['\[CLS\]', .*\n  do: both",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_every_departure_is_named(case):
    make, message = BROKEN[case]
    with pytest.raises(StoryError, match=message):
        check(make())
