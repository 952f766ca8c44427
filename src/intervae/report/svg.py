"""SVG figures of the report: the graph, and scatter plots with the model's curve.

Colours come from the stylesheet of the page, so the figures follow its light and dark modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intervae.figures.text_layout import format_number
from intervae.report.findings import Findings, LinkFinding
from intervae.report.markup import escape_text, shorten

CHARACTER = 7.4  # pixels, width of a letter in a node
ROW, NODE, GAP = 46.0, 30.0, 250.0  # pixels: row pitch, height of a node, room for arrows
SIDE_GAP = 54.0  # pixels beside the nodes, for edges among columns or among latents

Box = tuple[float, float, float]  # left, top, width


# ---- graph ---------------------------------------------------------------------------------------
def graph_svg(findings: Findings) -> str:
    """Graph of the links: columns on the left, latents on the right, arrows from cause to effect.

    Edges are labelled with strength and confidence. A link without an identifiable direction is
    a dashed line without an arrow head.
    """
    columns = [v.name for v in findings.columns]
    nodes = list(dict.fromkeys(node for link in findings.links for node in link.nodes))
    left = [node for node in nodes if node in columns]
    right = _order_by_partners([n for n in nodes if n not in columns], left, findings)
    widths = [
        max([60.0, *(CHARACTER * len(shorten(node)) + 28 for node in side)])
        for side in (left, right)
    ]
    same_side = any((link.cause in columns) == (link.effect in columns) for link in findings.links)
    margin = SIDE_GAP if same_side else 0.0
    width = widths[0] + GAP + widths[1] + 2 * margin + 4
    height = ROW * max(len(left), len(right)) + 24
    starts = margin + 2, margin + 2 + widths[0] + GAP
    boxes: dict[str, Box] = {}
    for side, start, side_width in zip((left, right), starts, widths, strict=True):
        for k, node in enumerate(side):
            boxes[node] = start, _top(k, len(side), height), side_width
    strongest = max(link.strength for link in findings.links)
    elements = [_edge(link, boxes, columns, strongest, margin) for link in findings.links]
    elements += [
        _node(node, boxes[node], "column" if node in columns else "latent")
        for node in (*left, *right)
    ]
    heads = "".join(
        f'<text class="head" x="{start + side_width / 2:.0f}" y="12">{text}</text>'
        for text, start, side_width in zip(("table", "image"), starts, widths, strict=True)
    )
    description = "; ".join(
        f"{link.cause} {'causes' if link.direction_identifiable else 'is linked to'} {link.effect}"
        for link in findings.links
    )
    return (
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'role="img" aria-label="{escape_text(description)}">'
        f"<defs>{_arrow_heads()}</defs>{heads}{''.join(elements)}</svg>"
    )


def _order_by_partners(latents: list[str], columns: list[str], findings: Findings) -> list[str]:
    """Sort latents by the mean position of the columns that they are linked to."""
    positions = {node: float(k) for k, node in enumerate(columns)}

    def mean_position(latent: str) -> float:
        linked = [n for link in findings.links_of(latent) for n in link.nodes if n in positions]
        return float(np.mean([positions[n] for n in linked] or [len(columns)]))

    return sorted(latents, key=mean_position)


def _arrow_heads() -> str:
    return "".join(
        f'<marker id="tip-{kind}" class="{kind}" viewBox="0 0 10 10" refX="9" refY="5" '
        f'markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" '
        f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z"/></marker>'
        for kind in ("acts", "shows", "same")
    )


def _top(k: int, nodes: int, height: float) -> float:
    return 20 + (height - 24 - ROW * nodes) / 2 + ROW * k + (ROW - NODE) / 2


def _node(name: str, box: Box, kind: str) -> str:
    x, y, width = box
    return (
        f'<g class="node {kind}"><title>{escape_text(name)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{NODE}" rx="7"/>'
        f'<text x="{x + width / 2:.1f}" y="{y + NODE / 2 + 4.5:.1f}">'
        f"{escape_text(shorten(name))}</text></g>"
    )


def _edge(
    link: LinkFinding,
    boxes: dict[str, Box],
    columns: Sequence[str],
    strongest: float,
    margin: float,
) -> str:
    (x1, y1, w1), (x2, y2, w2) = boxes[link.cause], boxes[link.effect]
    y1, y2 = y1 + NODE / 2, y2 + NODE / 2
    if x1 == x2:  # both columns, or both latents
        kind, sign = "same", (-1 if link.cause in columns else 1)
        edge = x1 if sign < 0 else x1 + w1
        bend = edge + sign * margin
        path = _curve((edge, y1), (bend, y1), (bend, y2), (edge, y2))
        middle = (edge + sign * 0.75 * margin, (y1 + y2) / 2)
    else:
        kind = "acts" if link.cause in columns else "shows"
        start, end = (x1 + w1 + 2, x2 - 3) if x1 < x2 else (x1 - 2, x2 + w2 + 3)
        third = (end - start) / 3
        path = _curve((start, y1), (start + third, y1), (end - third, y2), (end, y2))
        middle = ((start + end) / 2, (y1 + y2) / 2)
    confidence = 1.0
    if link.link_confidence is not None:
        confidence = link.link_confidence
        if link.direction_identifiable:
            confidence *= link.direction_confidence or 0.0
    stroke, opacity = 1.2 + 2.2 * link.strength / strongest, 0.35 + 0.65 * confidence
    style = f"stroke-width:{stroke:.2f};opacity:{opacity:.2f}"
    head = f' marker-end="url(#tip-{kind})"'
    if not link.direction_identifiable:
        kind, head, style = "open", "", f"{style};stroke-dasharray:6 4"
    label = f"{link.strength:.2f}"
    if link.link_confidence is not None:
        label += f" · {confidence:.0%}"
    half = 3.4 * len(label) + 5
    return (
        f'<g class="edge {kind}"><path d="{path}"{head} style="{style}"/>'
        f'<rect class="under" x="{middle[0] - half:.1f}" y="{middle[1] - 9:.1f}" '
        f'width="{2 * half:.1f}" height="18" rx="4"/>'
        f'<text x="{middle[0]:.1f}" y="{middle[1] + 4:.1f}">{label}</text></g>'
    )


def _curve(start: tuple[float, float], *controls: tuple[float, float]) -> str:
    """Path data of a cubic Bézier curve."""
    points = " ".join(f"{x:.1f} {y:.1f}" for x, y in controls)
    return f"M{start[0]:.1f} {start[1]:.1f} C{points}"


# ---- scatter plot --------------------------------------------------------------------------------
@dataclass(frozen=True)
class PlotAxis:
    """Axis of a plot: name, range, and labelled ticks."""

    name: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()

    @classmethod
    def of_numbers(cls, name: str, values: np.ndarray) -> PlotAxis:
        low, high = float(values.min()), float(values.max())
        pad = 0.05 * (high - low) or 1.0
        ticks = [(value, format_number(value)) for value in (low, (low + high) / 2, high)]
        return cls(name, low - pad, high + pad, ticks)

    @classmethod
    def of_categories(cls, name: str, categories: Sequence[str]) -> PlotAxis:
        last = len(categories) - 1
        codes = range(last + 1) if last < 8 else (0, last)
        ticks = [(float(k), shorten(categories[k])[:12]) for k in codes]
        return cls(name, -0.5, last + 0.5, ticks)

    def fraction(self, values: np.ndarray) -> np.ndarray:
        """Position of values along the axis, from 0 to 1."""
        return (values - self.low) / (self.high - self.low)


def scatter_svg(
    x: PlotAxis,
    y: PlotAxis,
    points: np.ndarray,
    curve: np.ndarray | None,
    dashes: bool,
    description: str,
) -> str:
    """Scatter plot of points (N, 2) with a curve (K, 2), or with a dash at each of its points."""
    left, top, width, height = 64.0, 8.0, 270.0, 176.0
    bottom, middle = top + height, top + height / 2

    def place(values: np.ndarray) -> np.ndarray:
        across, up = x.fraction(values[:, 0]), y.fraction(values[:, 1])
        return np.stack([left + width * across, top + height * (1 - up)], axis=1)

    elements = [f'<rect class="frame" x="{left}" y="{top}" width="{width}" height="{height}"/>']
    for value, text in x.ticks:
        at = left + width * float(x.fraction(np.array(value)))
        elements.append(_tick(at, bottom + 15, "middle", text))
    for value, text in y.ticks:
        at = top + height * (1 - float(y.fraction(np.array(value))))
        elements.append(_tick(left - 6, at + 3.5, "end", text))
    elements += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2"/>' for a, b in place(points)]
    if curve is not None:
        line = place(np.stack([curve[:, 0], curve[:, 1].clip(y.low, y.high)], axis=1))
        path = "M" + " ".join(f"{a:.1f} {b:.1f}" for a, b in line)
        if dashes:
            path = "".join(f"M{a - 12:.1f} {b:.1f}h24" for a, b in line)
        elements.append(f'<path class="curve" d="{path}"/>')
    names = escape_text(shorten(x.name)), escape_text(shorten(y.name))
    elements += [
        f'<text class="name" x="{left + width / 2:.1f}" y="{bottom + 32:.1f}">{names[0]}</text>',
        f'<text class="name" x="12" y="{middle:.1f}" '
        f'transform="rotate(-90 12 {middle:.1f})">{names[1]}</text>',
    ]
    size = (
        f'viewBox="0 0 {left + width + 12:.0f} {bottom + 40:.0f}" width="{left + width + 12:.0f}"'
    )
    label = escape_text(description)
    return f'<svg class="plot" {size} role="img" aria-label="{label}">{"".join(elements)}</svg>'


def _tick(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape_text(text)}</text>"
    )
