"""Scatter plots of latents and their prior."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from intervae.errors import DataError
from intervae.figures import prior_and_posterior

CLOUD = np.random.default_rng(0).standard_normal((300, 2))


def test_each_model_has_a_panel(tmp_path: Path) -> None:
    widths = []
    for count in (1, 3):
        prior_and_posterior(
            tmp_path / f"{count}.png",
            {f"model {i}": (CLOUD, 0.5 * CLOUD) for i in range(count)},
            ("z0", "z1"),
            title="Latents",
        )
        with Image.open(tmp_path / f"{count}.png") as image:
            widths.append(image.width)
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize("bad", [CLOUD[:, :1], CLOUD[:0], np.full((3, 2), np.nan)])
def test_invalid_points_raise_errors(bad: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the points of 'mine' must be finite and \\(N, 2\\)"):
        prior_and_posterior(tmp_path / "x.png", {"mine": (CLOUD, bad)}, ("z0", "z1"))
    assert not (tmp_path / "x.png").exists()
