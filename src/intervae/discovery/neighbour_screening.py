"""Screening for large tables: which variables can be neighbours, by greedy additive regressions.

The Markov blanket of a variable (causes, effects, other causes of effects) predicts it. Curves of
other variables are added to its regression, largest gain first, while BIC improves (group
orthogonal matching pursuit). The square of the variable is regressed too, so that products and
changing variances count. Cost: one matrix product per added variable. Shapes: N rows, n variables.
"""

from __future__ import annotations

import numpy as np

from intervae.discovery.spline_likelihood import natural_spline_basis, residuals


def screen_neighbours(columns: np.ndarray, most: int) -> np.ndarray:
    """Return possible neighbours (n, n) of bool, symmetric, of standardised columns (N, n).

    Arguments:
        most: neighbours that a variable chooses at most; others may choose it as well.
    """
    n = columns.shape[1]
    bases = [orthonormal_curves(column) for column in columns.T]
    owner = np.repeat(np.arange(n), [basis.shape[1] for basis in bases])
    curves = np.concatenate(bases, axis=1)  # (N, P)
    chosen = np.zeros((n, n), dtype=bool)
    for i in range(n):
        for target in (columns[:, i], columns[:, i] ** 2):
            chosen[_pursue(target, i, curves, owner, most), i] = True
    return chosen | chosen.T


def orthonormal_curves(column: np.ndarray) -> np.ndarray:
    """Orthonormal basis (N, q) of the centred natural splines of a column (N,)."""
    basis = natural_spline_basis(column)
    vectors, values, _ = np.linalg.svd(basis - basis.mean(axis=0), full_matrices=False)
    return np.asarray(vectors[:, values > 1e-8 * values[0]])


def _pursue(
    target: np.ndarray, excluded: int, curves: np.ndarray, owner: np.ndarray, most: int
) -> list[int]:
    """Variables whose curves explain a target (N,), largest gain first."""
    rows, variables = len(target), int(owner.max()) + 1
    noise = target - target.mean()
    variance, chosen = float(noise @ noise), list[int]()
    while len(chosen) < most:
        scores = np.bincount(owner, (noise @ curves) ** 2, minlength=variables)
        scores[[excluded, *chosen]] = -1.0
        best = int(scores.argmax())
        selected = np.isin(owner, [*chosen, best])
        further = residuals(curves[:, selected], target - target.mean())
        remaining = max(float(further @ further), 1e-12 * rows)
        gain = 0.5 * rows * np.log(variance / remaining)
        penalty = 0.5 * np.log(rows) * int((owner == best).sum()) + np.log(variables)
        if gain <= penalty:
            break
        chosen.append(best)
        noise, variance = further, remaining
    return chosen
