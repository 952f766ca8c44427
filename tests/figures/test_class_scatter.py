"""Scatter plots by class: every class has its colour, bad input is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from intervae.errors import DataError
from intervae.figures import class_scatter


def test_points_have_the_colour_of_their_class(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    classes = np.arange(400) % 2
    clouds = {"z1": rng.normal(size=(400, 2)), "z2": rng.normal(size=(400, 2))}
    plain, swapped = tmp_path / "a.png", tmp_path / "b.png"
    class_scatter(plain, clouds, classes, ("even", "odd"), title="Two")
    class_scatter(swapped, clouds, np.zeros(400, int), ("even", "odd"), title="Two")

    def pixels(path: Path, first: int, second: int) -> int:
        """Return the number of pixels with more of one channel than of another."""
        image = np.asarray(Image.open(path).convert("RGB")).astype(int)
        return int((image[..., first] - image[..., second] > 60).sum())

    assert pixels(plain, 0, 2) > 3 * pixels(swapped, 0, 2) > 0  # orange: points, and the legend
    assert pixels(swapped, 2, 0) > 1.3 * pixels(plain, 2, 0)  # blue


def test_bad_input_is_refused(tmp_path: Path) -> None:
    path, cloud, zeros = tmp_path / "a.png", np.zeros((3, 2)), np.zeros(3, int)
    with pytest.raises(DataError, match=r"'z' must be finite and \(3, 2\)"):
        class_scatter(path, {"z": cloud[:2]}, zeros, ("a",))
    with pytest.raises(DataError, match="must be finite"):
        class_scatter(path, {"z": cloud + np.nan}, zeros, ("a",))
    with pytest.raises(DataError, match="classes must be 0 to 0"):
        class_scatter(path, {"z": cloud}, zeros + 1, ("a",))
    with pytest.raises(DataError, match="11 classes cannot be drawn"):
        class_scatter(path, {"z": cloud}, zeros, [str(k) for k in range(11)])
    assert not path.exists()
