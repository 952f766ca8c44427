"""Figures of clips: rows of frames, overlays in colours of time, response maps."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import ClipRow, clip_interventions, clip_rows, overlay, response_maps
from intervae.figures.clips import time_colours

RNG = np.random.default_rng(1)


def noise(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def enlarged(image, factor):
    return image.transpose(1, 2, 0).repeat(factor, 0).repeat(factor, 1)


def test_overlay_has_the_colour_of_the_brightest_frame():
    clips = np.zeros((2, 3, 1, 4, 4), np.uint8)
    for t in range(3):
        clips[0, t, 0, t, t] = 255
    clips[1, :, 0, 0, 0] = (100, 200, 50)  # the second frame is on top
    first, second = overlay(clips).astype(int)
    red, white, green = (first[t, t] for t in range(3))
    assert red[0] > 200 > 100 > red[1:].max()
    assert (white == 255).all()
    assert green[1] > 180 > 120 > green[[0, 2]].max()
    assert (first[0, 1] == 0).all()
    assert second[0, 0].tolist() == [200, 200, 200]
    assert (time_colours(5)[[0, 2, 4]] == time_colours(3)).all()
    with pytest.raises(DataError, match="clips, frames"):
        overlay(clips[0])


def test_clip_rows_have_every_frame_in_its_position(tmp_path, read_png, find):
    clips = [noise(4, 3, 32, 32), noise(4, 3, 32, 32)]
    rows = [ClipRow("model", clips[0], generated=2), ClipRow("truth", clips[1])]
    clip_rows(tmp_path / "c.png", rows, heads=["1", "2", "+1", "+2"], pairs=2, title="What follows")
    figure = read_png(tmp_path / "c.png")
    positions = [[find(figure, enlarged(frame, 4)) for frame in clip] for clip in clips]
    assert all(len(position) == 1 for row in positions for position in row)
    for row in positions:
        assert len({position[0][0] for position in row}) == 1
        assert [position[0][1] for position in row] == sorted(position[0][1] for position in row)
    assert [position[0][1] for position in positions[0]] == [
        position[0][1] for position in positions[1]
    ]
    assert positions[0][0][0][0] < positions[1][0][0][0]
    y, x = positions[0][3][0]
    assert figure[y + 10, x - 2].tolist() == [230, 159, 0]  # border of a generated frame
    y, x = positions[0][0][0]
    assert figure[y + 10, x - 2].tolist() != [230, 159, 0]


def test_clip_interventions_have_one_overlay_per_value(tmp_path, read_png, find, drawn, words):
    clips = noise(3, 3, 1, 16, 16)
    rows = [
        ClipRow("do(z1_0)", clips, [-1.5, 0.0, 1.5]),
        ClipRow("do(z2_0)", noise(3, 3, 1, 16, 16), [-1.5, 0.0, 1.5]),
    ]
    clip_interventions(tmp_path / "i.png", rows, groups=2)
    figure = read_png(tmp_path / "i.png")
    matches = [find(figure, pixels.repeat(8, 0).repeat(8, 1)) for pixels in overlay(clips)]
    assert [len(position) for position in matches] == [1, 1, 1]
    texts = [text for text, _ in words(drawn(clip_interventions, rows))]
    assert texts.count("−1.5") == 2
    assert {"do(z1_0)", "do(z2_0)"} <= set(texts)


def test_response_maps_are_blue_below_and_red_above_on_one_scale(tmp_path, svg):
    slope = np.tile(np.linspace(-1, 1, 9), (9, 1))
    maps = np.stack([slope + 5, 0.1 * slope.T, np.zeros((9, 9))])
    response_maps(tmp_path / "r.svg", {"model": maps}, ["z_0", "z_1", "z_2"], note="where")
    images = [image.astype(int) for image in svg(tmp_path / "r.svg")[2]]
    assert len(images) == 3
    strong, weak, flat = images
    assert strong[4, 0, 2] > strong[4, 0, 0] + 50  # blue
    assert strong[4, -1, 0] > strong[4, -1, 2] + 50  # red
    assert weak[0, 4].sum() > strong[4, 0].sum() + 100  # paler
    assert (flat == 255).all()
    maps[:, :2] = np.nan  # positions without data
    response_maps(tmp_path / "n.svg", {"model": maps}, ["z_0", "z_1", "z_2"])
    strong = svg(tmp_path / "n.svg")[2][0].astype(int)
    assert (strong[0] == 204).all()
    assert strong[4, 0, 2] > strong[4, 0, 0] + 50
    with pytest.raises(DataError, match=r"the maps of 'model' must be finite or NaN and \(2"):
        response_maps(tmp_path / "r.svg", {"model": maps}, ["z_0", "z_1"])


def test_errors_of_clip_figures_without_rows(tmp_path):
    for function in (clip_rows, clip_interventions):
        with pytest.raises(DataError, match="at least one ClipRow"):
            function(tmp_path / "n.png", [])
