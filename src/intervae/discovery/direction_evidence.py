"""Evidence on the direction between two variables: three noise models, fitted in both directions.

    additive             y = f(x) + e                      (Hoyer et al. 2009)
    post-nonlinear       S(y) = f(x) + e, S monotone       (Zhang & Hyvarinen 2009)
    heteroscedastic      y = f(x) + s(x) e                 (Immer et al. 2023)

Each model is fitted as x -> y and as y -> x. Its assumption, noise independent of the cause, is
tested by HSIC, and the log-likelihoods of both directions are compared. Other parents enter as
additional smooth terms. Shapes: N rows.
"""

from __future__ import annotations

import numpy as np

from intervae.discovery.kernels import CentredKernel, decades, gaussian_kernel, hsic_p_value
from intervae.discovery.spline_likelihood import (
    candidate_bases,
    density_log_likelihood,
    fit_monotone_map,
    natural_spline_basis,
    residuals,
    standardise,
)

MODELS = ("additive", "post-nonlinear", "heteroscedastic")
FEATURES = (
    *(f"{model}: independence" for model in MODELS),
    *(f"{model}: likelihood" for model in MODELS),
    "best model: likelihood",
    "best model: independence",
    "all models: likelihood",
)
"""What `evidence_features` returns; each is positive for first -> second."""
NATS = 3.0  # difference of log-likelihoods that counts in full; larger ones count by logarithm
LOG_CHI_SQUARED = 1.27  # -E[log e^2] of a standard Gaussian e
SMALLEST_SCALE = 1e-3  # of the noise of the heteroscedastic model, in standard deviations


def direction_evidence(
    x: np.ndarray, y: np.ndarray, others: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Fit the three models as x -> y and as y -> x, both (N,), given `others` (N, k).

    Returns:
        (2, 3) decades of evidence against independent noise and (2, 3) log-likelihoods of both
        variables, of x -> y first, in the order of `MODELS`.
    """
    x, y = standardise(x), standardise(y)
    terms = np.ones((len(x), 1))
    if others is not None and others.shape[1]:
        terms = np.concatenate([natural_spline_basis(standardise(v)) for v in others.T], axis=1)
    fits = [_fit_models(x, y, terms), _fit_models(y, x, terms)]
    roots = [density_log_likelihood(residuals(terms, v)) for v in (x, y)]
    evidence = np.array([fit[0] for fit in fits])
    likelihood = np.array([np.array(fit[1]) + root for fit, root in zip(fits, roots, strict=True)])
    return evidence, likelihood


def evidence_features(evidence: np.ndarray, likelihood: np.ndarray) -> np.ndarray:
    """Return the `FEATURES` (9,) of `direction_evidence`; swapping the variables negates them."""
    against = np.log1p(evidence)
    independence = against[1] - against[0]
    nats = np.arcsinh((likelihood[0] - likelihood[1]) / NATS)
    best = np.arcsinh((likelihood[0].max() - likelihood[1].max()) / NATS)
    accepted = against[1].min() - against[0].min()
    agree = abs(np.sign(nats).sum()) == len(nats)
    common = np.sign(nats[0]) * np.abs(nats).min() if agree else 0.0
    return np.array([*independence, *nats, best, accepted, common])


def _fit_models(
    cause: np.ndarray, effect: np.ndarray, terms: np.ndarray
) -> tuple[list[float], list[float]]:
    """Decades against independence and log-likelihood of the effect, for each of `MODELS`."""
    curves = candidate_bases(cause, effect)
    bases = [(np.concatenate([terms, basis], axis=1), penalty) for basis, penalty in curves]
    basis, penalty = bases[-1]
    noise = residuals(basis, effect)
    additive = density_log_likelihood(noise) - penalty
    maps = [fit_monotone_map(effect, basis) for basis, _ in bases]
    scores = [fit[0] - bases[i][1] for i, fit in enumerate(maps)]
    best = int(np.argmax(scores))
    scaled, log_scale = _fit_scale(basis, natural_spline_basis(cause), effect, noise)
    size = 0.5 * natural_spline_basis(cause).shape[1] * np.log(len(effect))
    heteroscedastic = density_log_likelihood(scaled) - float(log_scale.sum()) - penalty - size
    noises = (noise, maps[best][1], scaled)
    kernel = _kernel(cause)
    evidence = [decades(hsic_p_value(_kernel(e), kernel)) for e in noises]
    return evidence, [additive, scores[best], heteroscedastic]


def _fit_scale(
    basis: np.ndarray, scale_basis: np.ndarray, effect: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Noise (N,) of the heteroscedastic model and its log scale (N,), by reweighting."""
    smallest = np.log(SMALLEST_SCALE)
    log_scale = np.zeros(len(effect))
    for _ in range(3):
        squares = np.log(noise**2 + SMALLEST_SCALE**2)
        fitted = squares - residuals(scale_basis, squares)
        log_scale = np.maximum((fitted + LOG_CHI_SQUARED) / 2, smallest)
        weights = np.exp(-log_scale)
        solution = np.linalg.lstsq(basis * weights[:, None], effect * weights, rcond=None)[0]
        noise = effect - basis @ solution
    return noise * np.exp(-log_scale), log_scale


def _kernel(values: np.ndarray) -> CentredKernel:
    return CentredKernel.from_kernel(gaussian_kernel(values))
