"""Fixtures for figures: the canvas that would have been saved, and what is on it."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from intervae.figures.canvas import SCALE, Canvas
from intervae.figures.text_layout import drawing_lock

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawn(monkeypatch):
    """Call a figure function without a path; get its Canvas instead of a file."""

    def draw(function, *arguments, **options):
        canvases = []
        with monkeypatch.context() as patch:
            patch.setattr(Canvas, "save", lambda self, path, **_: canvases.append(self))
            function("figure.png", *arguments, **options)
        return canvases[0]

    return draw


def labels_out_of_view(axis):
    """Tick labels that matplotlib has but does not draw."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [
        label
        for t in ticks
        if not (axis.axes.axison and low <= t.get_loc() <= high)
        for label in (t.label1, t.label2)
    ]


@pytest.fixture
def words():
    """All visible texts of a canvas with boxes (left, bottom, right, top) in canvas pixels."""

    def boxes(canvas):
        canvas.figure.set_dpi(72 * SCALE)
        renderer = FigureCanvasAgg(canvas.figure).get_renderer()
        with drawing_lock():
            canvas.figure.draw(renderer)
            hidden = {
                label
                for axes in canvas.figure.axes
                for axis in (axes.xaxis, axes.yaxis)
                for label in labels_out_of_view(axis)
            }
            shown = [
                t
                for t in canvas.figure.findobj(Text)
                if t.get_text().strip() and t.get_visible() and t not in hidden
            ]
            return [(t.get_text(), t.get_window_extent(renderer).extents / SCALE) for t in shown]

    return boxes


@pytest.fixture
def assert_no_overlap(words):
    """No two texts of a canvas touch, and none leaves it."""

    def check(canvas, slack=0.5):
        texts = words(canvas)
        for text, (left, bottom, right, top) in texts:
            assert left >= 0, text
            assert bottom >= 0, text
            assert right <= canvas.width, text
            assert top <= canvas.height, text
        for (first, a), (second, b) in combinations(texts, 2):
            apart = (
                a[0] + slack >= b[2]
                or b[0] + slack >= a[2]
                or a[1] + slack >= b[3]
                or b[1] + slack >= a[3]
            )
            assert apart, f"{first!r} and {second!r} overlap"

    return check


@pytest.fixture
def read_png():
    def read(path):
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))

    return read


@pytest.fixture
def find():
    """All positions (y, x) of `tile` (h, w, 3) in `picture` (H, W, 3)."""

    def places(picture, tile):
        height, width = tile.shape[:2]
        room = picture[: picture.shape[0] - height + 1, : picture.shape[1] - width + 1]
        candidates = np.argwhere((room == tile[0, 0]).all(2))
        for y, x in (
            (height // 2, width // 2),
            (height - 1, width - 1),
            (0, width - 1),
            (height - 1, 0),
        ):
            candidates = candidates[
                (picture[candidates[:, 0] + y, candidates[:, 1] + x] == tile[y, x]).all(1)
            ]
        return [
            (int(y), int(x))
            for y, x in candidates
            if (picture[y : y + height, x : x + width] == tile).all()
        ]

    return places


@pytest.fixture
def svg():
    """Texts, ids of groups, and embedded images of an SVG file."""

    def parse(path):
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        texts = ["".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")]
        ids = [node.get("id", "") for node in root.iter(f"{SVG}g")]
        hrefs = [
            node.get("{http://www.w3.org/1999/xlink}href", "") for node in root.iter(f"{SVG}image")
        ]
        data = [base64.b64decode(re.sub(r"^data:image/png;base64,", "", href)) for href in hrefs]
        return (
            texts,
            ids,
            [np.asarray(Image.open(io.BytesIO(part)).convert("RGB")) for part in data],
        )

    return parse


@pytest.fixture
def panels():
    """The plots of a canvas by the bold text above them."""

    def by_title(canvas):
        titles = {
            (round(t.get_position()[0]), round(t.get_position()[1])): t.get_text()
            for t in canvas.axes.texts
            if t.get_fontweight() == "bold"
        }
        placed = {}
        for axes in canvas.figure.axes[1:]:
            box = axes.get_position()
            x, y = box.x0 * canvas.width, (1 - box.y1) * canvas.height
            placed[min(titles, key=lambda at: abs(at[0] - x) + abs(at[1] - y))] = axes
        return {titles[at]: axes for at, axes in placed.items()}

    return by_title
