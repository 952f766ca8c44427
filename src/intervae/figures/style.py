"""The one look of every figure: colours, fonts, a canvas measured in pixels from the top left, and how it becomes a file."""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.image import AxesImage
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from PIL import Image

from intervae.errors import unknown
from intervae.files import write_bytes

FORMATS = (".png", ".svg")
SCALE = 2  # pixels of a PNG per pixel of the canvas, so that it is sharp on a dense screen
LARGEST = 10_000_000  # canvas pixels, above which a PNG has them one to one

# blue and orange are Okabe and Ito's; all stay apart for colour-blind readers, by lightness if not by hue
INK, FAINT, RULE, PALE = "#1f2328", "#6e7681", "#d0d7de", "#f1f4f8"
BLUE, ORANGE, RED = "#0072b2", "#e69f00", "#d7301f"
SERIES = (BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#8a5a2b", FAINT)  # of Okabe and Ito as well, but for the last two
DIVERGING = LinearSegmentedColormap.from_list(
    "less, equal, more", ["#053061", "#2166ac", "#67a9cf", "#ffffff", "#ef8a62", "#c2301c", "#67001f"], N=257
)  # an odd number of colours, so that 0 is white

TITLE, BODY, SMALL = 13.0, 11.0, 9.5  # font sizes in canvas pixels
LINE = 1.3  # line height, in font sizes
MARGIN = 14
MODULE = 9  # canvas sides are multiples of this: 9/72 inch is exact in binary, so no pixel is lost to rounding

OTHER_SCRIPTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Noto Sans")

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LOCK = threading.RLock()  # matplotlib's settings and Python's warning filters belong to the whole process


class Canvas:
    """A white sheet of width x height pixels, x to the right and y downwards, on which pictures, words and shapes are put."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = (MODULE * math.ceil(side / MODULE) for side in (width, height))
        self.figure = Figure(figsize=(self.width / 72, self.height / 72), dpi=72, facecolor="white")
        self.figure.suppressComposite = True  # each picture stays one image in an SVG
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0), autoscale_on=False)

    def text(self, x: float, y: float, words: str, *, size: float = BODY, color: str = INK, ha: str = "left", va: str = "center", **how: Any) -> Text:
        return self.axes.text(x, y, words, color=color, ha=ha, va=va, fontproperties=font(size, how.pop("weight", "normal")), **how)

    def add(self, patch: Patch) -> None:
        self.axes.add_artist(patch)  # add_patch would also measure it, for limits that are fixed here

    def image(self, pixels: np.ndarray, x: float, y: float, width: float, height: float, *, frame: str = RULE, frame_width: float = 0.5) -> None:
        """`pixels` (h, w, 3) uint8 enlarged without smoothing, on whole pixels of the file; the frame lies outside, so that every pixel is seen."""
        x, y = round(x * SCALE) / SCALE, round(y * SCALE) / SCALE
        picture = AxesImage(self.axes, extent=(x, x + width, y + height, y), interpolation="none")
        picture.set_data(pixels)
        self.axes.add_image(picture)
        corner, size = (x - frame_width / 2, y - frame_width / 2), (width + frame_width, height + frame_width)
        self.add(Rectangle(corner, *size, fill=False, edgecolor=frame, linewidth=frame_width, snap=False))

    def panel(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes for a plot at this place, in our style."""
        axes = self.figure.add_axes((x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height), facecolor="white")
        axes.grid(True, color=PALE, linewidth=1)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set(visible=side in ("left", "bottom"), color=RULE, linewidth=1)
        axes.tick_params(which="both", color=RULE, labelcolor=FAINT, labelsize=SMALL, labelfontfamily=list(families()), length=3, width=1, pad=3)
        axes.tick_params(which="minor", length=0)
        return axes

    def save(self, path: str | Path, *, colours: int | None = None) -> None:
        """Write PNG or SVG, by the suffix of `path`; the same drawing gives the same bytes. A PNG of so many `colours` only is far smaller."""
        suffix = known_suffix(path)
        for text in self.figure.findobj(Text):
            text.set_parse_math(False)  # a $ in a name is a $
            text.set_usetex(False)
        buffer = BytesIO()
        with quiet(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "intervae", "savefig.bbox": None, "text.usetex": False}):
            dpi = 72 * (SCALE if self.width * self.height <= LARGEST else 1)
            stamp = {"Date": None} if suffix == ".svg" else {"Software": None}
            self.figure.savefig(buffer, format=suffix[1:], dpi=dpi, facecolor="white", metadata=stamp)
        if colours is not None and suffix == ".png":
            picture, buffer = Image.open(buffer).convert("RGB").quantize(colours, dither=Image.Dither.NONE), BytesIO()
            picture.save(buffer, "PNG", optimize=True)
        write_bytes(Path(path), buffer.getvalue())


def known_suffix(path: str | Path) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise unknown("picture format", suffix or str(path), FORMATS)
    return suffix


@contextmanager
def quiet() -> Iterator[None]:
    """One drawing at a time, and no warning for a sign that no font here has; it is drawn as a box, and in an SVG the reader's fonts show it."""
    with _LOCK, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        yield


@cache
def families() -> tuple[str, ...]:
    """DejaVu Sans, which comes with matplotlib, then what this machine has for other scripts."""
    installed = {entry.name for entry in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in OTHER_SCRIPTS if name in installed), "sans-serif")


def font(size: float = BODY, weight: str = "normal") -> FontProperties:
    return FontProperties(family=list(families()), size=size, weight=weight)


def text_width(words: str, size: float = BODY, weight: str = "normal") -> float:
    """Width in canvas pixels of the widest line."""
    with quiet():
        return max(text_to_path.get_text_width_height_descent(line or " ", font(size, weight), False)[0] for line in words.split("\n"))


def readable(name: Any) -> str:
    """A name as one line, without the characters that XML cannot hold."""
    return " ".join(_NOT_XML.sub(" ", str(name)).split())


def wrap(words: str, width: float, size: float = BODY, weight: str = "normal") -> str:
    """Break at spaces, never after "=", into the fewest lines of at most `width` where that is possible, and those about equally long."""
    pieces = readable(words).replace("= ", "=\0").split(" ")
    spaces = [text_width(piece.replace("\0", " "), size, weight) for piece in pieces]
    space = text_width(" ", size, weight)

    def broken(limit: float) -> list[str]:
        lines, room = [pieces[0]], limit - spaces[0]
        for piece, needed in zip(pieces[1:], spaces[1:], strict=True):
            fits = space + needed <= room
            lines[-1:] = [f"{lines[-1]} {piece}"] if fits else [lines[-1], piece]
            room = room - space - needed if fits else limit - needed
        return lines

    fewest = len(broken(width))
    narrower = next(limit for limit in np.linspace(0.4, 1, 13) * width if len(broken(limit)) == fewest)
    return "\n".join(broken(narrower)).replace("\0", " ")


def heading(title: str, width: float) -> tuple[str, float]:
    """A title broken to `width`, and the height that it takes, 0 without one."""
    words = wrap(title, width, TITLE, "bold") if title.strip() else ""
    return words, TITLE * LINE * (words.count("\n") + 1) + 8 if words else 0.0


def put_heading(canvas: Canvas, words: str) -> None:
    canvas.text(MARGIN, MARGIN, words, size=TITLE, weight="bold", va="top", linespacing=LINE)


def number(value: float, digits: int = 3) -> str:
    """A short number with a true minus sign."""
    return f"{value + 0.0:.{digits}g}".replace("-", "−")
