"""Counterfactual strips and sweeps: images, labels and differences."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import SweepRow, counterfactual_strip, intervention_sweep

RNG = np.random.default_rng(1)
ORANGE, GREY = (230, 159, 0), (208, 215, 222)


def noise(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def enlarged(image, factor):
    return image.transpose(1, 2, 0).repeat(factor, 0).repeat(factor, 1)


def test_a_strip_shows_original_and_counterfactuals_in_order(tmp_path, read_png, find):
    image, pictures = noise(3, 32, 32), noise(4, 3, 32, 32)
    counterfactual_strip(
        tmp_path / "s.png", image, pictures, ["do(a = 1)", "do(b = 2)", "do(c = 3)", "do(d = 4)"]
    )
    picture = read_png(tmp_path / "s.png")
    places = [find(picture, enlarged(tile, 8)) for tile in [image, *pictures]]
    assert [len(place) for place in places] == [1] * 5
    assert len({place[0][0] for place in places}) == 1
    x = [place[0][1] for place in places]
    assert x == sorted(x)
    assert x[1] - x[0] > x[2] - x[1] == x[3] - x[2]  # a larger gap after the original


def test_difference_colours(tmp_path, svg):
    image = np.full((3, 8, 8), 100, dtype=np.uint8)
    pictures = np.stack([image, image])
    pictures[0, :, 0, 0], pictures[0, :, 1, 1], pictures[1, :, 2, 2] = 200, 0, 150
    counterfactual_strip(tmp_path / "s.svg", image, pictures, ["a", "b"], difference=True)
    images = svg(tmp_path / "s.svg")[2]
    assert len(images) == 5
    first, second = (part.astype(int) for part in images[3:])
    assert first[0, 0, 0] > first[0, 0, 2] + 50  # red
    assert first[1, 1, 2] > first[1, 1, 0] + 50  # blue
    assert second[2, 2, 0] > second[2, 2, 2] + 50
    assert second[2, 2].sum() > first[0, 0].sum()  # one scale for all: a smaller change is paler
    changed = np.zeros((8, 8), dtype=bool)
    changed[[0, 1], [0, 1]] = True
    assert (first[~changed] == 255).all()


def test_no_difference_is_white(tmp_path, svg):
    image = noise(1, 8, 8)
    counterfactual_strip(tmp_path / "s.svg", image, image[None], ["a"], difference=True)
    assert (svg(tmp_path / "s.svg")[2][2] == 255).all()


def test_a_sweep_frames_the_current_value(tmp_path, read_png, find):
    image, first, second = noise(3, 16, 16), noise(4, 3, 16, 16), noise(3, 3, 16, 16)
    rows = [
        SweepRow("light", [60, 80, 100, 120], first, "degrees", current=97.0),
        SweepRow("gate", [0, 0.5, 1], second),
    ]
    intervention_sweep(tmp_path / "s.png", image, rows)
    picture = read_png(tmp_path / "s.png")
    places = [
        [find(picture, enlarged(tile, 8)) for tile in group]
        for group in (image[None], first, second)
    ]
    assert all(len(place) == 1 for group in places for place in group)
    original, light, gate = ([place[0] for place in group] for group in places)
    assert len({y for y, _ in light}) == len({y for y, _ in gate}) == 1
    assert light[0][0] + 128 < gate[0][0]
    assert [x for _, x in light][:3] == [x for _, x in gate]
    assert original[0][1] + 128 < light[0][1]
    assert [tuple(picture[y - 1, x + 64]) for y, x in light] == [GREY, GREY, ORANGE, GREY]
    assert [tuple(picture[y - 1, x + 64]) for y, x in gate] == [GREY] * 3


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([60, 80, 100], ["60", "80", "100"]),
        ([-36.2, 0.4, 38.7], ["−36", "0", "39"]),
        ([0, 0.25, 0.5], ["0.00", "0.25", "0.50"]),
        ([7], ["7"]),
        ([1e-6, 2e-6], ["0.0000", "0.0000"]),
    ],
)
def test_values_have_enough_decimals(tmp_path, svg, values, shown):
    pictures = noise(len(values), 1, 8, 8)
    intervention_sweep(tmp_path / "s.svg", pictures[0], [SweepRow("a", values, pictures)])
    assert [text for text in svg(tmp_path / "s.svg")[0] if text in shown] == shown


def test_texts_do_not_overlap(drawn, assert_no_overlap):
    narrow = noise(6, 1, 40, 4)
    labels = ["do(shadow_position = 12.5 canvas units, light = 70 degrees)", *"bcdef"]
    assert_no_overlap(drawn(counterfactual_strip, narrow[0], narrow, labels, difference=True))
    rows = [
        SweepRow(name, np.linspace(-1e5, 1e5, 6), narrow, "a rather long unit", 3.0)
        for name in ("温度", "a_very_long_name_of_a_variable_indeed", "c")
    ]
    assert_no_overlap(drawn(intervention_sweep, narrow[0], rows, title="title " * 30))
    assert_no_overlap(drawn(intervention_sweep, narrow[0], rows[:1]))


def test_wrong_input_raises(tmp_path):
    path, image = tmp_path / "s.png", noise(3, 8, 8)
    with pytest.raises(DataError, match="2 labels were given for 1 images"):
        counterfactual_strip(path, image, image[None], ["a", "b"])
    with pytest.raises(DataError, match="one original image"):
        counterfactual_strip(path, noise(2, 3, 8, 8), image[None], ["a"])
    with pytest.raises(DataError, match="each counterfactual image must have shape"):
        counterfactual_strip(path, image, noise(1, 3, 9, 8), ["a"])
    with pytest.raises(DataError, match="at least one SweepRow"):
        intervention_sweep(path, image, [])
    with pytest.raises(DataError, match="one finite value for each of its 2 images"):
        intervention_sweep(path, image, [SweepRow("a", [1.0], noise(2, 3, 8, 8))])
    with pytest.raises(DataError, match="one finite value"):
        intervention_sweep(path, image, [SweepRow("a", [1.0, np.nan], noise(2, 3, 8, 8))])
    assert not path.exists()
