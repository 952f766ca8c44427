"""Multinomial logistic regression on a centred basis, by Newton's method with a small ridge."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

RIDGE = 1e-4  # per row
STEPS = 12  # of Newton's method
MIN_GAIN = 0.05  # nats; a step that gains less ends the fit
MAX_NEWTON_PARAMETERS = 80  # above, the Hessian is bounded (Böhning 1992) and not computed


def fit_logits(basis: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit logits over a centred basis (N, q) to one-hot targets (N, K).

    Returns:
        (q, K) weights, and the log-likelihood gained over constant probabilities.
    """
    rows, classes = targets.shape
    inputs = np.concatenate([basis, np.ones((rows, 1))], axis=1)
    ridge = RIDGE * rows * np.append(np.ones(basis.shape[1]), 1e-6)[:, None]
    products = inputs.T @ inputs
    bound = cho_factor(0.5 * products + np.diag(ridge[:, 0]), check_finite=False)
    weights = np.zeros((inputs.shape[1], classes))
    weights[-1] = np.log(targets.mean(axis=0))

    def penalised_likelihood(w: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-likelihood less the ridge penalty, and the probabilities (N, K)."""
        logits = inputs @ w
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        total = odds.sum(axis=1, keepdims=True)
        log_likelihood = (targets * logits).sum() - np.log(total).sum()
        return float(log_likelihood - 0.5 * (ridge * w * w).sum()), odds / total

    start, probabilities = penalised_likelihood(weights)
    current = start
    newton = inputs.shape[1] * classes <= MAX_NEWTON_PARAMETERS
    for _ in range(STEPS if newton else 4 * STEPS):
        gradient = inputs.T @ (targets - probabilities) - ridge * weights
        if newton:
            step = newton_step(inputs, probabilities, gradient, ridge)
        else:
            step = cho_solve(bound, gradient, check_finite=False)
        size = 1.0
        while (trial := penalised_likelihood(weights + size * step))[0] < current and size > 1e-3:
            size /= 2
        if trial[0] - current < MIN_GAIN:
            break
        weights, (current, probabilities) = weights + size * step, trial
    slopes = weights[:-1]
    penalty = 0.5 * float((ridge * weights * weights).sum())
    return slopes - slopes.mean(axis=1, keepdims=True), current + penalty - start


def newton_step(
    inputs: np.ndarray, probabilities: np.ndarray, gradient: np.ndarray, ridge: np.ndarray
) -> np.ndarray:
    """(q, K): the gradient of a multinomial log-likelihood divided by its Hessian."""
    size, classes = gradient.shape
    hessian = np.zeros((classes, size, classes, size))
    for a in range(classes):
        for b in range(a + 1):
            row_weights = probabilities[:, a] * ((a == b) - probabilities[:, b])
            block = inputs.T @ (inputs * row_weights[:, None])
            hessian[a, :, b] = hessian[b, :, a] = block
    flat = hessian.reshape(classes * size, classes * size)
    flat[np.diag_indices_from(flat)] += np.tile(ridge[:, 0], classes)
    return np.linalg.solve(flat, gradient.T.reshape(-1)).reshape(classes, size).T
