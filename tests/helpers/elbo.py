"""Reference for the evidence lower bound of a VAE, with torch's own distributions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Laplace, Normal

from intervae.data import Batch


def reference_draw(
    model: Any, batch: Batch, likelihood: str, scale: float, seed: int = 5
) -> tuple[Normal, Tensor, Tensor, Distribution]:
    """q(z | x), a draw z (8, 3, 2) of it, the decoder's output, and p(x | z).

    For 8 images and 3 latents of 2 dims.
    """
    features = model.encoder(batch["images"]).reshape(8, 2, 3, 2)
    q = Normal(features[:, 0], torch.exp(features[:, 1] / 2))
    z = q.loc + q.scale * torch.randn((8, 3, 2), generator=torch.Generator().manual_seed(seed))
    output = model.decoder(z.reshape(8, 6))
    p: dict[str, Distribution] = {
        "bernoulli": Bernoulli(logits=output, validate_args=False),
        "gaussian": Normal(torch.sigmoid(output), scale),
        "laplace": Laplace(torch.sigmoid(output), scale),
    }
    return q, z, output, p[likelihood]
