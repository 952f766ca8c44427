"""The Gaussian posterior q(z | x) = N(mean, F F^T) with a full covariance, and its encoder."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.nets.images import MLPEncoder


class Posterior(NamedTuple):
    """q(z | x) = N(mean, F F^T): mean (B, d), factor F (B, d, d), log |det F| (B,)."""

    mean: Tensor
    factor: Tensor
    log_det: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """Draws mean + F noise (B, d) from standard normal noise (B, d)."""
        return self.mean + (self.factor @ noise[..., None])[..., 0]


class AlignedEncoder(nn.Module):
    """Images (B, C, H, W) to a Gaussian over d latents z', then the affine map z = T z' + t.

    T and t are buffers: they are set by `align`, not learned by gradients.
    """

    alignment: Tensor
    offset: Tensor
    log_det: Tensor

    def __init__(self, network: MLPEncoder, d: int) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("alignment", torch.eye(d))  # T
        self.register_buffer("offset", torch.zeros(d))  # t
        self.register_buffer("log_det", torch.zeros(()))  # log |det T|

    def forward(self, images: Tensor) -> Posterior:
        mean, factor, log_det = gaussian_head(self.network(images), len(self.offset))
        return Posterior(
            mean @ self.alignment.T + self.offset, self.alignment @ factor, log_det + self.log_det
        )

    def align(self, linear: Tensor, shift: Tensor) -> None:
        """Apply z -> linear z + shift after the present map."""
        self.alignment.copy_(linear @ self.alignment)
        self.offset.copy_(linear @ self.offset + shift)
        self.log_det.copy_(torch.linalg.slogdet(self.alignment)[1])


def gaussian_head(features: Tensor, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (B, d), lower-triangular factor (B, d, d) and its log-determinant (B,).

    From features (B, 2 d) for a diagonal factor, or (B, d + d (d + 1) / 2) for a full one.
    """
    mean, log_diagonal, below = features.split([d, d, features.shape[1] - 2 * d], dim=1)
    log_diagonal = log_diagonal.clamp(-8, 4)
    factor = torch.diag_embed(log_diagonal.exp())
    if below.shape[1]:
        rows, columns = torch.tril_indices(d, d, -1, device=features.device)
        cells = functional.one_hot(rows * d + columns, d * d).to(features.dtype)  # (below, d^2)
        factor = factor + (below @ cells).unflatten(1, (d, d))
    return mean, factor, log_diagonal.sum(1)


def kl_isotropic(posterior: Posterior) -> Tensor:
    """KL(N(mean, F F^T) || N(0, I)), (B,)."""
    d = posterior.mean.shape[1]
    squares = posterior.factor.square().sum((1, 2)) + posterior.mean.square().sum(1)
    return 0.5 * (squares - d) - posterior.log_det
