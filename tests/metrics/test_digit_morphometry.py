"""Morphometry of digits against closed forms: strokes of known width, sheared bars, two greys."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from intervae.data.stroke_morphology import mean_axis_distance, medial_axis_table, squared_distances
from intervae.errors import DataError, UsageError
from intervae.metrics import morphometry


def bar(width: float, height: float = 20.0, slope: float = 0.0, size: int = 28) -> np.ndarray:
    """(1, size, size) uint8: an upright bar with soft edges that leans by slope dx / dy."""
    centre = (size - 1) / 2
    y, x = np.mgrid[:size, :size] - centre
    inside = np.clip(width / 2 + 0.5 - np.abs(x - slope * y), 0, 1)
    return np.rint(255 * inside * np.clip(height / 2 + 0.5 - np.abs(y), 0, 1)).astype(np.uint8)[
        None
    ]


def stroke(width: float, angle: float = 90.0, size: int = 28) -> np.ndarray:
    """(1, size, size) uint8: a straight stroke with round ends, whose medial axis is a segment."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    along = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    position = np.clip(x * along[0] + y * along[1], -8, 8)
    distance = np.hypot(x - position * along[0], y - position * along[1])
    return np.rint(255 * np.clip(width / 2 + 0.5 - distance, 0, 1)).astype(np.uint8)[None]


@pytest.mark.parametrize("size", [28, 40])
@pytest.mark.parametrize("angle", [0.0, 35.0, 90.0])
def test_thickness_of_a_stroke_is_its_width(size, angle):
    widths = np.arange(2.0, 7.0, 0.5)
    images = np.stack([stroke(width, angle, size) for width in widths])
    np.testing.assert_allclose(morphometry(images).thickness, widths, atol=0.15)


def test_thickness_of_a_ring_is_its_width():
    y, x = np.mgrid[:28, :28] - 13.5
    rings = [np.clip(w / 2 + 0.5 - np.abs(np.hypot(x, y) - 8), 0, 1) for w in (2.0, 3.0, 4.0)]
    thickness = morphometry(np.stack(rings)[:, None]).thickness
    np.testing.assert_allclose(thickness, [2.0, 3.0, 4.0], atol=0.1)


@pytest.mark.parametrize("degrees", [-30.0, -10.0, 0.0, 20.0, 35.0])
def test_slant_of_a_sheared_bar(degrees):
    """x = slope y + noise independent of y, so u11 / u02 = slope; to the right is upwards."""
    image = bar(3.0, 16.0, slope=-np.tan(np.radians(degrees)))
    assert morphometry(image[None]).slant[0] == pytest.approx(degrees, abs=0.5)


def test_intensity_is_the_median_of_the_bright_pixels():
    image = np.zeros((1, 1, 28, 28), np.uint8)
    image[0, 0, 5:20, 5:8] = 150  # 45 pixels
    image[0, 0, 5:20, 8:9] = 200  # 15 pixels
    image[0, 0, 5:20, 10:20] = 99  # below half of the brightest
    assert morphometry(image).intensity[0] == 150
    image[0, 0, 5:20, 10:20] = 100  # half of the brightest: counted
    assert morphometry(image).intensity[0] == 100
    assert morphometry(image / 255.0).intensity[0] == pytest.approx(100, abs=1e-3)


def test_brightness_changes_neither_thickness_nor_slant():
    image = bar(3.0, slope=0.3)
    bright, dim = (torch.as_tensor(image[None] // k) for k in (1, 3))
    one, three = morphometry(bright), morphometry(dim)
    assert three.thickness[0] == pytest.approx(one.thickness[0], abs=0.06)
    assert three.slant[0] == pytest.approx(one.slant[0], abs=0.2)
    assert three.intensity[0] == 85


def test_distances_are_those_of_scipy_and_the_axis_is_thin():
    rng = np.random.default_rng(0)
    for _ in range(5):
        shape = ndimage.gaussian_filter(rng.normal(size=(60, 71)), 4) > 0
        shape[[0, -1]] = shape[:, [0, -1]] = False
        expected = np.square(ndimage.distance_transform_edt(shape))
        flags = shape.astype(np.uint8)
        np.testing.assert_allclose(squared_distances(flags, 1, 1000), expected)
        away = np.square(ndimage.distance_transform_edt(~shape))
        np.testing.assert_allclose(squared_distances(flags, 0, 5), np.minimum(away, 25))
    line = np.zeros((9, 30), np.uint8)
    line[4, 3:27] = 1
    squared = squared_distances(line, 1, 100)
    assert mean_axis_distance(line, squared, medial_axis_table()) == 1.0


def test_empty_pictures_have_no_values():
    blank, grey = np.zeros((1, 1, 28, 28), np.uint8), np.full((1, 1, 28, 28), 90, np.uint8)
    assert all(np.isnan(values[0]) for values in morphometry(blank))
    thickness, slant, intensity = morphometry(grey)
    assert np.isnan(thickness[0])
    assert slant[0] == pytest.approx(0, abs=1e-6)
    assert intensity[0] == 90


def test_coarser_scale_measures_nearly_the_same():
    images = np.stack([stroke(width, 60) for width in (2.0, 3.0, 5.0)])
    fine, coarse = morphometry(images), morphometry(images, scale=4)
    np.testing.assert_allclose(fine.thickness, coarse.thickness, atol=0.2)
    np.testing.assert_array_equal(fine.intensity, coarse.intensity)


@pytest.mark.parametrize("shape", [(28, 28), (5, 3, 28, 28), (0, 1, 28, 28), (2, 28, 28)])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(DataError, match=r"^digits are measured on images \(N, 1, H, W\)[^.]*\.$"):
        morphometry(np.zeros(shape, np.uint8))


def test_wrong_values_and_scales_are_refused():
    with pytest.raises(DataError, match=r"floats in \[0, 1\]"):
        morphometry(np.full((1, 1, 28, 28), 255.0))
    with pytest.raises(UsageError, match=r"scale=1\.5"):
        morphometry(np.zeros((1, 1, 28, 28), np.uint8), scale=1.5)
    with pytest.raises(DataError, match="scale=1000"):
        morphometry(np.zeros((1, 1, 28, 28), np.uint8), scale=1000)
