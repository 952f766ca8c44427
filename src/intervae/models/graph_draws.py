"""The graphs that an answer of CT-VAE averages over."""

from __future__ import annotations

import torch

from intervae.causal.transition import CausalTransition, Draw


class Draws:
    """`number` draws of a layer, none for the expected graph. They are the same for the same seed and for every picture, so that what is said of one
    does not depend on those beside it.
    """

    def __init__(self, layer: CausalTransition, number: int, seed: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(seed)
        drawn = [layer.draw(1, generator, torch.device("cpu")) for _ in range(number)]
        self.drawn = [Draw(*(part.to(device) for part in draw)) for draw in drawn]

    def __call__(self, batch: int) -> list[Draw]:
        return [Draw(*(part.expand(batch, *part.shape[1:]) for part in draw)) for draw in self.drawn]


def rows_of(draw: Draw | None, rows: slice) -> Draw | None:
    return None if draw is None else Draw(*(part[rows] for part in draw))
