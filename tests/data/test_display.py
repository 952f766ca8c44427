"""How a Dataset and a Split look in a terminal and in a notebook."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from intervae.data import (
    Dataset,
    Split,
    TransitionSplit,
    Variable,
    build_dataset,
    load_data,
    with_transitions,
)


@pytest.fixture
def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    labels = np.stack([rng.uniform(-2, 2, 30), np.arange(30) % 2, np.arange(30) % 3], axis=1)
    variables = [
        Variable("<height>", unit="mm"),
        Variable("side", "binary", categories=("left", "right & up")),
        Variable("stage", "categorical"),
    ]
    images = rng.integers(0, 256, (30, 1, 4, 6), dtype=np.uint8)
    return build_dataset("bars<1>", images, labels, variables)


def decode(html: str) -> list[np.ndarray]:
    """Return the inline PNG pictures of a page as arrays (H, W, 3)."""
    sources = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(source)))) for source in sources]


def test_repr_of_a_dataset_has_sizes_shape_and_variables(dataset: Dataset) -> None:
    text = repr(dataset)
    assert text.splitlines()[0] == "Dataset bars<1>"
    assert "train 22, validation 2, test 6" in text
    assert "(1, 4, 6) uint8" in text
    assert re.search(r"<height> +continuous +-\d\.\d+ to \d\.\d+ mm\n", text)
    assert re.search(r"side +binary +left, right & up\n", text)
    assert re.search(r"stage +categorical +0, 1, 2$", text)
    assert re.search(r"true graph unknown\n  simulator +none\n", text)
    variables = "variables <height>, side, stage"
    assert str(dataset) == f"Dataset(bars<1>: 22/2/6 images of (1, 4, 6), {variables})"


def test_repr_of_simulated_data_has_graph_simulator_and_actions() -> None:
    text = repr(load_data("pendulum", samples=40, size=8))
    assert "pendulum -> shadow_length" in text
    assert re.search(r"simulator +Pendulum", text)
    assert re.search(r"clips of 3 frames", repr(load_data("motion", samples=20)))
    room = load_data("shapes3d-like", size=8, levels="2,2,2,2,2,2", transitions=True)
    assert re.search(r"true graph no edges", repr(room))
    assert re.search(r"actions +floor_hue\+1, .* \(12 in all\)", repr(room))


def test_repr_without_variables(dataset: Dataset) -> None:
    assert repr(dataset.select([])).endswith("variables  none")
    assert "<th>" not in dataset.select([])._repr_html_()


def test_html_of_a_dataset_has_the_same_and_is_escaped(dataset: Dataset) -> None:
    html = dataset._repr_html_()
    assert "<strong>Dataset bars&lt;1&gt;</strong>" in html
    assert "<td>&lt;height&gt;</td><td>continuous</td>" in html
    assert "<td>left, right &amp; up</td>" in html
    assert "<td>train 22, validation 2, test 6</td>" in html
    assert "<1>" not in html
    assert "<height>" not in html


def test_repr_of_a_split_has_each_field_per_sample() -> None:
    split = Split(torch.zeros(5, 3, 4, 6, dtype=torch.uint8), exogenous=torch.zeros(5, 2))
    assert repr(split) == (
        "Split(5 samples on cpu: images (3, 4, 6) uint8, exogenous (2,) float32, labels (0,) "
        "float32)"
    )
    codes = Split(codes=torch.zeros(2, 7))
    assert "images" not in repr(codes)
    assert "<img" not in codes._repr_html_()


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_html_of_a_split_shows_its_first_pictures(channels: int) -> None:
    images = torch.randint(0, 256, (12, channels, 4, 6), dtype=torch.uint8)
    (strip,) = decode(Split(images)._repr_html_())
    assert strip.shape == (4, 8 * 6 + 7 * 2, 3)
    third = strip[:, 16:22].transpose(2, 0, 1)
    assert np.array_equal(third, np.broadcast_to(images[2, :1], (3, 4, 6))) == (channels != 3)
    assert np.array_equal(third, images[2].numpy()) == (channels == 3)
    assert (strip[:, 22:24] == 255).all()


def test_html_of_an_empty_split_and_of_clips() -> None:
    assert "<img" not in Split(torch.zeros(0, 3, 4, 6, dtype=torch.uint8))._repr_html_()
    (strip,) = decode(load_data("motion", samples=20).test._repr_html_())
    assert strip.shape == (20, 4 * 20 + 3 * 2, 3)


def test_html_of_transitions_shows_pictures_before_and_after() -> None:
    room = load_data("shapes3d-like", size=8, levels="2,2,2,2,2,2")
    pairs = with_transitions(room).transitions
    assert pairs is not None
    before, after = decode(TransitionSplit(room.train, pairs.train)._repr_html_())
    assert before.shape == after.shape == (8, 8 * 8 + 7 * 2, 3)
    first = room.train[pairs.train.after[:1]].images[0].numpy()
    assert np.array_equal(after[:, :8].transpose(2, 0, 1), first)
