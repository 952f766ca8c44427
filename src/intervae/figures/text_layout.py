"""Fonts, text widths, line breaks and numbers of figures."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.textpath import text_to_path

from intervae.figures.style import BODY, LINE, TITLE

OTHER_SCRIPTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Noto Sans",
)

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LOCK = threading.RLock()  # matplotlib's settings and Python's warning filters are global


@contextmanager
def drawing_lock() -> Iterator[None]:
    """Draw in one thread at a time, without warnings about characters that no font has.

    Such a character is drawn as a box; in an SVG the viewer's fonts show it.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings(
            "ignore", message="Matplotlib currently does not support .* natively"
        )
        yield


@cache
def font_families() -> tuple[str, ...]:
    """Return DejaVu Sans, which comes with matplotlib, then installed fonts of other scripts."""
    installed = {entry.name for entry in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in OTHER_SCRIPTS if name in installed), "sans-serif")


def font(size: float = BODY, weight: str = "normal") -> FontProperties:
    return FontProperties(family=list(font_families()), size=size, weight=weight)


def text_width(text: str, size: float = BODY, weight: str = "normal") -> float:
    """Return the width of the widest line in canvas pixels."""
    with drawing_lock():
        return max(
            text_to_path.get_text_width_height_descent(line or " ", font(size, weight), False)[0]
            for line in text.split("\n")
        )


def printable(name: Any) -> str:
    """Return a name as one line, without characters that XML does not allow."""
    return " ".join(_NOT_XML.sub(" ", str(name)).split())


def wrap(text: str, width: float, size: float = BODY, weight: str = "normal") -> str:
    """Break text at spaces, but not after "=", into the fewest lines of at most `width`.

    The lines are about equally long.
    """
    pieces = printable(text).replace("= ", "=\0").split(" ")
    widths = [text_width(piece.replace("\0", " "), size, weight) for piece in pieces]
    space = text_width(" ", size, weight)

    def break_lines(limit: float) -> list[str]:
        lines, room = [pieces[0]], limit - widths[0]
        for piece, needed in zip(pieces[1:], widths[1:], strict=True):
            fits = space + needed <= room
            lines[-1:] = [f"{lines[-1]} {piece}"] if fits else [lines[-1], piece]
            room = room - space - needed if fits else limit - needed
        return lines

    fewest = len(break_lines(width))
    narrowest = next(
        limit for limit in np.linspace(0.4, 1, 13) * width if len(break_lines(limit)) == fewest
    )
    return "\n".join(break_lines(narrowest)).replace("\0", " ")


def wrap_title(title: str, width: float) -> tuple[str, float]:
    """Return a title wrapped to `width` and its height, 0 for an empty title."""
    text = wrap(title, width, TITLE, "bold") if title.strip() else ""
    return text, TITLE * LINE * (text.count("\n") + 1) + 8 if text else 0.0


def format_number(value: float, digits: int = 3) -> str:
    """Return a short number with a true minus sign."""
    return f"{value + 0.0:.{digits}g}".replace("-", "−")
