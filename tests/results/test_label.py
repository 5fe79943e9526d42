"""Labelling: names in the right places, values untouched, and everything not finite counted once."""

import dataclasses

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stories import make_attributes, make_story, make_tokens

from glocal.dims import POSITIONS
from glocal.errors import StoryError
from glocal.results.label import label
from glocal.results.schema import FIELDS, VERSION

INNER = {"layer": 2, "head": 3, "target": 2, "source": 4}


def labelled(variables, tokens=None, *, layers=(3, 5), heads=(1, 2, 4), targets=(1, 3), **attributes):
    tokens = tokens or make_tokens(4)
    return label(variables, tokens, layers=layers, heads=heads, targets=targets, attributes=make_attributes(tokens, **attributes))


def maps(*sizes):
    return torch.arange(1.0, 1 + torch.tensor(sizes).prod()).reshape(sizes)


def test_values_stand_where_their_names_say():
    values = maps(2, 3, 2, 4)
    story = labelled({"attention": values})
    assert story.attention.sel(layer=5, head=4, target=1, source=2) == values[1, 2, 0, 2]
    assert story.target_token.values.tolist() == ["The", "[SEP]"]
    assert dict(story.sizes) == INNER


def test_every_field_of_the_tokens_is_on_both_sides():
    tokens = make_tokens(5)
    story = labelled({"attention": maps(2, 3, 2, 5)}, tokens)
    for field in FIELDS:
        assert tuple(story[f"source_{field}"].values) == getattr(tokens, field)
        assert tuple(story[f"target_{field}"].values) == tuple(getattr(tokens, field)[target] for target in (1, 3))


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=6))
def test_tokens_stay_what_they_are(texts):
    story = make_story(tokens=texts)
    for position in POSITIONS:
        assert story[f"{position}_token"].values.tolist() == texts


@pytest.mark.parametrize(
    ("given_type", "kept"), [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_precision_is_never_lost(given_type, kept):
    values = torch.rand(2, 3, 2, 4).to(getattr(torch, given_type))
    story = labelled({"attention": values})
    assert story.attention.dtype == kept
    assert numpy.array_equal(story.attention.values, values.double().numpy())


def test_tensors_with_gradients_and_strides_are_taken():
    values = torch.rand(4, 2, 3, 2, requires_grad=True).permute(1, 2, 3, 0)
    assert numpy.array_equal(labelled({"attention": values}).attention.values, values.detach().numpy())


@pytest.mark.parametrize("dims", [("layer", "head", "target", "source"), ("layer", "target", "source"), ("source",)])
def test_a_further_method_is_labelled_by_its_number_of_axes(dims):
    story = labelled({"mine": torch.ones([INNER[dim] for dim in dims])})
    assert story.mine.dims == dims
    assert story.mine.attrs == {"long_name": "mine", "unit": "as mine defines it", "method": "mine"}


def test_a_variable_of_a_registered_method_names_it():
    assert labelled({"attention_rollout_like": maps(2, 2, 4)}).attention_rollout_like.attrs["method"] == "attention"


def test_hidden_states_have_no_heads():
    story = labelled({"attribution": maps(2, 2, 4)}, heads=None)
    assert story.attribution.dims == ("layer", "target", "source")
    assert "head" not in story.coords


def test_the_ladder_has_one_step_per_layer_below():
    story = labelled({"ladder_x": maps(2, 3, 6)})
    assert story.ladder_x.dims == ("layer", "head", "source_layer")
    assert story.source_layer.values.tolist() == list(range(6))
    assert story.ladder_x.attrs == {
        "long_name": "mean x between attention and the attribution to the input of layer source_layer + 1",
        "unit": "as x defines it",
    }


def test_every_variable_says_what_it_is():
    story = make_story(sketch=True, ladder=True)
    assert all(variable.attrs["long_name"] and variable.attrs["unit"] for variable in story.data_vars.values())


def test_own_attributes_are_added_and_the_given_ones_kept():
    given_ones = make_attributes(make_tokens(4))
    story = labelled({"attention": maps(2, 3, 2, 4)})
    assert story.attrs == given_ones | {"glocal_schema": VERSION, "not_finite": [], "masked_rows": 0}


def test_nan_and_infinity_are_counted_by_layer_and_head():
    attention, norm, hidden = torch.ones(2, 3, 2, 4), torch.ones(2, 3, 2, 4), torch.ones(2, 2, 4)
    attention[0, 1, 0, 2] = torch.nan
    norm[1, 2, 0, :2], norm[1, 2, 1, 0] = torch.inf, -torch.inf
    norm[1, 0, 0] = torch.nan
    hidden[1, 0, 0] = torch.nan
    story = labelled({"attention": attention, "attribution_norm": norm, "mine": hidden, "scores": torch.tensor([1, torch.nan, 1, 1])})
    assert story.attrs["not_finite"] == [
        {"variable": "attention", "layer": 3, "head": 2, "nan": 1, "infinite": 0},
        {"variable": "attribution_norm", "layer": 5, "head": 1, "nan": 4, "infinite": 0},
        {"variable": "attribution_norm", "layer": 5, "head": 4, "nan": 0, "infinite": 3},
        {"variable": "mine", "layer": 5, "head": None, "nan": 1, "infinite": 0},
        {"variable": "scores", "layer": None, "head": None, "nan": 1, "infinite": 0},
    ]
    assert story.attrs["masked_rows"] == 0


def test_masked_rows_are_counted_apart():
    attention, others = torch.ones(2, 3, 2, 4), torch.ones(2, 3, 2, 4)
    attention[:, :, 0], attention[1, 2, 1] = torch.nan, torch.nan
    others[:, :, 0] = torch.nan
    hidden = others[:, 0].clone()
    hidden[1, 1, 1] = torch.nan
    story = labelled({"attention": attention, "attribution_norm": others, "discrepancy_x": others[..., 0], "mine": hidden})
    assert story.attrs["masked_rows"] == 7
    assert story.attrs["not_finite"] == [{"variable": "mine", "layer": 5, "head": None, "nan": 1, "infinite": 0}]


def test_the_ladder_is_undefined_above_its_head_and_where_all_is_masked():
    attention, ladder = torch.ones(2, 1, 2, 4), torch.ones(2, 1, 2)
    attention[1] = torch.nan
    ladder[0, 0, 1], ladder[1, 0, 1] = torch.nan, torch.nan
    story = labelled({"attention": attention, "ladder_x": ladder}, layers=(1, 2), heads=(1,))
    assert story.attrs["not_finite"] == []
    ladder[0, 0, 0] = torch.nan
    story = labelled({"attention": attention, "ladder_x": ladder}, layers=(1, 2), heads=(1,))
    assert story.attrs["not_finite"] == [{"variable": "ladder_x", "layer": 1, "head": 1, "nan": 1, "infinite": 0}]


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        (
            "attention",
            (2, 3, 4, 4),
            r"'attention' does not fit .*\n  found: shape \(2, 3, 4, 4\)\n  allowed: \[layer=2, head=3, target=2, source=4\]\n  do: return",
        ),
        (
            "mine",
            (3,),
            r"'mine' does not fit .*\n.*\n  allowed: \[layer=2, head=3, .*\] or .* or \[layer=2, target=2\] or \[source=4\]",
        ),
        ("ladder_x", (2, 3), r"'ladder_x' does not fit .*\n.*\n  allowed: \[layer=2, head=3, source_layer\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name, sizes, message):
    with pytest.raises(StoryError, match=message):
        labelled({name: torch.ones(sizes)})


def test_a_map_of_heads_needs_heads():
    with pytest.raises(StoryError, match=r"'attention' does not fit .*\n.*\n  allowed: \[layer=2, head=0"):
        labelled({"attention": torch.ones(2, 3, 2, 4)}, heads=None)


def test_whole_numbers_are_refused():
    with pytest.raises(
        StoryError, match=r"'mine' has the wrong type\.\n  found: torch.int64\n  allowed: a floating-point tensor\n  do: convert"
    ):
        labelled({"mine": torch.ones(4, dtype=torch.int64)})


def test_half_a_character_is_refused_with_its_place():
    tokens = dataclasses.replace(make_tokens(4), raw_token=("a", "b", "\ud83d", "d"))
    with pytest.raises(StoryError, match=r"The raw_token at position 2 holds half a character.*\n  found: '\\ud83d'\n  allowed: text of"):
        labelled({"attention": maps(2, 3, 2, 4)}, tokens)


def test_what_does_not_follow_the_schema_is_refused():
    with pytest.raises(StoryError, match="foreign attribute, 'mood'"):
        labelled({"attention": maps(2, 3, 2, 4)}, mood="good")
