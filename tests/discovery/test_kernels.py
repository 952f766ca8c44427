"""Kernel ridge residuals and HSIC against their definitions."""

import itertools

import numpy as np
import pytest

from intervae.discovery import kernels
from intervae.discovery.kernels import (
    CentredKernel,
    gaussian_kernel,
    hsic,
    hsic_null,
    hsic_p_value,
    leave_one_out,
    median_square,
    squared_distances,
)


def brute_force_residuals(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Fit N times without one row, for every width and penalty; keep the best of each target."""
    rows = len(inputs)
    distances = np.array([[((a - b) ** 2).sum() for b in inputs] for a in inputs])
    scale = np.median([distances[i, j] for i, j in itertools.combinations(range(rows), 2)])
    best, lowest = np.empty_like(targets), np.full(targets.shape[1], np.inf)
    for width, ridge in itertools.product(kernels.WIDTHS, kernels.RIDGES):
        kernel = np.exp(-distances / (2 * scale * width**2))
        residuals = np.empty_like(targets)
        for i in range(rows):
            others = np.arange(rows) != i
            dual = np.linalg.solve(
                kernel[np.ix_(others, others)] + ridge * np.eye(rows - 1), targets[others]
            )
            residuals[i] = targets[i] - kernel[i, others] @ dual
        error = (residuals**2).mean(axis=0)
        best[:, error < lowest], lowest = residuals[:, error < lowest], np.minimum(error, lowest)
    return best


@pytest.mark.parametrize("dimensions", [1, 2])
def test_leave_one_out_residuals_equal_refits_without_each_row(dimensions):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, dimensions))
    targets = np.stack(
        [
            np.sin(2 * inputs[:, 0]) + 0.3 * rng.normal(size=60),
            inputs[:, -1] ** 2 + rng.laplace(size=60),
            rng.normal(size=60),
        ],
        axis=1,
    )
    np.testing.assert_allclose(
        leave_one_out(inputs, targets), brute_force_residuals(inputs, targets), atol=1e-4
    )


def test_without_inputs_residuals_are_from_the_mean_of_the_others():
    targets = np.random.default_rng(1).normal(size=(30, 2))
    expected = np.stack(
        [targets[i] - np.delete(targets, i, axis=0).mean(axis=0) for i in range(30)]
    )
    np.testing.assert_allclose(leave_one_out(np.empty((30, 0)), targets), expected)


def test_a_noise_free_function_is_recovered_and_noise_is_not():
    rng = np.random.default_rng(2)
    inputs = rng.uniform(-1.7, 1.7, size=(400, 2))
    targets = np.stack([np.sin(inputs[:, 0]) * inputs[:, 1], rng.normal(size=400)], axis=1)
    determined, noise = np.sqrt((leave_one_out(inputs, targets) ** 2).mean(axis=0))
    assert determined < 1e-3
    assert 0.95 < noise / targets[:, 1].std() < 1.05


def test_the_low_rank_factor_is_exact_for_a_low_rank_kernel():
    inputs = np.random.default_rng(3).uniform(size=(200, 1))
    vectors, values = kernels.kernel_eigenvectors(kernel := gaussian_kernel(inputs), rank=150)
    assert len(values) < 30
    np.testing.assert_allclose(vectors * values @ vectors.T, kernel, atol=1e-8)


def test_hsic_is_the_v_statistic_of_its_definition():
    """Gretton et al. 2008, Eq. 4: three sums over all pairs, quadruples and triples of samples."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=12)
    y = x**2 + rng.normal(size=12)
    k, m = gaussian_kernel(x), gaussian_kernel(y)
    n = range(12)
    pairs = np.mean([k[i, j] * m[i, j] for i in n for j in n])
    quadruples = np.mean([k[i, j] * m[q, r] for i in n for j in n for q in n for r in n])
    triples = np.mean([k[i, j] * m[i, q] for i in n for j in n for q in n])
    assert hsic(CentredKernel.from_kernel(k), CentredKernel.from_kernel(m)) == pytest.approx(
        pairs + quadruples - 2 * triples
    )


def test_null_moments_are_those_of_the_paper():
    """Gretton et al. 2008, Eqs. 5 and 6, written out over pairs of different samples."""
    rng = np.random.default_rng(8)
    k, m = gaussian_kernel(rng.normal(size=9)), gaussian_kernel(rng.exponential(size=9))
    centre = np.eye(9) - 1 / 9
    product = (centre @ k @ centre) * (centre @ m @ centre)
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    off_k, off_m = np.mean([k[p] for p in pairs]), np.mean([m[p] for p in pairs])
    mean, variance = hsic_null(CentredKernel.from_kernel(k), CentredKernel.from_kernel(m))
    assert mean == pytest.approx((1 + off_k * off_m - off_k - off_m) / 9)
    assert variance == pytest.approx(
        72 * (5 * 4) / (9 * 8 * 7 * 6) * np.mean([(product[p] / 6) ** 2 for p in pairs])
    )


def test_null_moments_and_p_values_match_permutations():
    rng = np.random.default_rng(5)
    x, y = rng.uniform(size=100), rng.exponential(size=100)
    a = CentredKernel.from_kernel(gaussian_kernel(x))
    shuffled = [CentredKernel.from_kernel(gaussian_kernel(rng.permutation(y))) for _ in range(1200)]
    values = [hsic(a, b) for b in shuffled]
    assert hsic_null(a, shuffled[0])[0] == pytest.approx(np.mean(values), rel=0.03)
    assert np.sqrt(np.mean([hsic_null(a, b)[1] for b in shuffled[:200]])) == pytest.approx(
        np.std(values), rel=0.15
    )
    p = np.array([hsic_p_value(a, b) for b in shuffled])
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.02)
    assert (p < 0.5).mean() == pytest.approx(0.5, abs=0.05)


def test_dependence_without_correlation_is_detected():
    rng = np.random.default_rng(6)
    x = rng.normal(size=300)
    spread = x * rng.normal(size=300)  # uncorrelated with x, but dependent
    assert (
        hsic_p_value(
            CentredKernel.from_kernel(gaussian_kernel(x)),
            CentredKernel.from_kernel(gaussian_kernel(spread)),
        )
        < 1e-6
    )


def test_the_kernel_width_is_the_median_distance_even_with_ties():
    assert median_square(squared_distances(np.array([[0.0], [1.0], [3.0]]))) == pytest.approx(4.0)
    ties = np.array([[0.0]] * 9 + [[1.0]])
    assert median_square(squared_distances(ties)) > 0
    assert np.isfinite(gaussian_kernel(ties)).all()
