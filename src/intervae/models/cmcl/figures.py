"""Figures of CMCL: where in the images the latent of each column is read off (Fig. 5)."""

from __future__ import annotations

from pathlib import Path

from intervae import figures
from intervae.data import Dataset, Split
from intervae.models.base import Model
from intervae.models.batches import spread_rows
from intervae.models.heat_maps import heat_map, link_column

IMAGES = 8  # columns of the figure


def draw_heat_maps(model: Model, data: Dataset, path: Path) -> None:
    """Draw Grad-CAM++ maps of the latent of each column over some test images."""
    title = (
        "Grad-CAM++, as in the paper; report.html also has maps against reference images, "
        "which find the place more often"
    )
    part = data.test[spread_rows(len(data.test), IMAGES)]
    figures.heat_maps(path, heat_map_rows(model, data, part), title=title)


def heat_map_rows(
    model: Model, data: Dataset, part: Split, *, block: int = -1
) -> list[figures.HeatMapRow]:
    """Return one row per column: the map of its latent over the images of `part`."""
    rows = []
    for i, variable in enumerate(data.variables):
        result = link_column(model, data, variable.name)
        labels = part.labels if model.needs_labels else None
        maps = heat_map(
            model, part.images, result.latent, sign=result.sign, block=block, labels=labels
        )
        values = [
            variable.categories[round(value)] if variable.categories else f"{value:.3g}"
            for value in part.labels[:, i].tolist()
        ]
        masks = part.fields["mask"].cpu().bool() if "mask" in part.fields else None
        label = f"{result.text}, map of {'-' if result.sign < 0 else ''}{result.latent}"
        rows.append(figures.HeatMapRow(label, part.images, maps, masks, values))
    return rows
