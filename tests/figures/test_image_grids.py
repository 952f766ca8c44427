"""Grids of images: every pixel is in its place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from intervae.data.simulators import Pendulum
from intervae.errors import DataError
from intervae.figures import InterventionRow, interventions, reconstructions

RNG = np.random.default_rng(0)


def noise(n, channels=3, height=16, width=16):
    return RNG.integers(0, 256, (n, channels, height, width), dtype=np.uint8)


def enlarged(image, factor):
    """(C, h, w) uint8 as it should appear: (h * factor, w * factor, 3)."""
    shown = image[:3] if len(image) >= 3 else image[:1].repeat(3, axis=0)
    return shown.transpose(1, 2, 0).repeat(factor, 0).repeat(factor, 1)


def only(places):
    assert len(places) == 1
    return places[0]


def test_each_reconstruction_is_below_its_original(tmp_path, read_png, find):
    images, copies = noise(11), noise(11)
    reconstructions(tmp_path / "r.png", images, copies, columns=4)
    picture = read_png(tmp_path / "r.png")
    above = [only(find(picture, enlarged(image, 8))) for image in images]
    below = [only(find(picture, enlarged(image, 8))) for image in copies]
    assert {x0 - x1 for (_, x0), (_, x1) in zip(above, below, strict=True)} == {0}
    assert {y1 - y0 for (y0, _), (y1, _) in zip(above, below, strict=True)} == {128 + 6}
    assert len({x for _, x in above}) == 4
    assert [above.index(place) for place in sorted(above)] == list(range(11))  # in reading order
    assert len({y for y, _ in above}) == 3


def test_generated_true_and_original_images_are_in_their_rows(tmp_path, read_png, find):
    originals, ours, true, alone = noise(5), noise(5), noise(5), noise(5)
    rows = [
        InterventionRow("do(light = 100 degrees)", ours, true),
        InterventionRow("do(shadow_position = 12.5 canvas units)", alone),
    ]
    interventions(tmp_path / "i.png", rows, originals, title="A title")
    picture = read_png(tmp_path / "i.png")
    places = [
        [only(find(picture, enlarged(image, 8))) for image in row]
        for row in (ours, true, alone, originals)
    ]
    tops = [{y for y, _ in row} for row in places]
    assert [len(top) for top in tops] == [1, 1, 1, 1]
    model, truth, second, bottom = (top.pop() for top in tops)
    assert truth - model == 128 + 6  # right below
    assert truth + 128 + 20 < second < bottom - 128 - 20  # groups are apart
    assert bottom + 128 + 20 < len(picture) < bottom + 128 + 60  # nothing below the originals
    columns = [[x for _, x in row] for row in places]
    assert columns[0] == columns[1] == columns[2] == columns[3] == sorted(columns[0])


def test_printed_errors_are_mean_absolute_differences(tmp_path, svg):
    originals, ours, true = noise(3), noise(3) / 255.0, noise(3)
    interventions(tmp_path / "i.svg", [InterventionRow("do(a = 1)", ours, true)], originals)
    texts = svg(tmp_path / "i.svg")[0]
    error = np.abs(ours - true / 255.0).mean()
    nothing = np.abs(originals / 255.0 - true / 255.0).mean()
    assert f"{error:.2g}" in texts
    assert f"{nothing:.2g}" in texts
    interventions(
        tmp_path / "i.svg", [InterventionRow("do(a = 1)", ours, true)], originals, errors=False
    )
    assert f"{error:.2g}" not in svg(tmp_path / "i.svg")[0]


def test_without_truth_rows_have_no_kind(tmp_path, svg):
    interventions(tmp_path / "i.svg", [InterventionRow("do(a = 1)", noise(2))], noise(2))
    texts = svg(tmp_path / "i.svg")[0]
    assert texts == ["do(a = 1)", "original"]


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6])
def test_any_number_of_channels_shows_the_first_three_or_the_first(
    tmp_path, read_png, find, channels
):
    images = noise(2, channels)
    reconstructions(tmp_path / "r.png", images, images)
    picture = read_png(tmp_path / "r.png")
    for image in images:
        assert len(find(picture, enlarged(image, 8))) == 2


@pytest.mark.parametrize(
    ("height", "width", "factor"),
    [(16, 16, 8), (28, 28, 5), (64, 64, 2), (96, 96, 1), (192, 100, 1), (10, 33, 4), (1, 1, 128)],
)
def test_small_images_are_enlarged_by_integers(tmp_path, read_png, find, height, width, factor):
    image = noise(1, 3, height, width)
    reconstructions(tmp_path / "r.png", image, 255 - image)
    only(find(read_png(tmp_path / "r.png"), enlarged(image[0], factor)))


def test_large_images_are_shrunk_and_keep_their_shape(tmp_path, read_png, find):
    image = noise(1, 3, 256, 512)
    reconstructions(tmp_path / "r.png", image, 255 - image)
    small = np.asarray(
        Image.fromarray(image[0].transpose(1, 2, 0)).resize((128, 64), Image.Resampling.BOX)
    )
    only(find(read_png(tmp_path / "r.png"), small))


def test_uint8_floats_tensors_and_booleans_draw_the_same(tmp_path):
    images = noise(3)
    forms = [
        images,
        images / 255.0,
        torch.from_numpy(images),
        torch.from_numpy(images).float().div(255).requires_grad_(),
        (images / 255).astype(np.float32),
    ]
    files = []
    for k, form in enumerate(forms):
        reconstructions(tmp_path / f"{k}.png", form, form)
        files.append((tmp_path / f"{k}.png").read_bytes())
    assert len(set(files)) == 1
    mask = images > 127
    reconstructions(tmp_path / "a.png", mask, mask)
    reconstructions(tmp_path / "b.png", mask * np.uint8(255), mask.astype(float))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_an_svg_holds_the_same_pixels(tmp_path, svg):
    originals, ours, true = noise(2), noise(2), noise(2)
    interventions(tmp_path / "i.svg", [InterventionRow("do(a = 1)", ours, true)], originals)
    _, _, pictures = svg(tmp_path / "i.svg")
    expected = [image.transpose(1, 2, 0) for row in (ours, true, originals) for image in row]
    assert len(pictures) == 6
    for picture, image in zip(pictures, expected, strict=True):
        np.testing.assert_array_equal(picture, image)


def test_long_texts_do_not_overlap(drawn, assert_no_overlap):
    simulator = Pendulum()
    noises = simulator.sample_exogenous(1, RNG)
    truth = simulator.counterfactual(noises, {"light": 100.0})[0]
    labels = [
        "do(a = 1)",
        "do(shadow_position = 12.5 canvas units, shadow_length = 3 canvas units, "
        "pendulum = 20 degrees, light = 70 degrees)",
        "x" * 80,
    ]
    rows = [InterventionRow(label, truth, None if label == "x" * 80 else truth) for label in labels]
    assert_no_overlap(
        drawn(
            interventions,
            rows,
            simulator.render(simulator.simulate(noises)),
            title="a title much wider than one picture is " * 3,
        )
    )


@pytest.mark.parametrize(
    "label",
    [
        "do(a<b & c = 1)",
        "do(温度 = 20 °C)",
        "do(größe = 3 µm)",
        "do($x^2$ = 1)",
        "a\nb\x00c\ud800",
        "",
    ],
)
def test_any_label_is_drawn(tmp_path, svg, label):
    images = noise(1)
    interventions(tmp_path / "i.svg", [InterventionRow(label, images, images)], images)
    texts = svg(tmp_path / "i.svg")[0]
    assert not label.startswith("do") or label in " ".join(texts)
    interventions(tmp_path / "i.png", [InterventionRow(label, images, images)], images)


@pytest.mark.parametrize(
    ("images", "copies", "words"),
    [
        (noise(2), noise(3), "the reconstructions must have shape (2, 3, 16, 16)"),
        (noise(2), noise(2, 1), "must have shape"),
        (noise(2)[0, 0], noise(2), "the original images must be (images, channels, height, width)"),
        (noise(0), noise(0), "none of them zero"),
        (noise(1).astype(int), noise(1), "uint8 or floats in [0, 1], not int64"),
        (noise(1).astype(float), noise(1), "divide by 255"),
        (np.full((1, 3, 4, 4), np.nan), noise(1), "NaN"),
    ],
)
def test_wrong_arrays_raise(tmp_path, images, copies, words):
    with pytest.raises(DataError) as caught:
        reconstructions(tmp_path / "r.png", images, copies)
    assert words in str(caught.value)
    assert str(caught.value).count(". ") == 0
    assert not list(tmp_path.iterdir())


def test_no_intervention_raises(tmp_path):
    with pytest.raises(DataError, match="at least one InterventionRow"):
        interventions(tmp_path / "i.png", [], noise(1))
