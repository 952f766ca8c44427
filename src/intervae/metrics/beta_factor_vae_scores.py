"""Beta-VAE score (Higgins et al. 2017) and FactorVAE score (Kim and Mnih 2018).

Both use batches that share the value of one factor, drawn from arrays (rows with the same value) or
from a simulator (new images with the factor fixed).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.codes_and_factors import Kinds, check_codes_and_factors
from intervae.metrics.factor_sampling import (
    Draw,
    FactorSampler,
    Representation,
    Sample,
    SimulatorSampler,
    TableSampler,
)
from intervae.metrics.pair_points import chunks_of_points, pair_points


def beta_vae_score(
    codes: Any,
    factors: Any,
    *,
    batch: int = 64,
    training: int = 10_000,
    test: int = 5_000,
    bins: int = 20,
    seed: int = 0,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Return the accuracy, in [0, 1], of predicting which factor pairs of samples share.

    A point is the mean of |code - code'| over `batch` pairs of different rows with the same value
    of one factor. A logistic regression on the standardised points predicts the factor; chance is
    1/m. Values that only one row has are left out.

    Arguments:
        batch: pairs per point.
        training, test: points to fit and to score the regression.
        bins: number of equal-width bins of continuous factors.
        codes, factors, names, kinds, dims: see `codes_and_factors.check_codes_and_factors`.
    """
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    return _beta_vae_score(TableSampler(samples, bins), batch, training, test, seed)


def beta_vae_score_from_simulator(
    representation: Representation,
    sample: Sample,
    factors: np.ndarray | Draw,
    *,
    batch: int = 64,
    training: int = 10_000,
    test: int = 5_000,
    seed: int = 0,
    names: Sequence[str] | None = None,
    dims: str | None = None,
    images_at_once: int = 4096,
) -> Measurement:
    """Return `beta_vae_score` on 2 * batch * (training + test) new images.

    Arguments:
        representation: function of images to codes (N, d), or (N, n, k) with `dims`.
        sample: function of factors (N, m) to images.
        factors: a table (rows, m) whose columns are resampled independently, or a function
            (n, rng) -> (n, m).
    """
    sampler = SimulatorSampler(representation, sample, factors, names, dims, images_at_once, seed)
    return _beta_vae_score(sampler, batch, training, test, seed)


def factor_vae_score(
    codes: Any,
    factors: Any,
    *,
    batch: int = 64,
    training: int = 10_000,
    test: int = 5_000,
    prune: float = 0.05,
    bins: int = 20,
    seed: int = 0,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Return the accuracy of predicting the shared factor from the lowest-variance code.

    A vote is the code with the least normalised variance in `batch` samples, drawn with
    replacement, that share the value of one factor. Each code predicts the factor of the majority
    of its `training` votes; the score is the accuracy on `test` further votes, chance 1/m.

    Arguments:
        prune: codes with a smaller standard deviation are left out; if all are, the score is 0.
        other arguments: as in `beta_vae_score`.
    """
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    sampler = TableSampler(samples, bins)
    return _factor_vae_score(sampler, batch, training, test, prune, samples.codes, seed)


def factor_vae_score_from_simulator(
    representation: Representation,
    sample: Sample,
    factors: np.ndarray | Draw,
    *,
    batch: int = 64,
    training: int = 10_000,
    test: int = 5_000,
    variance: int = 10_000,
    prune: float = 0.05,
    seed: int = 0,
    names: Sequence[str] | None = None,
    dims: str | None = None,
    images_at_once: int = 4096,
) -> Measurement:
    """Return `factor_vae_score` on batch * (training + test) new images.

    Arguments:
        variance: further images, for the overall variance of each code.
        other arguments: as in `beta_vae_score_from_simulator` and `factor_vae_score`.
    """
    if variance < 2:
        raise UsageError(
            f"variance is {variance}, but at least 2 samples are needed; 10000 are usual."
        )
    sampler = SimulatorSampler(representation, sample, factors, names, dims, images_at_once, seed)
    codes = sampler.encode(sampler.draw(variance, np.random.default_rng([seed, 1])))
    return _factor_vae_score(sampler, batch, training, test, prune, codes, seed)


# ---- the scores ----------------------------------------------------------------------------------
def _beta_vae_score(
    sampler: FactorSampler, batch: int, training: int, test: int, seed: int
) -> Measurement:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    _check_sizes(batch, training, test)
    inputs, labels = pair_points(sampler, batch, training, np.random.default_rng([seed, 3]))
    if len(np.unique(labels)) < 2:
        raise UsageError(f"{training} training points cover one factor only; ask for more.")
    # standardised, so that the penalty of the regression does not depend on the codes' units
    scale = np.maximum(inputs.std(0), np.finfo(np.float64).tiny)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(max_iter=1000).fit(inputs / scale, labels)
    queries, truth = pair_points(sampler, batch, test, np.random.default_rng([seed, 4]))
    correct = model.predict(queries / scale) == truth
    parameters: dict[str, Any] = {
        "batch": batch,
        "training_points": training,
        "test_points": test,
        "seed": seed,
        "matching": "logistic regression",
    }
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        parameters["converged"] = False  # the score is then a lower bound
    return _accuracy("beta_vae_score", correct, truth, sampler, parameters)


def _factor_vae_score(
    sampler: FactorSampler,
    batch: int,
    training: int,
    test: int,
    prune: float,
    codes: np.ndarray,
    seed: int,
) -> Measurement:
    """Return the FactorVAE score; `codes` (N, d) give the overall variances."""
    _check_sizes(batch, training, test)
    samples = sampler.samples
    variance = codes.var(0, ddof=1)
    active = np.flatnonzero((np.sqrt(variance) >= prune) & (np.ptp(codes, axis=0) > 0))
    factors = samples.factors.shape[1]

    def votes(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest-variance active code (count,) and the factor shared (count,)."""
        index = rng.integers(factors, size=count)
        lowest = []
        for chunk in chunks_of_points(index, batch, len(samples.code_names)):
            group = sampler.groups(chunk, batch, rng)[..., active]  # (P, batch, active codes)
            lowest.append((group.var(1, ddof=1) / variance[active]).argmin(1))
        return np.concatenate(lowest), index

    parameters: dict[str, Any] = {
        "batch": batch,
        "training_points": training,
        "test_points": test,
        "prune": prune,
        "active_codes": len(active),
        "seed": seed,
        "matching": "majority vote",
    }
    if not len(active):
        truth = np.arange(test) % factors
        return _accuracy("factor_vae_score", np.zeros(test, bool), truth, sampler, parameters)
    codes_with_lowest_variance, index = votes(training, np.random.default_rng([seed, 3]))
    counts = np.bincount(
        codes_with_lowest_variance * factors + index, minlength=len(active) * factors
    )
    counts = counts.reshape(len(active), factors)
    majority = counts.argmax(1)
    queries, truth = votes(test, np.random.default_rng([seed, 4]))
    parameters["matched"] = {
        samples.code_names[code]: samples.factor_names[factor]
        for code, factor, count in zip(active, majority, counts, strict=True)
        if count.any()
    }
    return _accuracy("factor_vae_score", majority[queries] == truth, truth, sampler, parameters)


def _accuracy(
    metric: str,
    correct: np.ndarray,
    truth: np.ndarray,
    sampler: FactorSampler,
    parameters: dict[str, Any],
) -> Measurement:
    names = sampler.samples.factor_names
    per_factor = {
        name: float(correct[truth == i].mean())
        for i, name in enumerate(names)
        if (truth == i).any()
    }
    parameters = {**parameters, "chance": 1 / len(names), **sampler.parameters}
    return Measurement(
        metric,
        float(correct.mean()),
        sampler.n,
        per_factor,
        parameters=parameters,
        higher_is_better=True,
    )


def _check_sizes(batch: int, training: int, test: int) -> None:
    if batch < 2 or training < 2 or test < 1:
        raise UsageError(
            f"batch {batch}, training {training}, test {test}: at least 2, 2 and 1 are needed; "
            "64, 10000 and 5000 are usual."
        )
