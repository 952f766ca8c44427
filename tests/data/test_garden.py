"""Garden against its equations and its own pixels: mechanisms, do(), occlusion, masks."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.data import load_data
from intervae.data.simulators import Garden
from intervae.data.simulators.garden_background import garden_background
from intervae.discovery import discover
from intervae.errors import UsageError

SIMULATOR = Garden()
NOISES = SIMULATOR.sample_exogenous(40, np.random.default_rng(3))
VALUES = SIMULATOR.simulate(NOISES)
NAMES = SIMULATOR.graph.names
SUN, CLOUD, WIND, HEIGHT, DRIFT = range(5)
FAR_AWAY = -50.0  # m, outside the picture


def scene(**values: float) -> np.ndarray:
    """Variables (1, 5) of a scene: cloud and balloon outside of the picture, noon, no wind."""
    default = {"sun": 12.0, "cloud": FAR_AWAY, "wind": 0.0}
    default |= {"balloon_height": 4.0, "balloon_drift": FAR_AWAY}
    return np.array([[(default | values)[name] for name in NAMES]])


def render(size: int = 96, **values: float) -> np.ndarray:
    return SIMULATOR.render(scene(**values), size=size)[0].astype(int)


def mask(name: str, size: int = 96, **values: float) -> np.ndarray:
    return SIMULATOR.object_masks(scene(**values), size=size)[name][0]


def test_mechanisms_are_those_of_the_docs():
    sun, cloud, wind, lift, gust = NOISES.T
    elevation = np.pi * (sun - 6) / 12
    distance = cloud - (6 - 5.5 * np.cos(elevation))
    light = np.sin(elevation) * (1 - 0.75 * np.exp(-(distance**2) / (2 * 1.5**2)))
    np.testing.assert_allclose(VALUES[:, HEIGHT], 1.2 + 4 * light + lift)
    np.testing.assert_allclose(VALUES[:, DRIFT], 0.12 * wind * VALUES[:, HEIGHT] + gust)
    np.testing.assert_array_equal(VALUES[:, :3], NOISES[:, :3])
    assert [edge[:2] for edge in SIMULATOR.graph.edges] == [
        ("sun", "balloon_height"),
        ("cloud", "balloon_height"),
        ("wind", "balloon_drift"),
        ("balloon_height", "balloon_drift"),
    ]


def test_a_cloud_before_the_sun_lowers_the_balloon():
    noises = np.array([[12.0, 6.0, 0.0, 0.0, 0.0], [12.0, 1.0, 0.0, 0.0, 0.0]])
    shaded, sunny = SIMULATOR.simulate(noises)[:, HEIGHT]
    assert shaded == pytest.approx(1.2 + 4 * 0.25)
    assert sunny == pytest.approx(5.2, abs=0.02)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_graph_follows_from_the_labels(seed):
    noises = SIMULATOR.sample_exogenous(1500, np.random.default_rng(seed))
    learned = discover(SIMULATOR.simulate(noises), "independence", names=NAMES).graph
    assert {e[:2] for e in learned.edges} == {e[:2] for e in SIMULATOR.graph.edges}


@pytest.mark.parametrize("name", NAMES)
def test_do_leaves_non_descendants_and_their_objects_bit_equal(name):
    do = {name: float(np.quantile(VALUES[:, NAMES.index(name)], 0.9))}
    images, values = SIMULATOR.counterfactual(NOISES, do, size=96)
    affected = {name, *SIMULATOR.graph.descendants(name)}
    fixed = [i for i, other in enumerate(NAMES) if other not in affected]
    np.testing.assert_array_equal(values[:, fixed], VALUES[:, fixed])
    before, after = (SIMULATOR.object_masks(v, size=96) for v in (VALUES, values))
    may_change = np.zeros((len(NOISES), 96, 96), dtype=bool)
    for item, variables in SIMULATOR.objects.items():
        if affected & set(variables):
            may_change |= before[item] | after[item]
        else:
            np.testing.assert_array_equal(before[item], after[item])
    changed = (images != SIMULATOR.render(VALUES, size=96)).any(axis=1)
    assert changed.any(axis=(1, 2)).all()
    assert not (changed & ~may_change).any()


def inside_ellipse(x: float, y: float, rx: float, ry: float) -> np.ndarray:
    """(96, 96): pixels inside an ellipse and more than a pixel from its edge."""
    rows, columns = np.mgrid[:96, :96] + 0.5
    return ((columns - x) / (rx - 1)) ** 2 + ((rows - y) / (ry - 1)) ** 2 < 1


def test_the_cloud_hides_the_sun():
    sun, cloud = mask("sun"), mask("cloud", cloud=6.0)
    behind = inside_ellipse(44.5, 17.5, 8.0, 7.5) & sun  # the highest puff of the cloud
    assert behind.sum() > 50
    both, only_cloud, only_sun = render(cloud=6.0), render(sun=8.0, cloud=6.0), render()
    np.testing.assert_array_equal(both[:, behind], only_cloud[:, behind])
    assert (np.abs(both - only_sun).max(axis=0)[behind] > 10).mean() > 0.9
    np.testing.assert_array_equal(both[:, sun & ~cloud], only_sun[:, sun & ~cloud])


def test_the_balloon_hides_the_poplar():
    place = {"balloon_height": 4.0, "balloon_drift": 2.25}
    poplar, balloon = mask("poplar"), mask("balloon", **place)
    front = inside_ellipse(66.0, 47.0, 8.0, 9.0)
    assert (front & poplar).sum() > 50
    straight, bent = render(**place), render(wind=5.0, **place)
    np.testing.assert_array_equal(straight[:, front], bent[:, front])
    visible = poplar & ~balloon
    np.testing.assert_array_equal(straight[:, visible], render()[:, visible])


def test_occlusion_is_frequent():
    masks = SIMULATOR.object_masks(
        SIMULATOR.simulate(SIMULATOR.sample_exogenous(500, np.random.default_rng(0))), size=48
    )
    for front, back in (("cloud", "sun"), ("balloon", "poplar")):
        hidden = (masks[front] & masks[back]).sum((1, 2)) / masks[back].sum((1, 2))
        assert (hidden > 0.05).mean() > 0.25, (front, back)


def test_background_is_the_same_wherever_no_object_is():
    images = SIMULATOR.render(VALUES, size=96)
    covered = np.any(list(SIMULATOR.object_masks(VALUES, size=96).values()), axis=0)
    background = np.broadcast_to(np.floor(garden_background(96) + 0.5), images.shape)
    free = np.broadcast_to(~covered[:, None], images.shape)
    np.testing.assert_array_equal(images[free], background[free])
    assert garden_background(96)[:, 47:76].std(axis=(1, 2)).min() > 10  # bricks, not one colour


def test_objects_are_shaded_and_large_enough_to_see():
    images = SIMULATOR.render(VALUES, size=96)
    for name, area in SIMULATOR.object_masks(VALUES, size=96).items():
        assert area.mean() > 0.015, name
        assert images.transpose(0, 2, 3, 1)[area].std(axis=0).min() > 10, name


@pytest.mark.parametrize(("size", "tolerance"), [(8, 6.0), (31, 2.0), (64, 1.5)])
def test_small_images_are_the_average_of_large_ones(size, tolerance):
    images = SIMULATOR.render(VALUES[:8], size=size)
    large = SIMULATOR.render(VALUES[:8], size=8 * size).astype(float)
    pooled = large.reshape(8, 3, size, 8, size, 8).mean(axis=(3, 5))
    assert images.shape == (8, 3, size, size)
    assert images.dtype == np.uint8
    assert np.abs(images - pooled).mean() < tolerance


def test_values_far_outside_their_range_are_drawn_outside_of_the_picture():
    for value in (-1e12, 1e12):
        images = SIMULATOR.render(np.full((1, 5), value), size=32)
        assert images.shape == (1, 3, 32, 32)
    with pytest.raises(UsageError, match="size=7 is too small"):
        SIMULATOR.render(VALUES, size=7)


def test_data_set_has_7200_samples_of_which_1800_are_test():
    noises, test = SIMULATOR.published_grid()
    np.testing.assert_array_equal(noises, SIMULATOR.published_grid()[0])
    assert len(noises) == 7200
    assert test.sum() == 1800
    data = load_data("garden", size=16, samples=80)
    np.testing.assert_array_equal(
        data.test.images, SIMULATOR.render(np.asarray(data.test.labels), size=16)
    )
