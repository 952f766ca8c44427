"""Stored noise of the graphs that a query of CT-VAE averages over; `sample_graph` uses it."""

from __future__ import annotations

import torch

from intervae.models.ct_vae.graph import GraphNetwork, GraphNoise


class GraphNoiseSamples:
    """Noise of `number` sampled graphs; none for the expected graph.

    The noise depends only on the seed and is the same for every image, so the answer about an image
    does not depend on the rest of its batch.
    """

    def __init__(self, network: GraphNetwork, number: int, seed: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(seed)
        samples = [network.draw_noise(1, generator, torch.device("cpu")) for _ in range(number)]
        self.samples = [GraphNoise(*(part.to(device) for part in noise)) for noise in samples]

    def for_batch(self, batch: int) -> list[GraphNoise | None]:
        """Return the noise of each sampled graph for `batch` images; [None] for none."""
        if not self.samples:
            return [None]
        return [
            GraphNoise(*(part.expand(batch, *part.shape[1:]) for part in noise))
            for noise in self.samples
        ]
