"""The rasteriser against areas in closed form and against images of higher resolution."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.data.simulators.raster import BLACK, FIREBRICK, FRAME, Axes, Raster, draw_in_chunks


def coverage_of(draw, size: int = 96, n: int = 1) -> np.ndarray:
    """(n, size, size): fraction of each pixel that a black shape covers."""
    raster = Raster(n, size)
    draw(raster)
    return 1 - raster.pixels[:, 0] / 255


def test_box_coverage_is_exact_in_every_pixel():
    coverage = coverage_of(lambda c: c.box(np.array([10.25]), 12.5, 20.0, 21.75, BLACK))[0]
    expected = np.zeros((96, 96))
    expected[20, 10:13] = [0.75, 1.0, 0.5]
    expected[21, 10:13] = [0.75 * 0.75, 0.75, 0.5 * 0.75]
    np.testing.assert_allclose(coverage, expected, atol=1e-5)


def test_box_thinner_than_a_pixel_has_its_area():
    assert coverage_of(lambda c: c.box(30.4, 30.6, 10.0, 20.0, BLACK)).sum() == pytest.approx(
        2.0, abs=1e-3
    )


def test_ellipse_covers_the_pixel_in_its_very_middle():
    assert coverage_of(lambda c: c.ellipse(40.5, 50.5, 6.0, 5.0, BLACK))[0, 50, 40] == 1.0


def test_texture_and_fill_are_painted_at_the_places_of_the_pixels():
    def texture(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.stack(np.broadcast_arrays(x, y[:, None], 7.0)).astype(np.float32)

    raster = Raster(2, 48)
    raster.fill(np.full((3, 48, 48), 100.0))
    raster.box(np.array([10.0, 20.0]), 30.0, 40.0, 60.0, texture)
    assert raster.pixels[0, :, 25, 12].tolist() == [25.0, 51.0, 7.0]  # frame units, two a pixel
    assert raster.pixels[:, 0, 25, 7].tolist() == [15.0, 100.0]


@pytest.mark.parametrize(("rx", "ry"), [(11.8, 10.7), (6.2, 5.7), (3.0, 3.0), (9.0, 4.0)])
def test_ellipse_has_its_area_and_centre(rx, ry):
    coverage = coverage_of(lambda c: c.ellipse(np.array([40.3]), 50.6, rx, ry, BLACK))[0]
    centres = np.arange(96) + 0.5
    assert coverage.sum() == pytest.approx(np.pi * rx * ry, rel=0.01)
    assert (coverage.sum(0) @ centres) / coverage.sum() == pytest.approx(40.3, abs=0.02)
    assert (coverage.sum(1) @ centres) / coverage.sum() == pytest.approx(50.6, abs=0.02)


def test_ellipse_without_radius_is_empty_and_a_tiny_one_has_its_area():
    assert coverage_of(lambda c: c.ellipse(40.5, 40.5, 0.0, 0.0, BLACK)).sum() == 0
    assert coverage_of(lambda c: c.ellipse(40.5, 40.5, -3.0, 2.0, BLACK)).sum() == 0
    assert coverage_of(lambda c: c.ellipse(40.5, 40.5, 0.2, 0.2, BLACK)).sum() == pytest.approx(
        np.pi * 0.04, rel=0.01
    )


@pytest.mark.parametrize("angle", [0.0, 17.0, 45.0, 90.0, 133.0])
@pytest.mark.parametrize("cap", [0.0, 2.0])
def test_stroke_covers_width_times_length_at_any_angle(angle, cap):
    dx, dy = 30 * np.cos(np.radians(angle)), 30 * np.sin(np.radians(angle))
    coverage = coverage_of(
        lambda c: c.stroke(
            np.array([[48 - dx / 2, 48 + dx / 2]]),
            np.array([[48 - dy / 2, 48 + dy / 2]]),
            4.0,
            BLACK,
            cap=cap,
        )
    )
    assert coverage.sum() == pytest.approx(4.0 * (30 + 2 * cap), rel=0.02)


def test_bent_stroke_has_no_gaps_and_no_dark_joints():
    angle = np.linspace(0, np.pi / 2, 25)[None]
    coverage = coverage_of(
        lambda c: c.stroke(20 + 40 * np.sin(angle), 20 + 40 * (1 - np.cos(angle)), 3.0, BLACK)
    )[0]
    assert coverage.max() <= 1
    assert coverage.sum() == pytest.approx(3.0 * 40 * np.pi / 2, rel=0.01)
    middle = (20 + 40 * np.sin(angle[0, 2:-2]), 20 + 40 * (1 - np.cos(angle[0, 2:-2])))
    assert coverage[middle[1].astype(int), middle[0].astype(int)].min() > 0.95


def test_small_images_are_averages_of_large_ones():
    def draw(raster: Raster) -> None:
        raster.stroke(np.array([[20.0, 60.3]]), np.array([[15.0, 70.8]]), 4.0, BLACK)
        raster.ellipse(60.3, 70.8, 12.2, 10.6, FIREBRICK)
        raster.box(10.3, 40.1, 80.0, 83.0, BLACK)

    def image(size: int) -> np.ndarray:
        raster = Raster(1, size)
        draw(raster)
        return raster.pixels[0] / 255

    averaged = image(96 * 8).reshape(3, 96, 8, 96, 8).mean((2, 4))
    difference = np.abs(image(96) - averaged)
    assert difference.max() < 0.12
    assert difference.mean() < 0.0005


def test_later_shapes_cover_earlier_ones_inside_the_clip_box():
    def draw(raster: Raster, rows: slice) -> None:
        raster.box(0.0, FRAME, 0.0, FRAME, BLACK)
        raster.box(40.0, 50.0, 40.0, 50.0, FIREBRICK)

    image = draw_in_chunks(1, 96, draw, clip=(12.0, 86.0, 12.0, 85.0))[0]
    assert tuple(image[:, 45, 45]) == FIREBRICK
    assert (image[:, 12:85, 12:86].min(0) < 255).all()
    assert (image[:, :12] == 255).all()
    assert (image[:, 85:] == 255).all()
    assert (image[:, :, :12] == 255).all()
    assert (image[:, :, 86:] == 255).all()


def test_image_does_not_depend_on_the_rest_of_the_batch():
    rng = np.random.default_rng(0)
    x, y, r = rng.uniform(-20, 116, (3, 70))
    points = rng.uniform(-20, 116, (2, 70, 4))

    def draw(indices: np.ndarray):
        def paint(raster: Raster, rows: slice) -> None:
            k = indices[rows]
            raster.ellipse(x[k], y[k], r[k] / 3, r[k] / 4, FIREBRICK)
            raster.stroke(points[0, k], points[1, k], 3.0, BLACK, cap=1.0)
            raster.box(x[k] - 3, x[k] + 5, y[k], y[k] + 1.5, BLACK)

        return paint

    batch = draw_in_chunks(70, 48, draw(np.arange(70)))
    for k in range(0, 70, 7):
        np.testing.assert_array_equal(batch[k], draw_in_chunks(1, 48, draw(np.array([k])))[0])


def test_shapes_far_outside_are_not_drawn():
    far = np.array([1e12, -1e12, 0.0])
    raster = Raster(3, 32)
    raster.ellipse(far, far, 3.0, 3.0, BLACK)
    raster.box(far, far + 1, far, far, BLACK)
    raster.stroke(np.stack([far, far], 1), np.stack([far, far], 1), 2.0, BLACK)
    assert np.isfinite(raster.pixels).all()
    assert (raster.pixels[:2] == 255).all()


def test_axes_map_the_corners_of_the_plot_to_the_margins():
    axes = Axes(x_range=(0.0, 20.0), y_range=(-1.0, 21.0))
    assert (axes.x(0.0), axes.x(20.0), axes.y(21.0), axes.y(-1.0)) == pytest.approx(
        (12.0, 86.4, 11.52, 85.44)
    )
    assert (axes.x_scale, axes.y_scale) == pytest.approx((3.72, 3.36))
