"""Canvas: a figure in pixels from the top left, and how it is written to a file."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from PIL import Image

from intervae.errors import unknown
from intervae.figures.style import BODY, FAINT, INK, LINE, MARGIN, PALE, RULE, SMALL, TITLE
from intervae.figures.text_layout import drawing_lock, font, font_families
from intervae.files import write_bytes

FORMATS = (".png", ".svg")
SCALE = 2  # pixels of a PNG per canvas pixel, for dense screens
LARGEST = 10_000_000  # canvas pixels above which the scale of a PNG is 1
GRID = 9  # canvas sides are multiples of this: 9/72 inch is exact in binary


class Canvas:
    """A white figure of width x height pixels, x to the right and y downwards."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = (GRID * math.ceil(side / GRID) for side in (width, height))
        self.figure = Figure(figsize=(self.width / 72, self.height / 72), dpi=72, facecolor="white")
        self.figure.suppressComposite = True  # each image stays separate in an SVG
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0), autoscale_on=False)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = BODY,
        color: str = INK,
        ha: str = "left",
        va: str = "center",
        **options: Any,
    ) -> Text:
        properties = font(size, options.pop("weight", "normal"))
        return self.axes.text(
            x, y, text, color=color, ha=ha, va=va, fontproperties=properties, **options
        )

    def title(self, text: str) -> None:
        """Draw a title that `wrap_title` has wrapped."""
        self.text(MARGIN, MARGIN, text, size=TITLE, weight="bold", va="top", linespacing=LINE)

    def add(self, patch: Patch) -> None:
        self.axes.add_artist(patch)  # add_patch would also update the limits, which are fixed

    def image(
        self,
        pixels: np.ndarray,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        frame: str = RULE,
        frame_width: float = 0.5,
    ) -> None:
        """Draw `pixels` (h, w, 3) uint8 without smoothing, aligned to pixels of the file.

        The frame lies outside the image.
        """
        x, y = round(x * SCALE) / SCALE, round(y * SCALE) / SCALE
        image = AxesImage(self.axes, extent=(x, x + width, y + height, y), interpolation="none")
        image.set_data(pixels)
        self.axes.add_image(image)
        corner = (x - frame_width / 2, y - frame_width / 2)
        size = (width + frame_width, height + frame_width)
        self.add(
            Rectangle(corner, *size, fill=False, edgecolor=frame, linewidth=frame_width, snap=False)
        )

    def panel(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes for a plot at this place."""
        axes = self.figure.add_axes(
            (
                x / self.width,
                1 - (y + height) / self.height,
                width / self.width,
                height / self.height,
            ),
            facecolor="white",
        )
        axes.grid(True, color=PALE, linewidth=1)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set(visible=side in ("left", "bottom"), color=RULE, linewidth=1)
        axes.tick_params(
            which="both",
            color=RULE,
            labelcolor=FAINT,
            labelsize=SMALL,
            labelfontfamily=list(font_families()),
            length=3,
            width=1,
            pad=3,
        )
        axes.tick_params(which="minor", length=0)
        return axes

    def save(self, path: str | Path, *, colours: int | None = None) -> None:
        """Write PNG or SVG, by the suffix of `path`; equal drawings give equal bytes.

        Arguments:
            colours: number of colours of a PNG, which makes the file smaller.
        """
        suffix = check_suffix(path)
        for text in self.figure.findobj(Text):
            text.set_parse_math(False)  # a $ in a name is a $
            text.set_usetex(False)
        settings: dict[Any, Any] = {
            "svg.fonttype": "none",
            "svg.hashsalt": "intervae",
            "savefig.bbox": None,
            "text.usetex": False,
        }
        buffer = BytesIO()
        with drawing_lock(), mpl.rc_context(settings):
            dpi = 72 * (SCALE if self.width * self.height <= LARGEST else 1)
            metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
            self.figure.savefig(
                buffer, format=suffix[1:], dpi=dpi, facecolor="white", metadata=metadata
            )
        if colours is not None and suffix == ".png":
            image = Image.open(buffer).convert("RGB")
            buffer = BytesIO()
            image.quantize(colours, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        write_bytes(Path(path), buffer.getvalue())


def check_suffix(path: str | Path) -> str:
    """Return the suffix of `path`; raise if it is not in FORMATS."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise unknown("picture format", suffix or str(path), FORMATS)
    return suffix
