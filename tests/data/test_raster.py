"""The rasteriser against areas known in closed form and against its own pictures at a higher resolution."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.data.simulators.raster import BLACK, FIREBRICK, FRAME, Axes, Canvas, in_chunks


def painted(draw, size: int = 96, n: int = 1) -> np.ndarray:
    """(n, size, size) share of each pixel that a black shape covers."""
    canvas = Canvas(n, size)
    draw(canvas)
    return 1 - canvas.pixels[:, 0] / 255


def test_a_box_covers_exactly_its_area_in_every_pixel():
    coverage = painted(lambda c: c.box(np.array([10.25]), 12.5, 20.0, 21.75, BLACK))[0]
    expected = np.zeros((96, 96))
    expected[20, 10:13] = [0.75, 1.0, 0.5]
    expected[21, 10:13] = [0.75 * 0.75, 0.75, 0.5 * 0.75]
    np.testing.assert_allclose(coverage, expected, atol=1e-5)


def test_a_box_thinner_than_a_pixel_keeps_its_area():
    assert painted(lambda c: c.box(30.4, 30.6, 10.0, 20.0, BLACK)).sum() == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize(("rx", "ry"), [(11.8, 10.7), (6.2, 5.7), (3.0, 3.0), (9.0, 4.0)])
def test_an_ellipse_covers_pi_times_its_half_axes_and_is_centred(rx, ry):
    coverage = painted(lambda c: c.ellipse(np.array([40.3]), 50.6, rx, ry, BLACK))[0]
    centres = np.arange(96) + 0.5
    assert coverage.sum() == pytest.approx(np.pi * rx * ry, rel=0.01)
    assert (coverage.sum(0) @ centres) / coverage.sum() == pytest.approx(40.3, abs=0.02)
    assert (coverage.sum(1) @ centres) / coverage.sum() == pytest.approx(50.6, abs=0.02)


def test_an_ellipse_without_radius_paints_nothing_and_a_tiny_one_little():
    assert painted(lambda c: c.ellipse(40.5, 40.5, 0.0, 0.0, BLACK)).sum() == 0
    assert painted(lambda c: c.ellipse(40.5, 40.5, -3.0, 2.0, BLACK)).sum() == 0
    assert painted(lambda c: c.ellipse(40.5, 40.5, 0.2, 0.2, BLACK)).sum() == pytest.approx(np.pi * 0.04, rel=0.01)


@pytest.mark.parametrize("angle", [0.0, 17.0, 45.0, 90.0, 133.0])
@pytest.mark.parametrize("cap", [0.0, 2.0])
def test_a_straight_stroke_covers_width_times_length_at_any_angle(angle, cap):
    dx, dy = 30 * np.cos(np.radians(angle)), 30 * np.sin(np.radians(angle))
    coverage = painted(lambda c: c.stroke(np.array([[48 - dx / 2, 48 + dx / 2]]), np.array([[48 - dy / 2, 48 + dy / 2]]), 4.0, BLACK, cap=cap))
    assert coverage.sum() == pytest.approx(4.0 * (30 + 2 * cap), rel=0.02)


def test_a_bent_stroke_has_neither_gaps_nor_dark_joints():
    turn = np.linspace(0, np.pi / 2, 25)[None]
    coverage = painted(lambda c: c.stroke(20 + 40 * np.sin(turn), 20 + 40 * (1 - np.cos(turn)), 3.0, BLACK))[0]
    assert coverage.max() <= 1
    assert coverage.sum() == pytest.approx(3.0 * 40 * np.pi / 2, rel=0.01)
    middle = (20 + 40 * np.sin(turn[0, 2:-2]), 20 + 40 * (1 - np.cos(turn[0, 2:-2])))
    assert coverage[middle[1].astype(int), middle[0].astype(int)].min() > 0.95


def test_small_pictures_are_large_ones_averaged():
    def draw(canvas: Canvas) -> None:
        canvas.stroke(np.array([[20.0, 60.3]]), np.array([[15.0, 70.8]]), 4.0, BLACK)
        canvas.ellipse(60.3, 70.8, 12.2, 10.6, FIREBRICK)
        canvas.box(10.3, 40.1, 80.0, 83.0, BLACK)

    def picture(size: int) -> np.ndarray:
        canvas = Canvas(1, size)
        draw(canvas)
        return canvas.pixels[0] / 255

    averaged = picture(96 * 8).reshape(3, 96, 8, 96, 8).mean((2, 4))
    difference = np.abs(picture(96) - averaged)
    assert difference.max() < 0.12
    assert difference.mean() < 0.0005


def test_later_shapes_cover_earlier_ones_and_the_clip_box_holds():
    def draw(canvas: Canvas, rows: slice) -> None:
        canvas.box(0.0, FRAME, 0.0, FRAME, BLACK)
        canvas.box(40.0, 50.0, 40.0, 50.0, FIREBRICK)

    image = in_chunks(1, 96, draw, clip=(12.0, 86.0, 12.0, 85.0))[0]
    assert tuple(image[:, 45, 45]) == FIREBRICK
    assert (image[:, 12:85, 12:86].min(0) < 255).all()
    assert (image[:, :12] == 255).all()
    assert (image[:, 85:] == 255).all()
    assert (image[:, :, :12] == 255).all()
    assert (image[:, :, 86:] == 255).all()


def test_a_picture_does_not_depend_on_its_neighbours_in_the_batch():
    rng = np.random.default_rng(0)
    x, y, r = rng.uniform(-20, 116, (3, 70))
    points = rng.uniform(-20, 116, (2, 70, 4))

    def draw(keep: np.ndarray):
        def paint(canvas: Canvas, rows: slice) -> None:
            k = keep[rows]
            canvas.ellipse(x[k], y[k], r[k] / 3, r[k] / 4, FIREBRICK)
            canvas.stroke(points[0, k], points[1, k], 3.0, BLACK, cap=1.0)
            canvas.box(x[k] - 3, x[k] + 5, y[k], y[k] + 1.5, BLACK)

        return paint

    together = in_chunks(70, 48, draw(np.arange(70)))
    for k in range(0, 70, 7):
        np.testing.assert_array_equal(together[k], in_chunks(1, 48, draw(np.array([k])))[0])


def test_shapes_far_away_or_endless_do_not_crash():
    far = np.array([1e12, -1e12, 0.0])
    canvas = Canvas(3, 32)
    canvas.ellipse(far, far, 3.0, 3.0, BLACK)
    canvas.box(far, far + 1, far, far, BLACK)
    canvas.stroke(np.stack([far, far], 1), np.stack([far, far], 1), 2.0, BLACK)
    assert np.isfinite(canvas.pixels).all()
    assert (canvas.pixels[:2] == 255).all()


def test_axes_put_the_corners_of_the_plot_on_the_margins():
    axes = Axes(x_range=(0.0, 20.0), y_range=(-1.0, 21.0))
    assert (axes.x(0.0), axes.x(20.0), axes.y(21.0), axes.y(-1.0)) == pytest.approx((12.0, 86.4, 11.52, 85.44))
    assert (axes.x_scale, axes.y_scale) == pytest.approx((3.72, 3.36))
