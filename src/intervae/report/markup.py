"""HTML fragments of the report: escaped text, embedded images, tables and lists of facts."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from intervae.figures.text_layout import printable

LONGEST_NAME = 26  # characters of a name in a figure; the tooltip has the full name
LARGEST_SIDE = 256  # pixels of an embedded image


def escape_text(text: object) -> str:
    """Escape any text for HTML and SVG, on one line."""
    return escape(printable(text), quote=True)


def shorten(name: str) -> str:
    """Cut a name to LONGEST_NAME characters."""
    text = printable(name)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


# ---- images --------------------------------------------------------------------------------------
def png_data_uri(pixels: np.ndarray) -> str:
    """Encode (H, W, 3) uint8 pixels as a PNG data URI; large images are shrunk."""
    image = Image.fromarray(pixels)
    longest = max(image.size)
    if longest > LARGEST_SIDE:
        size = (max(1, round(side * LARGEST_SIDE / longest)) for side in image.size)
        image = image.resize(tuple(size), Image.Resampling.LANCZOS)  # type: ignore[arg-type]
    buffer = BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def image_row(
    images: Sequence[np.ndarray | None], captions: Sequence[str], label: str, alternative: str
) -> str:
    """Row of a table of images (H, W, 3), each below its caption; an empty cell for None."""
    cells = []
    for pixels, caption in zip(images, captions, strict=True):
        above = f"<span>{escape_text(caption)}</span>" if caption else ""
        image = ""
        if pixels is not None:
            text = escape_text(f"{alternative} {caption}")
            image = f'<img src="{png_data_uri(pixels)}" alt="{text}">'
        cells.append(f"<td>{above}{image}</td>")
    return f'<tr><th scope="row">{escape_text(label)}</th>{"".join(cells)}</tr>'


def image_figure(rows: str, caption: str) -> str:
    """Figure of `image_row`s; the caption is HTML."""
    table = f'<table class="images"><tbody>{rows}</tbody></table>'
    return f'<figure><div class="scroll">{table}</div><figcaption>{caption}</figcaption></figure>'


# ---- tables and lists ----------------------------------------------------------------------------
def html_table(
    heads: Sequence[str], numeric_heads: Sequence[str], rows: Sequence[str], scroll: bool = True
) -> str:
    """Table of ready `<tr>` rows; numeric columns come last and are aligned right."""
    cells = "".join(f"<th>{head}</th>" for head in heads)
    cells += "".join(f'<th class="number">{head}</th>' for head in numeric_heads)
    body = f"<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody>"
    table = f"<table>{body}</table>"
    return f'<div class="scroll">{table}</div>' if scroll else table


def facts_list(facts: Mapping[str, Any]) -> str:
    """Definition list of names and values, both escaped."""
    items = "".join(
        f"<dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd>"
        for name, value in facts.items()
    )
    return f'<dl class="facts">{items}</dl>'


def section(title: str, body: str, note: str = "") -> str:
    """Section with a heading and an optional note below its body; all are HTML."""
    note = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{body}{note}</section>"


# ---- words ---------------------------------------------------------------------------------------
def count(number: int, noun: str) -> str:
    """Number and noun, such as "1 column" or "3 columns"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def join_words(items: Sequence[str]) -> str:
    """Join as "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
