"""Figure of decoder=layers: what each layer paints of an image, alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from intervae import figures
from intervae.data import Dataset
from intervae.models.batches import spread_rows

if TYPE_CHECKING:
    from intervae.models.causal_vae.painting import PaintedConcepts

IMAGES = 6


def draw_layers(model: PaintedConcepts, data: Dataset, path: Path) -> None:
    """Draw test images, their reconstructions, the background, and each layer alone over grey."""
    images = data.test[spread_rows(len(data.test), IMAGES)].images
    latents = model.encode(images)
    pictures = model.abduct_picture(images)
    plain = model.decode(latents, **pictures).cpu()
    layers = model.paint_layers(latents, **pictures).cpu()  # background first
    x = images.cpu().float() / 255
    rows = []
    for k in range(len(images)):
        shown = torch.cat([x[k : k + 1], plain[k : k + 1], layers[k]]).numpy()
        rows.append(figures.ClipRow(f"test image {k + 1}", shown, generated=len(shown) - 1))
    names = ["\n".join([*layer.variables, f"{layer.explained:.0%}"]) for layer in model.layers]
    figures.clip_rows(
        path,
        rows,
        heads=["image", "all layers", "background", *names],
        title="Each layer alone: the variables that paint it, and which part of the deviation of "
        "the images from the background they explain",
    )
