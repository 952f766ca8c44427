"""Disentanglement from batches that share one factor: the beta-VAE score (Higgins et al. 2017) and the FactorVAE score (Kim and Mnih 2018).

Both come in two forms: on arrays (rows that share a factor's value are drawn from the data) and on a simulator (new images with the factor held).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from intervae.errors import UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.disentanglement import Kinds
from intervae.metrics.held import Draw, Representation, Rows, Sample, Simulated, Source
from intervae.metrics.samples import read_samples

ROWS_AT_ONCE = 2**17  # samples held in memory at a time, of MANY_CODES codes or fewer
MANY_CODES = 64


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
    """Accuracy in [0, 1] (chance 1/m) of telling which factor two samples share from how far their codes are apart.

    A point is the mean of |code - code'| over `batch` pairs that share the value of one factor, which a logistic regression names; `training`
    points fit it and `test` points score it; the distances are divided by their standard deviations, so that the codes' units do not matter.
    Pairs are two different rows with the same value; a continuous factor is cut into `bins` of equal width; values that only one row has are
    left out. codes, factors, names, kinds, dims: see `samples.read_samples`.
    """
    rows = Rows(read_samples(codes, factors, names=names, kinds=kinds, dims=dims), bins)
    return _beta(rows, batch, training, test, seed)


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
    """`beta_vae_score` on new images: 2 * batch * (training + test) of them.

    Arguments:
        representation: images to codes (N, d), or (N, n, k) with `dims` given.
        sample: factors (N, m) to images.
        factors: a table (rows, m) from whose columns factors are drawn independently of each other, or a function (n, rng) -> (n, m).
    """
    return _beta(Simulated(representation, sample, factors, names, dims, images_at_once, seed), batch, training, test, seed)


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
    """Accuracy in [0, 1] (chance 1/m) of telling which factor a batch shares from the one code that varies least in it.

    A vote is the code with the least variance, over its variance in all samples, in `batch` samples that share the value of one factor. Each code
    stands for the factor it was voted for most often in `training` votes; the score is the accuracy on `test` more. Codes with a standard
    deviation below `prune` take no part; where none is left the score is 0. Rows are drawn with replacement; the rest as in `beta_vae_score`.
    """
    rows = Rows(read_samples(codes, factors, names=names, kinds=kinds, dims=dims), bins)
    return _factor(rows, batch, training, test, prune, rows.samples.codes, seed)


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
    """`factor_vae_score` on new images: batch * (training + test), and `variance` for the codes' overall variances. See the beta-VAE form."""
    if variance < 2:
        raise UsageError(f"variance is {variance}, but at least 2 samples are needed; 10000 are usual.")
    source = Simulated(representation, sample, factors, names, dims, images_at_once, seed)
    rng = np.random.default_rng([seed, 1])
    return _factor(source, batch, training, test, prune, source.encode(source.draw(variance, rng)), seed)


# ---- the scores --------------------------------------------------------------------------------------------------------
def _beta(source: Source, batch: int, training: int, test: int, seed: int) -> Measurement:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    def points(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mean distances (count, d) and the factors that were shared (count,)."""
        index = rng.integers(source.samples.factors.shape[1], size=count)
        distances = []
        for part in _parts(index, batch, len(source.samples.code_names)):
            first, second = source.pairs(part, batch, rng)
            distances.append(np.abs(first - second).mean(1))
        return np.concatenate(distances), index

    _check(batch, training, test)
    inputs, labels = points(training, np.random.default_rng([seed, 3]))
    if len(np.unique(labels)) < 2:
        raise UsageError(f"{training} training points hold one factor only; ask for more.")
    scale = np.maximum(inputs.std(0), np.finfo(np.float64).tiny)  # so that the weak penalty of the regression does not see the codes' units
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(max_iter=1000).fit(inputs / scale, labels)
    queries, truth = points(test, np.random.default_rng([seed, 4]))
    right = model.predict(queries / scale) == truth
    parameters: dict[str, Any] = {"batch": batch, "training_points": training, "test_points": test, "seed": seed, "matching": "logistic regression"}
    if any(
        issubclass(warning.category, ConvergenceWarning) for warning in caught
    ):  # codes of wildly different scales: the score is then a lower bound
        parameters["converged"] = False
    return _accuracy("beta_vae_score", right, truth, source, parameters)


def _factor(source: Source, batch: int, training: int, test: int, prune: float, everything: np.ndarray, seed: int) -> Measurement:
    _check(batch, training, test)
    samples = source.samples
    variance = everything.var(0, ddof=1)
    active = np.flatnonzero((np.sqrt(variance) >= prune) & (np.ptp(everything, axis=0) > 0))
    factors = samples.factors.shape[1]

    def votes(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The code that varied least (count,), among the active ones, and the factor that was held (count,)."""
        index = rng.integers(factors, size=count)
        least = [
            (source.alike(p, batch, rng)[..., active].var(1, ddof=1) / variance[active]).argmin(1)
            for p in _parts(index, batch, len(samples.code_names))
        ]
        return np.concatenate(least), index

    parameters: dict[str, Any] = {
        "batch": batch,
        "training_points": training,
        "test_points": test,
        "prune": prune,
        "active_codes": len(active),
        "seed": seed,
    }
    if not len(active):
        return _accuracy("factor_vae_score", np.zeros(test, bool), np.arange(test) % factors, source, {**parameters, "matching": "majority vote"})
    least, index = votes(training, np.random.default_rng([seed, 3]))
    ballots = np.bincount(least * factors + index, minlength=len(active) * factors).reshape(len(active), factors)
    stands_for = ballots.argmax(1)
    queries, truth = votes(test, np.random.default_rng([seed, 4]))
    voted = {samples.code_names[code]: samples.factor_names[f] for code, f, b in zip(active, stands_for, ballots, strict=True) if b.any()}
    parameters |= {"matching": "majority vote", "matched": voted}
    return _accuracy("factor_vae_score", stands_for[queries] == truth, truth, source, parameters)


def _accuracy(metric: str, right: np.ndarray, truth: np.ndarray, source: Source, parameters: dict[str, Any]) -> Measurement:
    names = source.samples.factor_names
    each = {name: float(right[truth == i].mean()) for i, name in enumerate(names) if (truth == i).any()}
    parameters = {**parameters, "chance": 1 / len(names), **source.parameters}
    return Measurement(metric, float(right.mean()), source.n, each, parameters=parameters, higher_is_better=True)


def _parts(index: np.ndarray, batch: int, codes: int) -> Iterator[np.ndarray]:
    """Points whose samples fit in memory together: ROWS_AT_ONCE samples, fewer where each has more than MANY_CODES codes."""
    size = max(1, ROWS_AT_ONCE * MANY_CODES // max(codes, MANY_CODES) // batch)
    return (index[i : i + size] for i in range(0, len(index), size))


def _check(batch: int, training: int, test: int) -> None:
    if batch < 2 or training < 2 or test < 1:
        raise UsageError(f"batch {batch}, training {training}, test {test}: at least 2, 2 and 1 are needed; 64, 10000 and 5000 are usual.")
