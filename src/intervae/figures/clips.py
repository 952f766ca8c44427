"""Clips: frames in a row, frames laid over each other in colours of time, and what each latent answers to where a thing is (causal-prior VAE).

Figs. 2 and 5 of the paper are `response_maps`, Fig. 6 is `clip_interventions`, Fig. 7 is `clip_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.figures.images import CELL, GAP, GROUP_GAP
from intervae.figures.pixels import as_array, as_images, as_rgb, cell_size, shrink
from intervae.figures.style import (
    BODY,
    DIVERGING,
    FAINT,
    INK,
    LINE,
    MARGIN,
    ORANGE,
    RULE,
    SMALL,
    Canvas,
    heading,
    known_suffix,
    number,
    put_heading,
    readable,
    text_width,
    wrap,
)

FIRST, MIDDLE, LAST = (235, 64, 52), (255, 255, 255), (62, 207, 92)  # colours of the first, a middle and the last frame
PALE_ORANGE = "#f8e2b3"  # the frame of pictures beyond the data
LABEL_WIDTH = 170.0  # at which labels at the left are broken into lines


@dataclass(frozen=True)
class ClipRow:
    """Several clips that belong together, or one.

    Arguments:
        label: what was done, or which clip it is.
        clips: (K, T, C, H, W) for `clip_interventions`, (T, C, H, W) for `clip_rows`.
        values: (K,) what a variable was set to, printed above each clip.
        made: how many of the last frames a model made; they are framed.
        beyond: how many of the last of these show what the data cannot; their frame is pale.
    """

    label: str
    clips: Any
    values: Sequence[float] = ()
    made: int = 0
    beyond: int = 0


def time_colours(frames: int) -> np.ndarray:
    """(T, 3) in [0, 255]: red for the first frame, white in the middle, green for the last."""
    place = np.linspace(0, 2, frames)
    return np.stack([np.interp(place, [0, 1, 2], channel) for channel in zip(FIRST, MIDDLE, LAST, strict=True)], axis=1)


def overlay(clips: Any) -> np.ndarray:
    """Clips (K, T, C, H, W) of bright things on black to pictures (K, H, W, 3) uint8: every frame in the colour of its time, the brightest on top."""
    array = _clips(clips, "the clips")
    light = array.max(2)  # (K, T, H, W)
    last = array.shape[1] - 1 - light[:, ::-1].argmax(1)[..., None]  # (K, H, W, 1), of equally bright ones the later
    return np.rint(light.max(1)[..., None] * time_colours(array.shape[1])[last[..., 0]]).astype(np.uint8)


def clip_interventions(path: str | Path, rows: Sequence[ClipRow], *, title: str = "", groups: int = 1) -> None:
    """A row for each variable, its clips under the values that it is set to, each clip as one picture: first frame red, middle white, last green.

    The rows stand in `groups` columns, one after the other.
    """
    known_suffix(path)
    if not rows:
        raise DataError("there is no variable to show; give at least one ClipRow.")
    pictures = [overlay(row.clips) for row in rows]
    width, height = cell_size((*pictures[0].shape[1:3],), CELL)
    label = max(text_width(readable(row.label)) for row in rows) + 12
    most = max(len(part) for part in pictures)
    block = label + most * (width + GAP) - GAP
    lines = -(-len(rows) // groups)
    above = SMALL * LINE + 3
    right = MARGIN + groups * (block + 24) - 24
    words, head = heading(title, right - MARGIN)
    canvas = Canvas(right + MARGIN, MARGIN + head + lines * (above + height + 8) + SMALL * LINE + MARGIN)
    put_heading(canvas, words)
    for k, (row, images) in enumerate(zip(rows, pictures, strict=True)):
        x, y = MARGIN + (k // lines) * (block + 24), MARGIN + head + (k % lines) * (above + height + 8) + above
        canvas.text(x, y + height / 2, readable(row.label))
        for j, pixels in enumerate(images):
            left = x + label + j * (width + GAP)
            if len(row.values):
                canvas.text(left + width / 2, y - 3, number(row.values[j], 2), size=SMALL, color=FAINT, ha="center", va="bottom")
            canvas.image(shrink(pixels, width, height), left, y, width, height)
    canvas.text(MARGIN, canvas.height - MARGIN, "red: first frame, white: middle, green: last", size=SMALL, color=FAINT, va="bottom")
    canvas.save(path)


def clip_rows(path: str | Path, rows: Sequence[ClipRow], *, heads: Sequence[str] = (), title: str = "", pairs: int = 1) -> None:
    """A row of frames for each clip (T, C, H, W), `heads` above the columns; frames that a model made are framed in orange, pale beyond the data.

    `pairs` rows that belong together stand close to each other.
    """
    known_suffix(path)
    if not rows:
        raise DataError("there is no clip to show; give at least one ClipRow.")
    clips = [as_images(row.clips, f"the frames of {row.label!r}") for row in rows]
    width, height = cell_size(clips[0].shape, CELL)
    gap = max(GAP + 2, *(text_width(head, SMALL) + 6 - width for head in heads)) if heads else GAP + 2
    labels = [wrap(row.label, LABEL_WIDTH) for row in rows]
    left = MARGIN + max(text_width(label) for label in labels) + 12
    right = left + max(map(len, clips)) * (width + gap) - gap
    words, head = heading(title, right - MARGIN)
    top = MARGIN + head + (SMALL * LINE + 4 if heads else 0)
    tall = [max(height, BODY * LINE * (label.count("\n") + 1)) for label in labels]
    canvas = Canvas(right + MARGIN, top + sum(tall) + (GAP + 2) * len(rows) + (GROUP_GAP - GAP) * ((len(rows) - 1) // pairs) + MARGIN)
    put_heading(canvas, words)
    for k, word in enumerate(heads):
        canvas.text(left + k * (width + gap) + width / 2, top - 4, word, size=SMALL, color=FAINT, ha="center", va="bottom")
    y = top
    for k, (row, label, frames, space) in enumerate(zip(rows, labels, clips, tall, strict=True)):
        canvas.text(MARGIN, y + space / 2, label, linespacing=LINE)
        for j, pixels in enumerate(as_rgb(frames)):
            made = j >= len(frames) - row.made
            frame, frame_width = (PALE_ORANGE if j >= len(frames) - row.beyond else ORANGE, 1.5) if made else (RULE, 0.5)
            x = left + j * (width + gap)
            canvas.image(shrink(pixels, width, height), x, y + (space - height) / 2, width, height, frame=frame, frame_width=frame_width)
        y += space + (GROUP_GAP if (k + 1) % pairs == 0 else GAP + 2)
    canvas.save(path)


def response_maps(path: str | Path, rows: Mapping[str, Any], names: Sequence[str], *, title: str = "", note: str = "") -> None:
    """What each latent says (a column each) of a thing at every place of the picture plane, in rows that may be models: (n, H, W) for each label.

    All maps of a row share a scale: blue below its middle, white there, red above; under each the standard deviation over places.
    """
    known_suffix(path)
    maps = {label: np.asarray(as_array(values), dtype=float) for label, values in rows.items()}
    for label, values in maps.items():
        if values.ndim != 3 or len(values) != len(names) or not np.isfinite(values).all():
            raise DataError(f"the maps of {label!r} must be finite and ({len(names)}, height, width), not shape {values.shape}.")
    width, height = cell_size(next(iter(maps.values())).shape, 2 * CELL)
    labels = [wrap(label, LABEL_WIDTH) for label in maps]
    left = MARGIN + max(text_width(label) for label in labels) + (12 if any(map(str.strip, labels)) else 0)
    pitch, above, below = width + 10, SMALL * LINE + 4, SMALL * LINE + 8
    right = left + len(names) * pitch - 10
    words, head = heading(title, right - MARGIN)
    last = SMALL * LINE + 4 if note else 0
    canvas = Canvas(right + MARGIN, MARGIN + head + above + len(maps) * (height + below) + last + MARGIN)
    put_heading(canvas, words)
    for k, name in enumerate(names):
        canvas.text(left + k * pitch + width / 2, MARGIN + head + above - 4, readable(name), size=SMALL, ha="center", va="bottom")
    for r, (label, values) in enumerate(zip(labels, maps.values(), strict=True)):
        y = MARGIN + head + above + r * (height + below)
        canvas.text(MARGIN, y + height / 2, label, linespacing=LINE, color=INK)
        centred = values - values.mean((1, 2), keepdims=True)
        largest = max(float(np.abs(centred).max()), 1e-9)
        for k, pixels in enumerate(np.rint(DIVERGING(0.5 + 0.5 * centred / largest)[..., :3] * 255).astype(np.uint8)):
            x = left + k * pitch
            canvas.image(shrink(pixels, width, height), x, y, width, height)
            canvas.text(x + width / 2, y + height + 3, f"std {number(values[k].std(), 2)}", size=SMALL, color=FAINT, ha="center", va="top")
    canvas.text(MARGIN, canvas.height - MARGIN, note, size=SMALL, color=FAINT, va="bottom")
    canvas.save(path)


def _clips(clips: Any, what: str) -> np.ndarray:
    """(K, T, C, H, W), uint8 or floats in [0, 1], to floats in [0, 1]."""
    array = as_array(clips)
    if array.ndim != 5:
        raise DataError(f"{what} must be (clips, frames, channels, height, width), not shape {array.shape}.")
    return as_images(array.reshape(-1, *array.shape[2:]), what).reshape(array.shape)
