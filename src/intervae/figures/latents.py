"""Scatter plots of two latents and their prior, one panel per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import as_array
from intervae.figures.style import BLUE, FAINT, LINE, MARGIN, RULE, SMALL
from intervae.figures.text_layout import font, printable, wrap, wrap_title

SIDE, LEFT, BELOW, POINTS = 170.0, 40.0, 34.0, 1500


def prior_and_posterior(
    path: str | Path,
    panels: Mapping[str, tuple[Any, Any]],
    names: Sequence[str],
    *,
    title: str = "",
) -> None:
    """Draw the prior in grey and encoded data in blue, for two latents.

    Arguments:
        path: file to write.
        panels: label -> (draws of the prior (N, 2), encoded data (M, 2)).
        names: names of the two latents.
        title: title of the figure.

    All panels share their axes, which cover 99% of the points.
    """
    check_suffix(path)
    clouds = {
        label: tuple(np.asarray(as_array(cloud), dtype=float) for cloud in pair)
        for label, pair in panels.items()
    }
    for label, pair in clouds.items():
        if any(
            cloud.ndim != 2 or cloud.shape[1] != 2 or not len(cloud) or not np.isfinite(cloud).all()
            for cloud in pair
        ):
            shapes = ", ".join(str(cloud.shape) for cloud in pair)
            raise DataError(
                f"the points of {label!r} must be finite and (N, 2), not of shapes {shapes}."
            )
    labels = [wrap(label, SIDE) for label in clouds]
    words, head = wrap_title(title, len(clouds) * (SIDE + LEFT))
    above = SMALL * LINE * (2 + max(label.count("\n") for label in labels)) + 4
    legend = SMALL * LINE + 8
    canvas = Canvas(
        2 * MARGIN + len(clouds) * (SIDE + LEFT),
        MARGIN + head + legend + above + SIDE + BELOW + MARGIN,
    )
    canvas.title(words)
    for k, (word, colour) in enumerate(
        (("● draws of the prior", FAINT), ("● encoded test images", BLUE))
    ):
        canvas.text(MARGIN + 150 * k, MARGIN + head + legend / 2, word, size=SMALL, color=colour)
    points = np.concatenate([cloud for pair in clouds.values() for cloud in pair])
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    pad = 0.08 * (high - low)
    for k, (label, (prior, encoded)) in enumerate(zip(labels, clouds.values(), strict=True)):
        x, y = MARGIN + LEFT + k * (SIDE + LEFT), MARGIN + head + legend + above
        canvas.text(x, y - 6, label, weight="bold", va="bottom", linespacing=LINE)
        axes = canvas.panel(x, y, SIDE, SIDE)
        for cloud, colour, order in ((prior, RULE, 1), (encoded, BLUE, 2)):
            sample = cloud[np.random.default_rng(0).permutation(len(cloud))[:POINTS]]
            axes.scatter(
                sample[:, 0],
                sample[:, 1],
                s=5,
                color=colour,
                alpha=0.5,
                linewidths=0,
                rasterized=True,
                zorder=order,
            )
        axes.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(4))
        axes.set_xlabel(printable(names[0]), color=FAINT, fontproperties=font(SMALL), labelpad=3)
        if k == 0:
            axes.set_ylabel(
                printable(names[1]), color=FAINT, fontproperties=font(SMALL), labelpad=3
            )
    canvas.save(path)
