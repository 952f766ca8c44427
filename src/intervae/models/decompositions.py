"""PCA by subspace iteration (Halko et al. 2011) and FastICA (Hyvarinen 1999)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

SPARE_DIRECTIONS = 20  # iterated beyond the n requested, so that the last of those converges too
MAX_PASSES = 60  # over the samples
TOLERANCE = 1e-6  # relative change of the variances at which the iteration stops


class PrincipalComponents(NamedTuple):
    """Directions of the largest variance."""

    mean: Tensor  # (P,)
    components: Tensor  # (n, P), orthonormal, by falling variance; largest loadings positive
    variances: Tensor  # (n,)
    total: float  # variance of all P values together


def principal_components(
    samples: Callable[[], Iterator[Tensor]], n: int, seed: int
) -> PrincipalComponents:
    """Return the first `n` principal components of M samples of P values.

    A covariance matrix would cost M P^2. A pass costs M P (n + SPARE_DIRECTIONS), and only one
    chunk of the samples is in memory.

    Arguments:
        samples: yields the samples (b, P) in chunks, the same at every call.
        n: at most M and P.
    """
    count, mean, square = _moments(samples)
    start = torch.randn(
        len(mean),
        min(n + SPARE_DIRECTIONS, count, len(mean)),
        generator=torch.Generator().manual_seed(seed),
    )
    basis = torch.linalg.qr(start.to(mean.device))[0]  # (P, d)
    previous = torch.zeros(n, dtype=torch.float64)
    for _ in range(MAX_PASSES):
        image = torch.zeros_like(basis)  # covariance @ basis
        for chunk in samples():
            # the right factor has mean 0, so the left one need not be centred
            image += chunk.T @ (chunk @ basis - mean @ basis) / count
        small = (basis.T @ image).double().cpu()
        eigenvalues, rotation = torch.linalg.eigh((small + small.T) / 2)  # ascending
        variances = eigenvalues.flip(0)[:n].clamp(min=0)
        if bool(((variances - previous).abs() <= TOLERANCE * variances).all()):
            break
        previous, last_basis = variances, basis
        basis = torch.linalg.qr(image)[0]
    else:
        basis = last_basis  # the one that `rotation` belongs to
    components = (basis @ rotation.flip(1)[:, :n].to(basis)).T
    largest = components.gather(1, components.abs().argmax(1, keepdim=True))
    return PrincipalComponents(
        mean,
        components * largest.sign(),
        variances.to(mean),
        square - mean.double().square().sum().item(),
    )


def _moments(samples: Callable[[], Iterator[Tensor]]) -> tuple[int, Tensor, float]:
    """Return number, mean (P,) and mean squared norm of the samples."""
    count, total, square = 0, torch.zeros(()), 0.0
    for chunk in samples():
        count += len(chunk)
        total = total.to(chunk.device) + chunk.sum(0).double()
        square += torch.linalg.vector_norm(chunk).double().square().item()
    return count, (total / count).float(), square / count


class IndependentComponents(NamedTuple):
    """Result of FastICA."""

    rotation: Tensor  # (n, n), orthogonal: sources = rotation @ whitened
    iterations: int
    change: float  # of the last iteration: 0 (no source moved) to 1


def fast_ica(
    whitened: Tensor, *, seed: int, tolerance: float, iterations: int
) -> IndependentComponents:
    """Rotate whitened samples (M, n) to maximally non-Gaussian sources.

    The contrast is log cosh, with symmetric decorrelation.
    """
    white = whitened.double().cpu()
    n = white.shape[1]
    rotation = _orthogonal(
        torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    )
    change, step = 1.0, 0
    while step < iterations and change > tolerance:
        step += 1
        squashed = torch.tanh(white @ rotation.T)  # (M, n)
        after = _orthogonal(
            squashed.T @ white / len(white) - (1 - squashed.square()).mean(0)[:, None] * rotation
        )
        change = ((after * rotation).sum(1).abs() - 1).abs().max().item()
        rotation = after
    return IndependentComponents(rotation, step, change)


def _orthogonal(matrix: Tensor) -> Tensor:
    """Return the nearest orthogonal matrix, (W W^T)^-1/2 W."""
    left, _, right = torch.linalg.svd(matrix)
    return left @ right
