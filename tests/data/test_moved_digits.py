"""Rotated and shifted digits against their law, exact movements, and their measurement."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.simulators import MovedDigits
from intervae.errors import DataError, UsageError
from mnist_files import make_mnist

RNG = np.random.default_rng(0)


def draw_blobs() -> np.ndarray:
    """(10, 2, 28, 28) smooth asymmetric blobs near the centre, no two equal."""
    y, x = np.mgrid[:28, :28]
    out = np.zeros((10, 2, 28, 28))
    for image in out.reshape(-1, 28, 28):
        for _ in range(4):
            cx, cy = RNG.uniform(9, 19, 2)
            image += 200 * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / RNG.uniform(3, 10))
    return out.clip(0, 255).astype(np.uint8)


IMAGES = draw_blobs()
ROTATION, SHIFT = MovedDigits(IMAGES), MovedDigits(IMAGES, move="shift")


def test_the_movement_is_the_law_plus_noise():
    noises = ROTATION.sample_exogenous(5000, np.random.default_rng(1))
    values = ROTATION.simulate(noises)
    angle, digit = values[:, 2], values[:, 3]
    np.testing.assert_allclose(values[:, 0] - 0.9 * angle**2, noises[:, 0])
    assert angle.min() >= 0
    assert angle.max() <= 10
    assert noises[:, 0].std() == pytest.approx(1, rel=0.05)
    np.testing.assert_array_equal(values[:, 1] // 2, digit)
    assert np.bincount(digit.astype(int)).min() > 400
    shifted = SHIFT.sample_exogenous(5000, np.random.default_rng(1))
    values = SHIFT.simulate(shifted)
    assert (values[:, 0] - values[:, 2]).std() == pytest.approx(np.sqrt(2), rel=0.05)
    curved = MovedDigits(IMAGES, move="shift", law="tanh", noise=0)
    np.testing.assert_allclose(
        curved.simulate(shifted * [0, 1, 1, 1])[:, 0], 6 * np.tanh(shifted[:, 2] / 3)
    )


def test_columns_cause_the_latents():
    assert [(a, b) for a, b, _ in ROTATION.graph.edges] == [
        ("angle", "rotation"),
        ("digit", "shape"),
    ]
    assert ROTATION.graph.names == ("rotation", "shape", "angle", "digit")
    assert [(a, b) for a, b, _ in SHIFT.graph.edges] == [("offset", "shift"), ("digit", "shape")]


def test_rotation_is_anticlockwise_and_shift_is_downwards():
    shapes = np.arange(20)
    quarter = ROTATION.render(np.stack([np.full(20, 90.0), shapes, shapes * 0, shapes * 0], 1))
    np.testing.assert_allclose(
        quarter[:, 0].astype(int), np.rot90(IMAGES.reshape(-1, 28, 28), axes=(1, 2)), atol=1
    )
    down = SHIFT.render(np.stack([np.full(20, 3.0), shapes, shapes * 0, shapes * 0], 1))[
        :, 0
    ].astype(int)
    np.testing.assert_allclose(down[:, 3:], IMAGES.reshape(-1, 28, 28)[:, :-3], atol=1)
    assert down[:, :3].max() == 0
    half = SHIFT.render(np.stack([np.full(20, -0.5), shapes, shapes * 0, shapes * 0], 1))[:, 0]
    flat = IMAGES.reshape(-1, 28, 28).astype(float)
    np.testing.assert_allclose(half[:, :-1], (flat[:, :-1] + flat[:, 1:]) / 2, atol=0.6)


@pytest.mark.parametrize("size", [28, 20])
@pytest.mark.parametrize(("simulator", "within"), [(ROTATION, 1.0), (SHIFT, 0.15)])
def test_movements_are_measured_also_on_faint_and_noisy_images(simulator, within, size):
    values = simulator.simulate(simulator.sample_exogenous(80, np.random.default_rng(2)))
    images = simulator.render(values, size=size)
    assert np.abs(simulator.measure(images, values[:, 1]) - values[:, 0]).max() < within
    degraded = (
        torch.tensor(images).float() / 255 * 0.4
        + 0.2
        + 0.03 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    )
    assert np.median(np.abs(simulator.measure(degraded, values[:, 1]) - values[:, 0])) < 2 * within
    wrong = simulator.measure(images, (values[:, 1] + 2) % 20)  # compared with another digit
    assert np.abs(wrong - values[:, 0]).mean() > within


def test_a_blank_image_has_no_movement():
    assert np.isnan(ROTATION.measure(np.zeros((2, 1, 28, 28), np.uint8), [0, 3])).all()


def test_do_of_the_angle_rotates_and_do_of_the_digit_replaces_the_shape():
    noises = ROTATION.sample_exogenous(40, np.random.default_rng(3))
    before = ROTATION.simulate(noises)
    images, values = ROTATION.counterfactual(noises, {"angle": 8.0})
    np.testing.assert_allclose(values[:, 0], 0.9 * 64 + noises[:, 0])
    np.testing.assert_array_equal(values[:, [1, 3]], before[:, [1, 3]])
    assert np.abs(ROTATION.measure(images, values[:, 1]) - values[:, 0]).max() < 1
    _, values = ROTATION.counterfactual(noises, {"digit": 4.0})
    assert set(values[:, 1]) == {8, 9}
    np.testing.assert_array_equal(values[:, [0, 2]], before[:, [0, 2]])
    with pytest.raises(DataError, match=r"'shape' must be a whole number from 0 to 19"):
        ROTATION.counterfactual(noises, {"digit": 10.0})


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return make_mnist(tmp_path / "mnist")


@pytest.mark.parametrize(
    ("name", "columns"),
    [("mnist-rotation", ("angle", "digit")), ("mnist-shift", ("offset", "digit"))],
)
def test_data_use_the_first_images_of_each_digit(home, name, columns):
    images, _ = home
    data = load_data(name, samples=60, each=2, first=1, noise=0.0)
    assert data.names == columns
    assert data.spec.variable("digit").kind == "categorical"
    np.testing.assert_array_equal(data.simulator.images.reshape(10, 2, 28, 28)[4], images[[14, 24]])
    values = data.simulator.simulate(data.train.fields["exogenous"].numpy())
    np.testing.assert_array_equal(data.train.images, data.simulator.render(values))
    np.testing.assert_allclose(data.train.fields["latents"], values[:, :2], rtol=1e-6)
    np.testing.assert_allclose(data.train.labels, values[:, 2:], rtol=1e-6)
    assert torch.equal(reload(data.source).test.images, data.test.images)
    assert load_data(name, samples=60, size=16).spec.image_shape == (1, 16, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"each": 5},
            "each=5 from first=0 exceeds the images of some digit; use a smaller each or first.",
        ),
        ({"each": 0}, "each=0 must be a whole number, 1 or more"),
        ({"size": (20, 28)}, "moved digits are square"),
        ({"noise": -1.0}, "noise=-1.0 must be a number, 0 or more"),
        ({"samples": 2}, "samples=2 must be a whole number, 8 or more"),
        ({"law": "cube"}, "law of shift"),
    ],
)
def test_invalid_options_are_refused(home, options, message):
    with pytest.raises(UsageError, match=message):
        load_data("mnist-shift", **options)


@pytest.mark.skipif(
    not os.path.isdir(os.path.join(os.environ.get("INTERVAE_DATA", "."), "mnist")),
    reason="INTERVAE_DATA with MNIST is not set",
)
@pytest.mark.parametrize(("name", "within"), [("mnist-rotation", 0.5), ("mnist-shift", 0.1)])
def test_movements_of_mnist_digits_are_measured(name, within):
    data = load_data(name)
    latents = data.test.fields["latents"]
    assert (len(data.train), len(data.validation), len(data.test)) == (720, 80, 200)
    assert (
        np.abs(
            data.simulator.measure(data.test.images, latents[:, 1]) - latents[:, 0].numpy()
        ).max()
        < within
    )
