"""What a study keeps of a text is what its Story shows."""

import numpy as np
import pytest
from families import ids, model
from stories import make_story

import glocal
from glocal.corpus.heads import clusters, head_distances, mantel, places
from glocal.corpus.statistics import CATEGORIES, OFFSETS, Statistic, averaged, coordinates, distances, statistics


@pytest.fixture
def story():
    return make_story(n=14, layers=3, heads=4, ladder=True)


def test_masses_and_entropies_are_those_of_describe(story):
    found, patterns = statistics(story), glocal.describe(story)
    for name in ("category_mass", "own_share", "entropy"):
        expected = patterns[name].transpose(*found[name].dims).values
        np.testing.assert_allclose(found[name].values, expected, atol=1e-6)
    for name, statistic in found.items():
        sizes = tuple(len(coordinates(story)[dim]) for dim in statistic.dims)
        assert statistic.values.shape == sizes and statistic.values.dtype == np.float32, name


def test_the_profile_is_cut_at_eight_and_undefined_where_the_text_ends():
    story = make_story(n=5)
    found = statistics(story)["position_profile"]
    whole = glocal.describe(story).position_profile
    assert found.dims[1] == "offset" and len(OFFSETS) == 17
    inside = [OFFSETS.index(offset) for offset in whole.offset.values]
    np.testing.assert_allclose(found.values[:, inside], whole.transpose("map", "offset", "layer", "head"), atol=1e-6)
    outside = [place for place in range(17) if place not in inside]
    assert np.isnan(found.values[:, outside]).all()


def test_discrepancies_by_kind_of_target_average_to_the_whole(story):
    found = statistics(story)
    kinds = story.target_category.values
    for number, kind in enumerate(CATEGORIES):
        values = story.discrepancy_jsd.values[..., kinds == kind]
        here = found["discrepancy_jsd_by_category"].values[number]
        assert np.isnan(here).all() if not values.size else np.allclose(here, values.mean(-1), atol=1e-6)
    weights = np.array([(kinds == kind).sum() for kind in CATEGORIES])
    total = (np.nan_to_num(found["discrepancy_jsd_by_category"].values) * weights[:, None, None]).sum(0) / weights.sum()
    np.testing.assert_allclose(total, found["discrepancy_jsd"].values, atol=1e-6)


def test_the_ladder_is_kept_in_the_order_of_its_dimensions(story):
    found = statistics(story)["ladder_jsd"]
    np.testing.assert_allclose(found.values, story.ladder_jsd.transpose(*found.dims), atol=1e-7)


def test_hidden_states(story):
    hidden = make_story(n=14, layers=3, of="hidden")
    found = statistics(story, hidden)
    shares = hidden.attribution.values
    np.testing.assert_allclose(found["hidden_own_share"].values, np.einsum("lii->li", shares).mean(1), atol=1e-6)
    np.testing.assert_allclose(found["hidden_other_largest"].values, (shares.argmax(2) != np.arange(14)).mean(1), atol=1e-6)


def test_windows_are_averaged_over_those_that_have_a_value():
    parts = [{"a": Statistic(("x",), np.array(values, dtype=np.float32))} for values in ([1, np.nan, np.nan], [3, 4, np.nan])]
    np.testing.assert_array_equal(averaged(parts)["a"].values, [2, 4, np.nan])


def test_distances_between_heads_are_mean_divergences_of_their_rows(story):
    found = distances(story)
    maps = {name: story[name].values.astype(float) for name in ("attention", "attribution")}
    for face, name in enumerate(maps):
        for one, other in (((0, 1), (2, 3)), ((1, 0), (1, 0)), ((2, 2), (0, 0))):
            p, q = maps[name][one], maps[name][other]
            m = (p + q) / 2
            kl = lambda a, b: np.where(a > 0, a * np.log(np.where(a > 0, a, 1) / b), 0).sum(-1)  # noqa: E731
            np.testing.assert_allclose(found[(face, *one, *other)], ((kl(p, m) + kl(q, m)) / 2).mean(), atol=1e-5)


def test_rows_that_are_not_finite_are_left_out_of_distances():
    maps = np.random.default_rng(0).random((3, 4, 5))
    broken = maps.copy()
    broken[1, 2] = np.nan
    keep = [0, 1, 3]
    np.testing.assert_allclose(head_distances(broken)[0, 1], head_distances(maps[:, keep])[0, 1], atol=1e-6)
    np.testing.assert_allclose(head_distances(broken)[0, 2], head_distances(maps)[0, 2], atol=1e-6)
    broken[1] = np.nan
    assert np.isnan(head_distances(broken)[1]).all()


def test_places_reproduce_distances_in_the_plane():
    points = np.random.default_rng(1).normal(size=(9, 2))
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found = places(distance**2)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found[None], axis=-1), distance, atol=1e-9)


def test_clusters_are_those_that_lie_apart():
    centre = np.repeat([0.0, 10.0, 25.0], 4)[:, None]
    points = centre + np.random.default_rng(2).normal(size=(12, 1)) * 0.1
    assert clusters(np.abs(points - points.T) ** 2, 3).tolist() == [1] * 4 + [2] * 4 + [3] * 4


def test_mantel_tells_alike_from_unlike():
    generator = np.random.default_rng(3)
    points = generator.normal(size=(20, 3))
    apart = lambda p: np.linalg.norm(p[:, None] - p[None], axis=-1)  # noqa: E731
    same = mantel(apart(points), apart(points + 0.05 * generator.normal(size=points.shape)), seed=0)
    other = mantel(apart(points), apart(generator.normal(size=(20, 3))), seed=0)
    assert same["correlation"] > 0.9 and same["p"] == 0.001
    assert abs(other["correlation"]) < 0.35 and other["p"] > 0.02
    assert mantel(apart(points), np.zeros((20, 20)), seed=0) is None


def test_a_causal_model_has_statistics_too():
    story = glocal.analyze(ids(6), model("GPT2"), probes=4)
    found = statistics(story)
    assert np.isfinite(found["category_mass"].values).all()
    later = [place for place, offset in enumerate(OFFSETS) if 0 < offset < 6]
    assert (found["position_profile"].values[:, later] == 0).all()
