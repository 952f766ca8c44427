"""Images as callers have them: paths, Pillow images and single arrays, against arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from intervae.data import Dataset
from intervae.errors import DataWarning, QueryError


@pytest.fixture(scope="module")
def colour(make_model: Callable[..., Any], make_data: Callable[..., Dataset]) -> Any:
    return make_model("causal-vae", make_data((3, 16, 20)))


@pytest.fixture(scope="module")
def grey(make_model: Callable[..., Any], make_data: Callable[..., Dataset]) -> Any:
    return make_model("vae", make_data((1, 16, 20)))


def pixels(channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (channels, 16, 20), dtype=np.uint8)


def test_paths_and_pillow_images_are_the_same_as_arrays(colour: Any, tmp_path: Path) -> None:
    arrays = np.stack([pixels(3, 0), pixels(3, 1)])
    pictures = [Image.fromarray(array.transpose(1, 2, 0)) for array in arrays]
    paths = [tmp_path / "0.png", tmp_path / "1.png"]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    expected = colour.encode(arrays)
    for images in (pictures, paths, [str(path) for path in paths], [pictures[0], paths[1]]):
        assert torch.equal(colour.encode(images), expected)
    for image in (pictures[0], paths[0], str(paths[0])):
        assert torch.equal(colour.encode(image), colour.encode(arrays[:1]))
        assert torch.equal(colour.reconstruct(image), colour.reconstruct(arrays[:1]))


def test_single_arrays_have_channels_first_last_or_none(colour: Any, grey: Any) -> None:
    image = pixels(3)
    for array in (image, image.transpose(1, 2, 0), torch.from_numpy(image).movedim(0, -1)):
        assert torch.equal(colour.encode(array), colour.encode(image[None]))
    flat = pixels(1)
    for array in (flat, flat[0], flat.transpose(1, 2, 0), flat[0] / 255):
        assert torch.allclose(grey.encode(array), grey.encode(flat[None]), atol=1e-5)
    with pytest.raises(QueryError, match=r"not \(16, 20\)"):
        colour.encode(flat[0])


def test_a_picture_of_another_shape_is_converted_with_a_warning(grey: Any) -> None:
    """A picture of one colour has the same pixels at any size."""
    green = Image.new("RGB", (40, 40), (10, 200, 30))
    with pytest.warns(DataWarning) as warned:
        latents = grey.encode(green)
    texts = [str(warning.message) for warning in warned]
    assert "is 40 x 40 (width x height) and is stretched to 20 x 16" in texts[0]
    assert "is in colour, but the run's images are grey" in texts[1]
    level = np.asarray(green.convert("L"))[0, 0]
    assert torch.equal(latents, grey.encode(np.full((1, 16, 20), level, np.uint8)))


def test_unreadable_pictures_are_query_errors(grey: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no")
    for image, words in (
        (tmp_path / "none.png", "does not exist"),
        (tmp_path / "broken.png", "cannot be read"),
        ([Image.new("L", (20, 16)), tmp_path / "none.png"], "does not exist"),
        ([], "no images|not an array|shape"),
    ):
        with pytest.raises(QueryError, match=words):
            grey.encode(image)
