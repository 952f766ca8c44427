"""ELBO, importance-weighted bound (Burda et al. 2016, Eq. 8) and active units (ibid., sec. 5.2).

The bounds are means of log w = log p(x, z) - log q(z | x) with z drawn from q(z | x):
    ELBO = E[log w],    L_K = E[log (1/K) sum_k w_k],    ELBO = L_1 <= L_2 <= ... <= log p(x).
L_K converges to log p(x) as K grows if w is bounded. Values are nats per image, means over images.
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

# images (B, ...), labels (B, n), K, generator -> log w (K, B)
LogWeights = Callable[[Any, Any, int, torch.Generator], Tensor]
IMAGES_AT_ONCE = 8  # images that share a generator
ACTIVE_VARIANCE = 0.01


@dataclass(frozen=True)
class LikelihoodBounds:
    """Bounds per image, (N,): ELBO, importance-weighted bound, and its effective sample size.

    The effective sample size is (sum w)^2 / sum w^2.
    """

    elbo: np.ndarray
    importance_weighted: np.ndarray
    effective_samples: np.ndarray
    samples: int
    seed: int

    def measurements(self, **parameters: Any) -> list[Measurement]:
        """Return `elbo` and `log_likelihood`, the importance-weighted bound.

        The spread is the standard deviation over images.
        """
        common = {
            "samples": self.samples,
            "seed": self.seed,
            "unit": "nats per image",
            **parameters,
        }

        def result(metric: str, values: np.ndarray, **more: Any) -> Measurement:
            return Measurement(
                metric,
                float(values.mean()),
                len(values),
                spread=float(values.std()),
                parameters={**common, **more},
                higher_is_better=True,
            )

        effective = float(self.effective_samples.mean())
        return [
            result("elbo", self.elbo),
            result("log_likelihood", self.importance_weighted, effective_samples=effective),
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
) -> LikelihoodBounds:
    """Return both bounds from the same draws, in bounded memory for any number of samples.

    Arguments:
        log_weights: function of (images (B, ...), labels (B, n) or None, K, generator) to K draws
            of log w, (K, B). It draws sample after sample, so that two calls for K samples draw
            the same as one call for 2 K, and the result does not depend on `at_once`.
        images, labels: (N, ...) and (N, n); labels for models that need them.
        samples: K of the bound; the ELBO is the mean over the same K.
        at_once: pairs of image and sample in memory; `images_at_once` at least.
        images_at_once: images that share a generator. The numbers depend on it.
        device: of the generator. The numbers depend on it. The defaults give the same numbers on
            every machine; a GPU and hundreds of images at once are faster.
    """
    if samples < 1 or images_at_once < 1 or at_once < images_at_once:
        raise UsageError(
            f"samples={samples} must be 1 at least, "
            f"and at_once={at_once} at least {images_at_once}."
        )
    if not len(images):
        raise DataError("there are no images to measure the likelihood of; give one at least.")
    if labels is not None and len(labels) != len(images):
        raise DataError(
            f"there are {len(images)} images and {len(labels)} rows of labels; give as many."
        )
    blocks = []
    for block, first in enumerate(range(0, len(images), images_at_once)):
        rows = slice(first, first + images_at_once)
        generator = torch.Generator(device).manual_seed(
            int(np.random.SeedSequence((seed, block)).generate_state(1)[0])
        )
        chunks = _draw_chunks(
            log_weights,
            images[rows],
            None if labels is None else labels[rows],
            samples,
            at_once // images_at_once,
            generator,
        )
        blocks.append(_accumulate(chunks, samples, first))
    elbo, bound, effective = np.concatenate(blocks, axis=1)
    return LikelihoodBounds(elbo, bound, effective, samples, seed)


def _draw_chunks(
    log_weights: LogWeights,
    images: Any,
    labels: Any,
    samples: int,
    at_once: int,
    generator: torch.Generator,
) -> Iterator[np.ndarray]:
    """Yield log w of a block of images, at most `at_once` samples at a time: (count, B)."""
    for first in range(0, samples, at_once):
        count = min(at_once, samples - first)
        drawn = log_weights(images, labels, count, generator).detach().double().cpu().numpy()
        if drawn.shape != (count, len(images)):
            raise DataError(
                f"log_weights returned shape {drawn.shape} for {count} samples of {len(images)} "
                "images; (samples, images) is needed."
            )
        yield drawn


def _accumulate(chunks: Iterator[np.ndarray], samples: int, first_image: int) -> np.ndarray:
    """Return ELBO, bound and effective samples, (3, B), from running sums over the draws."""
    total: Any = 0.0  # sum of log w
    log_sum: Any = -np.inf  # log sum w
    log_square: Any = -np.inf  # log sum w^2
    for drawn in chunks:
        finite = np.isfinite(drawn).all(0)
        if not finite.all():
            raise DataError(
                f"a log-weight of image {first_image + int(finite.argmin())} is not finite, "
                "so its likelihood cannot be bounded."
            )
        total = total + drawn.sum(0)
        log_sum = np.logaddexp(log_sum, np.logaddexp.reduce(drawn))
        log_square = np.logaddexp(log_square, np.logaddexp.reduce(2 * drawn))
    return np.stack(
        [total / samples, log_sum - math.log(samples), np.exp(2 * log_sum - log_square)]
    )


def elbo(
    log_weights: LogWeights,
    images: Any,
    labels: Any = None,
    *,
    samples: int = 64,
    at_once: int = 256,
    seed: int = 0,
) -> Measurement:
    """Return E[log w], estimated with `samples` draws per image, as in `likelihood_bounds`."""
    return likelihood_bounds(
        log_weights, images, labels, samples=samples, at_once=at_once, seed=seed
    ).measurements()[0]


def log_likelihood(
    log_weights: LogWeights,
    images: Any,
    labels: Any = None,
    *,
    samples: int = 64,
    at_once: int = 256,
    seed: int = 0,
) -> Measurement:
    """Return the importance-weighted bound log (1/K) sum_k w_k of log p(x) with K = `samples`.

    Arguments as in `likelihood_bounds`. The parameters hold the effective number of samples: near 1
    the bound is loose.
    """
    return likelihood_bounds(
        log_weights, images, labels, samples=samples, at_once=at_once, seed=seed
    ).measurements()[1]


def active_units(
    means: Any, names: Sequence[str] = (), *, threshold: float = ACTIVE_VARIANCE
) -> Measurement:
    """Return the number of latent dims j with A_j = Var_x(E_q(z|x)[z_j]) > `threshold`.

    Arguments:
        means: posterior means (N, d), or (N, n, k) for n variables of k dims.
        names: of the n variables, for a count per variable.
    """
    array = np.asarray(
        means.detach().cpu() if isinstance(means, Tensor) else means, dtype=np.float64
    )
    if array.ndim not in (2, 3) or len(array) < 2 or not np.isfinite(array).all():
        raise DataError(
            "posterior means must be finite, (N, d) or (N, variables, dims) with two images at "
            f"least, not {array.shape}."
        )
    if names and len(names) != array.shape[1]:
        raise DataError(
            f"{len(names)} names were given for {array.shape[1]} variables; give one each."
        )
    active = array.var(0) > threshold
    counts = active if active.ndim == 1 else active.sum(1)
    per_variable = (
        {name: float(count) for name, count in zip(names, counts, strict=True)} if names else {}
    )
    parameters = {"threshold": threshold, "units": int(active.size)}
    return Measurement(
        "active_units", float(active.sum()), len(array), per_variable, None, parameters, True
    )
