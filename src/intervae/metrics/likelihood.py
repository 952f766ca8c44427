"""How probable a model finds images: ELBO, importance-weighted bound (Burda et al. 2016, Eq. 8), and active units (ibid., sec. 5.2).

All come from log w = log p(x, z) - log q(z | x) with z drawn from q(z | x):
    ELBO = E[log w],    L_K = E[log (1/K) sum_k w_k],    ELBO = L_1 <= L_2 <= ... <= log p(x),
where L_K reaches log p(x) as K grows (if w is bounded). Values are nats per image, means over the images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement

LogWeights = Callable[[Any, Any, int, torch.Generator], Tensor]  # images (B, ...), labels (B, n), K, generator -> log w (K, B)
IMAGES_AT_ONCE = 8  # share a generator, so that the draws do not depend on how many samples are held at one time
ACTIVE_VARIANCE = 0.01


@dataclass(frozen=True)
class Bounds:
    """Per image, (N,): the ELBO, the importance-weighted bound, and how many of its samples count, (sum w)^2 / sum w^2."""

    elbo: np.ndarray
    importance_weighted: np.ndarray
    effective_samples: np.ndarray
    samples: int
    seed: int

    def measurements(self, **parameters: Any) -> list[Measurement]:
        """`elbo` and `log_likelihood` (the importance-weighted bound); the spread is the standard deviation over images."""
        n = len(self.elbo)
        both = {"samples": self.samples, "seed": self.seed, "unit": "nats per image", **parameters}
        more = {**both, "effective_samples": float(self.effective_samples.mean())}
        return [
            Measurement("elbo", float(self.elbo.mean()), n, {}, float(self.elbo.std()), both, True),
            Measurement("log_likelihood", float(self.importance_weighted.mean()), n, {}, float(self.importance_weighted.std()), more, True),
        ]


def likelihood_bounds(
    log_weights: LogWeights,
    images: Any,
    labels: Any = None,
    *,
    samples: int = 64,
    at_once: int = 256,
    seed: int = 0,
    images_at_once: int = IMAGES_AT_ONCE,
    device: str | torch.device = "cpu",
) -> Bounds:
    """Both bounds from the same draws, for any number of samples in bounded memory.

    Arguments:
        log_weights: answers (images (B, ...), labels (B, n) or None, K, generator) with K draws of log w, (K, B). It draws sample after
            sample, so that 2 calls for K samples draw what one call for 2 K does; the numbers then do not depend on `at_once`.
        images, labels: (N, ...) and (N, n); labels where the model wants them.
        samples: K of the bound; the ELBO is the mean over the same K.
        at_once: pairs of image and sample held at one time; `images_at_once` at least.
        images_at_once: images that share a generator.
        device: of that generator. The numbers depend on both; the defaults give the same ones everywhere, a GPU and hundreds of images are
            what thousands of samples for thousands of images want.
    """
    if samples < 1 or images_at_once < 1 or at_once < images_at_once:
        raise UsageError(f"samples={samples} must be 1 at least, and at_once={at_once} at least {images_at_once}.")
    if not len(images):
        raise DataError("there are no images to measure the likelihood of; give one at least.")
    if labels is not None and len(labels) != len(images):
        raise DataError(f"there are {len(images)} images and {len(labels)} rows of labels; give as many.")
    parts = []
    for block, first in enumerate(range(0, len(images), images_at_once)):
        rows = slice(first, first + images_at_once)
        generator = torch.Generator(device).manual_seed(int(np.random.SeedSequence((seed, block)).generate_state(1)[0]))
        some = None if labels is None else labels[rows]
        chunks = _drawn(log_weights, images[rows], some, samples, at_once // images_at_once, generator)
        parts.append(_stream(chunks, samples, first))
    elbo, bound, effective = np.concatenate(parts, axis=1)
    return Bounds(elbo, bound, effective, samples, seed)


def _drawn(log_weights: LogWeights, images: Any, labels: Any, samples: int, at_once: int, generator: torch.Generator) -> Iterator[np.ndarray]:
    """log w of a block of images, `at_once` samples at a time: (count, B) each."""
    for first in range(0, samples, at_once):
        count = min(at_once, samples - first)
        drawn = log_weights(images, labels, count, generator).detach().double().cpu().numpy()
        if drawn.shape != (count, len(images)):
            raise DataError(f"log_weights gave shape {drawn.shape} for {count} samples of {len(images)} images; (samples, images) is needed.")
        yield drawn


def _stream(chunks: Iterator[np.ndarray], samples: int, first_image: int) -> np.ndarray:
    """(3, B): ELBO, bound and effective samples; of all draws only running sums are kept."""
    total: Any = 0.0  # sum of log w
    log_sum: Any = -np.inf  # log sum w
    log_square: Any = -np.inf  # log sum w^2
    for drawn in chunks:
        fine = np.isfinite(drawn).all(0)
        if not fine.all():
            raise DataError(f"a log-weight of image {first_image + int(fine.argmin())} is not finite, so its likelihood cannot be bounded.")
        total = total + drawn.sum(0)
        log_sum = np.logaddexp(log_sum, np.logaddexp.reduce(drawn))
        log_square = np.logaddexp(log_square, np.logaddexp.reduce(2 * drawn))
    return np.stack([total / samples, log_sum - math.log(samples), np.exp(2 * log_sum - log_square)])


def elbo(log_weights: LogWeights, images: Any, labels: Any = None, *, samples: int = 64, at_once: int = 256, seed: int = 0) -> Measurement:
    """E[log w], estimated with `samples` draws for each image. Arguments as in `likelihood_bounds`."""
    return likelihood_bounds(log_weights, images, labels, samples=samples, at_once=at_once, seed=seed).measurements()[0]


def log_likelihood(log_weights: LogWeights, images: Any, labels: Any = None, *, samples: int = 64, at_once: int = 256, seed: int = 0) -> Measurement:
    """The importance-weighted bound log (1/K) sum_k w_k of log p(x) with K = `samples`. Arguments as in `likelihood_bounds`.

    The parameters hold the effective number of samples: near 1, a single draw decides and the bound is loose.
    """
    return likelihood_bounds(log_weights, images, labels, samples=samples, at_once=at_once, seed=seed).measurements()[1]


def active_units(means: Any, names: Sequence[str] = (), *, threshold: float = ACTIVE_VARIANCE) -> Measurement:
    """Latent dims that the encoder uses: those whose posterior mean has a variance over the data above `threshold`.

    A_j = Var_x(E_q(z|x)[z_j]), the number of j with A_j > 0.01.

    Arguments:
        means: (N, d), or (N, n, k) for n variables of k dims.
        names: of the n variables, for the count of each.
    """
    array = np.asarray(means.detach().cpu() if isinstance(means, Tensor) else means, dtype=np.float64)
    if array.ndim not in (2, 3) or len(array) < 2 or not np.isfinite(array).all():
        raise DataError(f"posterior means must be finite, (N, d) or (N, variables, dims) with two images at least, not {array.shape}.")
    if names and len(names) != array.shape[1]:
        raise DataError(f"{len(names)} names were given for {array.shape[1]} variables; give one each.")
    active = array.var(0) > threshold
    counts = active if active.ndim == 1 else active.sum(1)
    per_variable = {name: float(count) for name, count in zip(names, counts, strict=True)} if names else {}
    parameters = {"threshold": threshold, "units": int(active.size)}
    return Measurement("active_units", float(active.sum()), len(array), per_variable, None, parameters, True)
