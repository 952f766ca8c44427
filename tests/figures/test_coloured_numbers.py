"""Grids of coloured numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from intervae.errors import DataError
from intervae.figures import NumberGrid, number_grids

SCORES = NumberGrid(
    "score", ["10", "20"], ["0.1", "1", "10"], [[0.25, 0.5, 1.0], [0.75, None, 0.3]]
)


def cells(canvas) -> dict[str, tuple[float, float, float]]:
    """Return text of a cell -> its colour."""
    boxes = [child for child in canvas.axes.get_children() if isinstance(child, Rectangle)]
    colours = {}
    for text in canvas.axes.texts:
        x, y = text.get_position()
        for box in boxes:
            left, top = box.get_xy()
            inside = left < x < left + box.get_width() and top < y < top + box.get_height()
            if inside and box.get_facecolor()[3] == 1 and box.get_width() < 100:
                colours[text.get_text()] = to_rgb(box.get_facecolor())
    return colours


def brightness(colour: tuple[float, float, float]) -> float:
    return float(np.mean(colour))


@pytest.mark.parametrize("high_is_dark", [True, False])
def test_cells_have_their_numbers_and_colours_by_size(drawn, high_is_dark: bool) -> None:
    grid = replace(SCORES, high_is_dark=high_is_dark)
    colours = cells(drawn(number_grids, [grid]))
    order = sorted(colours, key=lambda text: brightness(colours[text]))
    expected = ["1", "0.75", "0.5", "0.3", "0.25"]
    assert order == (expected if high_is_dark else expected[::-1])


def test_grids_stand_side_by_side_with_their_labels(drawn, assert_no_overlap) -> None:
    other = NumberGrid("loss", ["10", "20"], ["0.1"], [[3.0], [4.0]], down="n", across="weight")
    canvas = drawn(number_grids, [SCORES, other], title="Two grids")
    texts = [text.get_text() for text in canvas.axes.texts]
    for word in ("Two grids", "score", "loss", "n", "weight", "20", "0.1"):
        assert word in texts
    assert_no_overlap(canvas)


def test_grids_without_numbers_are_refused(drawn) -> None:
    with pytest.raises(DataError, match="no number to draw"):
        drawn(number_grids, [])
    with pytest.raises(DataError, match="no number to draw"):
        drawn(number_grids, [NumberGrid("a", [], [], [])])
    with pytest.raises(DataError, match="must be finite"):
        drawn(number_grids, [NumberGrid("a", ["x"], ["y"], [[None]])])
