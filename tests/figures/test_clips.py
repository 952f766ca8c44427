"""Clips: each frame in its place, frames laid over each other in the colours of time, responses blue and red around their middle."""

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


def test_frames_are_red_white_and_green_where_they_are_brightest():
    clips = np.zeros((2, 3, 1, 4, 4), np.uint8)
    for t in range(3):
        clips[0, t, 0, t, t] = 255
    clips[1, :, 0, 0, 0] = 100, 200, 50  # the second frame is on top, and half as bright as its colour would be at 255
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


def test_every_frame_of_every_clip_stands_in_its_place(tmp_path, read_png, find):
    clips = [noise(4, 3, 32, 32), noise(4, 3, 32, 32)]
    rows = [ClipRow("model", clips[0], made=2), ClipRow("truth", clips[1])]
    clip_rows(tmp_path / "c.png", rows, heads=["1", "2", "+1", "+2"], pairs=2, title="What follows")
    picture = read_png(tmp_path / "c.png")
    places = [[find(picture, enlarged(frame, 4)) for frame in clip] for clip in clips]
    assert all(len(place) == 1 for row in places for place in row)
    for row in places:
        assert len({place[0][0] for place in row}) == 1
        assert [place[0][1] for place in row] == sorted(place[0][1] for place in row)
    assert [place[0][1] for place in places[0]] == [place[0][1] for place in places[1]]
    assert places[0][0][0][0] < places[1][0][0][0]
    y, x = places[0][3][0]
    assert picture[y + 10, x - 2].tolist() == [230, 159, 0]  # framed, as the model made it
    y, x = places[0][0][0]
    assert picture[y + 10, x - 2].tolist() != [230, 159, 0]


def test_each_clip_of_an_intervention_is_one_picture_under_its_value(tmp_path, read_png, find, drawn, words):
    clips = noise(3, 3, 1, 16, 16)
    rows = [ClipRow("do(z1_0)", clips, [-1.5, 0.0, 1.5]), ClipRow("do(z2_0)", noise(3, 3, 1, 16, 16), [-1.5, 0.0, 1.5])]
    clip_interventions(tmp_path / "i.png", rows, groups=2)
    picture = read_png(tmp_path / "i.png")
    found = [find(picture, pixels.repeat(8, 0).repeat(8, 1)) for pixels in overlay(clips)]
    assert [len(place) for place in found] == [1, 1, 1]
    said = [text for text, _ in words(drawn(clip_interventions, rows))]
    assert said.count("−1.5") == 2
    assert {"do(z1_0)", "do(z2_0)"} <= set(said)


def test_responses_are_blue_below_and_red_above_on_one_scale(tmp_path, svg):
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
    with pytest.raises(DataError, match=r"the maps of 'model' must be finite and \(2"):
        response_maps(tmp_path / "r.svg", {"model": maps}, ["z_0", "z_1"])


def test_nothing_to_show_is_refused(tmp_path):
    for function in (clip_rows, clip_interventions):
        with pytest.raises(DataError, match="at least one ClipRow"):
            function(tmp_path / "n.png", [])
