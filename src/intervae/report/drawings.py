"""Drawings that stand inside a page: pictures as PNG in the text itself, graphs and curves as SVG in the page's own colours, light and dark."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO

import numpy as np
from PIL import Image

from intervae.figures.style import number, readable
from intervae.report.findings import Findings, LinkFound

LONGEST_NAME = 26  # characters of a name in a drawing; the whole of it is its tooltip
CHARACTER = 7.4  # pixels, of the widest usual letters at the size of a node
ROW, NODE, GAP = 46.0, 30.0, 250.0  # of the graph: pitch of the rows, height of a node, room for the arrows
LARGEST_SIDE = 256  # pixels of a picture in the page


def words(text: object) -> str:
    """Text of anybody, safe inside HTML and SVG and on one line."""
    return escape(readable(text), quote=True)


# ---- pictures -------------------------------------------------------------------------------------------------------
def png(pixels: np.ndarray) -> str:
    """(H, W, 3) uint8 as the address of an image that is its own file; large ones are shrunk."""
    picture = Image.fromarray(pixels)
    longest = max(picture.size)
    if longest > LARGEST_SIDE:
        size = (max(1, round(side * LARGEST_SIDE / longest)) for side in picture.size)
        picture = picture.resize(tuple(size), Image.Resampling.LANCZOS)  # type: ignore[arg-type]
    buffer = BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def picture_row(pictures: Sequence[np.ndarray | None], captions: Sequence[str], label: str, alternative: str) -> str:
    """A line of a table of pictures (H, W, 3), each under its caption where it has one; nothing for None."""
    cells = []
    for pixels, caption in zip(pictures, captions, strict=True):
        above = f"<span>{words(caption)}</span>" if caption else ""
        image = "" if pixels is None else f'<img src="{png(pixels)}" alt="{words(f"{alternative} {caption}")}">'
        cells.append(f"<td>{above}{image}</td>")
    return f'<tr><th scope="row">{words(label)}</th>{"".join(cells)}</tr>'


# ---- the graph ------------------------------------------------------------------------------------------------------
def graph_svg(found: Findings) -> str:
    """The linked columns at the left and latents at the right, arrows from cause to effect with strength and confidence on them.

    A link whose direction cannot be told is a dashed line without a head.
    """
    columns = [v.name for v in found.columns]
    left = list(dict.fromkeys(node for link in found.links for node in (link.cause, link.effect) if node in columns))
    right = list(dict.fromkeys(node for link in found.links for node in (link.cause, link.effect) if node not in columns))
    places = {node: float(k) for k, node in enumerate(left)}
    wished = {
        node: np.mean([places[o] for link in found.of(node) for o in (link.cause, link.effect) if o in places] or [len(left)]) for node in right
    }
    right.sort(key=lambda node: wished[node])
    widths = [max([60.0, *(CHARACTER * len(shorten(node)) + 28 for node in side)]) for side in (left, right)]
    aside = 54.0 if any((link.cause in columns) == (link.effect in columns) for link in found.links) else 0.0
    width, height = widths[0] + GAP + widths[1] + 2 * aside + 4, ROW * max(len(left), len(right)) + 24
    boxes = {node: (aside + 2, _top(k, len(left), height), widths[0]) for k, node in enumerate(left)}
    boxes |= {node: (aside + 2 + widths[0] + GAP, _top(k, len(right), height), widths[1]) for k, node in enumerate(right)}
    strongest = max(link.strength for link in found.links)
    parts = [_arrow(link, boxes, columns, strongest, aside) for link in found.links]
    parts += [_node(node, *boxes[node], "column" if node in columns else "latent") for node in (*left, *right)]
    heads = f'<text class="head" x="{aside + 2 + widths[0] / 2:.0f}" y="12">table</text>'
    heads += f'<text class="head" x="{aside + 2 + widths[0] + GAP + widths[1] / 2:.0f}" y="12">picture</text>'
    told = "; ".join(f"{link.cause} {'causes' if link.directed else 'goes with'} {link.effect}" for link in found.links)
    markers = "".join(
        f'<marker id="tip-{kind}" class="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z"/></marker>'
        for kind in ("acts", "shows", "same")
    )
    return (
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{words(told)}">'
        f"<defs>{markers}</defs>{heads}{''.join(parts)}</svg>"
    )


def shorten(name: str) -> str:
    text = readable(name)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def _top(k: int, count: int, height: float) -> float:
    return 20 + (height - 24 - ROW * count) / 2 + ROW * k + (ROW - NODE) / 2


def _node(name: str, x: float, y: float, width: float, kind: str) -> str:
    return (
        f'<g class="node {kind}"><title>{words(name)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{NODE}" rx="7"/>'
        f'<text x="{x + width / 2:.1f}" y="{y + NODE / 2 + 4.5:.1f}">{words(shorten(name))}</text></g>'
    )


def _arrow(link: LinkFound, boxes: dict[str, tuple[float, float, float]], columns: Sequence[str], strongest: float, aside: float) -> str:
    (x1, y1, w1), (x2, y2, w2) = boxes[link.cause], boxes[link.effect]
    y1, y2 = y1 + NODE / 2, y2 + NODE / 2
    if x1 == x2:  # both in the table, or both in the picture
        kind, side = "same", (-1 if link.cause in columns else 1)
        edge = x1 if side < 0 else x1 + w1
        path = f"M{edge:.1f} {y1:.1f} C{edge + side * aside:.1f} {y1:.1f} {edge + side * aside:.1f} {y2:.1f} {edge:.1f} {y2:.1f}"
        middle = (edge + side * 0.75 * aside, (y1 + y2) / 2)
    else:
        kind = "acts" if link.cause in columns else "shows"
        start, end = (x1 + w1 + 2, x2 - 3) if x1 < x2 else (x1 - 2, x2 + w2 + 3)
        reach = (end - start) / 3
        path = f"M{start:.1f} {y1:.1f} C{start + reach:.1f} {y1:.1f} {end - reach:.1f} {y2:.1f} {end:.1f} {y2:.1f}"
        middle = ((start + end) / 2, (y1 + y2) / 2)
    sure = 1.0 if link.present is None else link.present * ((link.direction or 0.0) if link.directed else 1.0)
    style = f"stroke-width:{1.2 + 2.2 * link.strength / strongest:.2f};opacity:{0.35 + 0.65 * sure:.2f}"
    style += "" if link.directed else ";stroke-dasharray:6 4"
    kind, tip = (kind, f' marker-end="url(#tip-{kind})"') if link.directed else ("open", "")
    label = f"{link.strength:.2f}" + ("" if link.present is None else f" · {sure:.0%}")
    half = 3.4 * len(label) + 5
    return (
        f'<g class="edge {kind}"><path d="{path}"{tip} style="{style}"/>'
        f'<rect class="under" x="{middle[0] - half:.1f}" y="{middle[1] - 9:.1f}" width="{2 * half:.1f}" '
        f'height="18" rx="4"/><text x="{middle[0]:.1f}" y="{middle[1] + 4:.1f}">{label}</text></g>'
    )


# ---- curves ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Axis:
    """One axis of a plot: what it shows, from where to where, and the words at some of its values."""

    name: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()

    @classmethod
    def over(cls, name: str, values: np.ndarray) -> Axis:
        low, high = float(values.min()), float(values.max())
        pad = 0.05 * (high - low) or 1.0
        return cls(name, low - pad, high + pad, [(value, number(value)) for value in (low, (low + high) / 2, high)])

    @classmethod
    def of_codes(cls, name: str, categories: Sequence[str]) -> Axis:
        shown = range(len(categories)) if len(categories) <= 8 else (0, len(categories) - 1)
        return cls(name, -0.5, len(categories) - 0.5, [(float(k), shorten(categories[k])[:12]) for k in shown])

    def at(self, values: np.ndarray) -> np.ndarray:
        """0 to 1."""
        return (values - self.low) / (self.high - self.low)


def scatter_svg(x: Axis, y: Axis, points: np.ndarray, curve: np.ndarray | None, steps: bool, what: str) -> str:
    """Points (N, 2) of cause and effect and the model's own curve (K, 2) through them; `steps` draws a dash at each of its points instead."""
    left, top, width, height = 64.0, 8.0, 270.0, 176.0

    def place(values: np.ndarray) -> np.ndarray:
        return np.stack([left + width * x.at(values[:, 0]), top + height * (1 - y.at(values[:, 1]))], axis=1)

    parts = [f'<rect class="frame" x="{left}" y="{top}" width="{width}" height="{height}"/>']
    for value, text in x.ticks:
        at = left + width * float(x.at(np.array(value)))
        parts.append(f'<text class="tick" x="{at:.1f}" y="{top + height + 15:.1f}" text-anchor="middle">{words(text)}</text>')
    for value, text in y.ticks:
        at = top + height * (1 - float(y.at(np.array(value))))
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{at + 3.5:.1f}" text-anchor="end">{words(text)}</text>')
    parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2"/>' for a, b in place(points)]
    if curve is not None:
        line = place(np.stack([curve[:, 0], curve[:, 1].clip(y.low, y.high)], axis=1))
        drawn = [f"M{a - 12:.1f} {b:.1f}h24" for a, b in line] if steps else ["M" + " ".join(f"{a:.1f} {b:.1f}" for a, b in line)]
        parts.append(f'<path class="curve" d="{"".join(drawn)}"/>')
    parts.append(f'<text class="name" x="{left + width / 2:.1f}" y="{top + height + 32:.1f}">{words(shorten(x.name))}</text>')
    turned = f"rotate(-90 12 {top + height / 2:.1f})"
    parts.append(f'<text class="name" x="12" y="{top + height / 2:.1f}" transform="{turned}">{words(shorten(y.name))}</text>')
    size = f'viewBox="0 0 {left + width + 12:.0f} {top + height + 40:.0f}" width="{left + width + 12:.0f}"'
    return f'<svg class="plot" {size} role="img" aria-label="{words(what)}">{"".join(parts)}</svg>'
