"""Log-likelihoods with splines and monotone maps, the numerical parts of edge_directions.py.

Shapes: N rows.
"""

from __future__ import annotations

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from intervae.discovery.design_matrix import one_hot

# quantiles of a cause at which the knots of f are; f is linear beyond the outer ones
FUNCTION_KNOTS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
FINER_KNOTS = (14, 28, 56, 112)  # larger numbers of knots that f may have instead
ROWS_PER_KNOT = 12  # at least, for finer knots
# quantiles at which the knots of log S' are; log S' is constant beyond the outer ones
SLOPE_KNOTS = (0.005, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.995)
GRID = 201  # points at which S is integrated
ROUGHNESS = 1e-3  # weight of the squared differences of log S' between knots
LBFGS_STEPS = 100
LOG_TWO_PI_E = float(np.log(2 * np.pi) + 1)


# ---- scales --------------------------------------------------------------------------------------
def standardise(values: np.ndarray) -> np.ndarray:
    """Scale values (N,) to mean 0 and variance 1."""
    values = values.astype(np.float64)
    return (values - values.mean()) / values.std()


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Replace values (N,) by the quantiles of N(0, 1) at their ranks."""
    return ndtri((scipy.stats.rankdata(values) - 0.5) / len(values))


# ---- densities -----------------------------------------------------------------------------------
def gaussian_log_likelihood(x: np.ndarray) -> float:
    """Log-likelihood of x (N,) under the Gaussian of its own mean and variance."""
    return -0.5 * len(x) * (LOG_TWO_PI_E + float(np.log(np.maximum(x.var(), 1e-300))))


def density_log_likelihood(x: np.ndarray) -> float:
    """Log-likelihood of x (N,) under a Gaussian or a free density, whichever has the better BIC."""
    free = -np.inf
    if np.ptp(x) > 0:
        penalty = 0.5 * (len(SLOPE_KNOTS) - 1) * np.log(len(x))
        free = monotone_map_log_likelihood(x, np.ones((len(x), 1))) - penalty
    return float(max(gaussian_log_likelihood(x), free))


def monotone_map_log_likelihood(t: np.ndarray, basis: np.ndarray) -> float:
    """Maximum log-likelihood of t (N,) over monotone maps S: S(t) = basis c + noise.

    max over S and c of sum_i log N(S(t_i); basis_i c, s^2) + log S'(t_i), for a basis (N, k).
    A constant basis gives the likelihood of a free density.
    """
    return fit_monotone_map(t, basis)[0]


def fit_monotone_map(t: np.ndarray, basis: np.ndarray) -> tuple[float, np.ndarray]:
    """Fit S(t) = basis c + noise over monotone maps S, for t (N,) and a basis (N, k).

    c and s have a closed form. S is linear in its slopes on the grid, so the residual variance is
    a quadratic form of them, and L-BFGS over log S' at the knots does not visit the rows.

    Returns:
        The maximum log-likelihood, and the residuals (N,).
    """
    grid = np.linspace(t.min(), t.max(), GRID)
    step = grid[1] - grid[0]
    knots = np.unique(np.quantile(t, SLOPE_KNOTS))
    hats = np.stack([np.interp(grid, knots, row) for row in np.eye(len(knots))], axis=1)
    left = np.clip(((t - grid[0]) / step).astype(np.int64), 0, GRID - 2)
    fraction = ((t - grid[left]) / step)[:, None]

    def interpolate(table: np.ndarray) -> np.ndarray:
        return (1 - fraction) * table[left] + fraction * table[left + 1]

    areas = np.tri(GRID, GRID - 1, -1) * (step / 2)  # trapezoids left of each grid point
    integral = np.zeros((GRID, GRID))
    integral[:, :-1] += areas
    integral[:, 1:] += areas
    mapped = interpolate(integral)  # (N, GRID), slopes on the grid to S
    vectors, singular_values, _ = np.linalg.svd(basis, full_matrices=False)
    span = vectors[:, singular_values > 1e-10 * singular_values[0]]
    unexplained = mapped - span @ (span.T @ mapped)
    form = unexplained.T @ unexplained / len(t)
    jacobian = interpolate(hats).mean(axis=0)
    roughness = ROUGHNESS / max(len(knots) - 1, 1)

    def loss(log_slopes: np.ndarray) -> tuple[float, np.ndarray]:
        slope = np.exp(hats @ log_slopes)
        product, change = form @ slope, np.diff(log_slopes)
        variance = max(float(slope @ product), 1e-300)
        value = 0.5 * (np.log(variance) + LOG_TWO_PI_E) - jacobian @ log_slopes
        gradient = hats.T @ (slope * product) / variance - jacobian
        gradient[1:] += 2 * roughness * change
        gradient[:-1] -= 2 * roughness * change
        return float(value + roughness * change @ change), gradient

    options = {"maxiter": LBFGS_STEPS, "ftol": 1e-12, "gtol": 1e-7}
    fit = scipy.optimize.minimize(
        loss, np.zeros(len(knots)), jac=True, method="L-BFGS-B", options=options
    )
    return -len(t) * float(fit.fun), unexplained @ np.exp(hats @ fit.x)


# ---- regression ----------------------------------------------------------------------------------
def natural_spline_basis(x: np.ndarray, knots: int = len(FUNCTION_KNOTS)) -> np.ndarray:
    """Basis (N, k) of the natural cubic splines of x (N,), linear beyond the outer knots.

    Seven knots are at FUNCTION_KNOTS, more knots at equally spaced normal scores. Knots that
    coincide are merged.
    """
    end = ndtri(FUNCTION_KNOTS[0] * len(FUNCTION_KNOTS) / knots)
    usual = knots == len(FUNCTION_KNOTS)
    quantiles = FUNCTION_KNOTS if usual else ndtr(np.linspace(end, -end, knots))
    places = np.unique(np.quantile(x, quantiles))
    if len(places) < 3:
        return np.stack([np.ones_like(x), x], axis=1)
    curve = scipy.interpolate.CubicSpline(places, np.eye(len(places)), bc_type="natural")
    below, above = np.minimum(x - places[0], 0.0), np.maximum(x - places[-1], 0.0)
    return (
        curve(np.clip(x, places[0], places[-1]))
        + np.outer(below, curve(places[0], 1))
        + np.outer(above, curve(places[-1], 1))
    )


def residuals(basis: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Residuals of y (N,) or (N, t) after least squares on a basis (N, k)."""
    return y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]


def candidate_bases(cause: np.ndarray, effect: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Spline bases (N, k) of f from a cause (N,) to an effect (N,), each with its BIC penalty.

    The basis of seven knots has penalty 0. The best of the finer bases is added where, by least
    squares, it gains more than the penalty in nats for its additional knots.
    """
    usual = natural_spline_basis(cause)
    usual_fit = gaussian_log_likelihood(residuals(usual, effect))
    finer: list[tuple[float, np.ndarray, float]] = []
    for knots in FINER_KNOTS:
        if knots * ROWS_PER_KNOT > len(cause) or (finer and finer[0][0] <= usual_fit):
            break
        basis = natural_spline_basis(cause, knots)
        penalty = 0.5 * (basis.shape[1] - usual.shape[1]) * float(np.log(len(cause)))
        fit = gaussian_log_likelihood(residuals(basis, effect)) - penalty
        finer.append((fit, basis, penalty))
    fit, basis, penalty = max(finer, key=lambda entry: entry[0], default=(usual_fit, usual, 0.0))
    return [(usual, 0.0), (basis, penalty)] if fit > usual_fit else [(usual, 0.0)]


def explained_variance(
    effects: np.ndarray, cause: np.ndarray, is_categorical: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """How much a smooth function of a cause (N,), or its category means, explain of effects (N, t).

    Returns:
        (t,) adjusted R^2 and (t,) gain in nats less the BIC penalty.
    """
    basis = one_hot("", cause) if is_categorical else natural_spline_basis(standardise(cause))
    rows, parameters = basis.shape
    unexplained = residuals(basis, effects).var(axis=0) / effects.var(axis=0)
    penalty = 0.5 * (parameters - 1) * np.log(rows)
    gain = -0.5 * rows * np.log(np.maximum(unexplained, 1e-300)) - penalty
    return np.clip(1 - unexplained * (rows - 1) / (rows - parameters), 0.0, 1.0), gain
