"""Principal components by subspace iteration (Halko et al. 2011) and independent ones by FastICA (Hyvarinen 1999), for samples of many values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

SPARE = 20  # directions that are carried along, so that the last wanted one converges too
MOST_PASSES = 60  # over the samples
SETTLED = 1e-6  # relative change of the variances at which the iteration ends


class Principal(NamedTuple):
    """The directions of the largest variance."""

    mean: Tensor  # (P,)
    components: Tensor  # (n, P), orthonormal, the largest variance first, the largest loading of each positive
    variances: Tensor  # (n,)
    total: float  # variance of all P values together


def principal_components(samples: Callable[[], Iterator[Tensor]], n: int, seed: int) -> Principal:
    """The first `n` principal components of M samples of P values.

    A covariance of P x P costs M P^2; here a pass costs M P (n + SPARE), and only one chunk of the samples is in memory.

    Arguments:
        samples: yields the samples (b, P), chunk after chunk, the same each time it is called; `n` is at most M and P.
    """
    count, mean, square = _moments(samples)
    start = torch.randn(len(mean), min(n + SPARE, count, len(mean)), generator=torch.Generator().manual_seed(seed))
    basis = torch.linalg.qr(start.to(mean.device))[0]  # (P, d)
    before = torch.zeros(n, dtype=torch.float64)
    for _ in range(MOST_PASSES):
        image = torch.zeros_like(basis)  # covariance @ basis
        for chunk in samples():
            image += chunk.T @ (chunk @ basis - mean @ basis) / count  # the right factor has mean 0, so the left one need not be centred
        small = (basis.T @ image).double().cpu()
        variances, rotation = torch.linalg.eigh((small + small.T) / 2)  # ascending
        found = variances.flip(0)[:n].clamp(min=0)
        if bool(((found - before).abs() <= SETTLED * found).all()):
            break
        before, used = found, basis
        basis = torch.linalg.qr(image)[0]
    else:
        basis = used  # the last one that was measured
    components = (basis @ rotation.flip(1)[:, :n].to(basis)).T
    largest = components.gather(1, components.abs().argmax(1, keepdim=True))
    return Principal(mean, components * largest.sign(), found.to(mean), square - mean.double().square().sum().item())


def _moments(samples: Callable[[], Iterator[Tensor]]) -> tuple[int, Tensor, float]:
    """Number, mean (P,) and mean squared length of the samples."""
    count, total, square = 0, torch.zeros(()), 0.0
    for chunk in samples():
        count += len(chunk)
        total = total.to(chunk.device) + chunk.sum(0).double()
        square += torch.linalg.vector_norm(chunk).double().square().item()
    return count, (total / count).float(), square / count


class Independent(NamedTuple):
    """How FastICA ended."""

    rotation: Tensor  # (n, n), orthogonal: sources = rotation @ whitened
    iterations: int
    change: float  # of the last iteration: 0 where no source moved any more, at most 1


def fast_ica(whitened: Tensor, *, seed: int, tolerance: float, iterations: int) -> Independent:
    """Rotate whitened samples (M, n) into sources that are as little Gaussian as can be: contrast log cosh, symmetric decorrelation."""
    white = whitened.double().cpu()
    n = white.shape[1]
    rotation = _orthogonal(torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    change, step = 1.0, 0
    while step < iterations and change > tolerance:
        step += 1
        squashed = torch.tanh(white @ rotation.T)  # (M, n)
        after = _orthogonal(squashed.T @ white / len(white) - (1 - squashed.square()).mean(0)[:, None] * rotation)
        change = ((after * rotation).sum(1).abs() - 1).abs().max().item()
        rotation = after
    return Independent(rotation, step, change)


def _orthogonal(matrix: Tensor) -> Tensor:
    """The nearest orthogonal matrix, (W W^T)^-1/2 W."""
    left, _, right = torch.linalg.svd(matrix)
    return left @ right
