"""Colours, font sizes and distances of every figure, in canvas pixels."""

from __future__ import annotations

from matplotlib.colors import LinearSegmentedColormap

# blue, orange and SERIES but for its last two colours are from Okabe and Ito; all differ in
# lightness, for colour-blind readers
INK, FAINT, RULE, PALE = "#1f2328", "#6e7681", "#d0d7de", "#f1f4f8"
BLUE, ORANGE, RED = "#0072b2", "#e69f00", "#d7301f"
SERIES = (BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#8a5a2b", FAINT)
DIVERGING = LinearSegmentedColormap.from_list(
    "less, equal, more",
    ["#053061", "#2166ac", "#67a9cf", "#ffffff", "#ef8a62", "#c2301c", "#67001f"],
    N=257,
)  # an odd number of colours, so that 0 is white

TITLE, BODY, SMALL = 13.0, 11.0, 9.5  # font sizes
LINE = 1.3  # line height, in font sizes
MARGIN = 14
