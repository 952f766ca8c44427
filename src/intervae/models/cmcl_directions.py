"""Which of a latent and a column causes the other, by the likelihood of both directions (ours; Mao et al. 2022 read it off W).

A latent is known up to a monotone map that the model itself chose, so that only what no such map changes may decide. With S monotone and free,
and noises that are independent of the cause, e Gaussian (S would take up any other density):

    column -> latent    u has a density of its own;   S(z) = f(u) + e
    latent -> column    S(z) is N(0, 1);              u = f(S(z)) + n, n with a density of its own

The column's own density and that of n are chosen from the same family, or a skewed effect would be called a cause. A column that is an effect has
noise of the same density wherever it is seen from; one that is a cause, of a bent f, has not. What finite rows of a column give to one side even
where the latent has nothing to do with it (`margin_by_chance`) is taken off.
Ranks tell S(z) to within the scatter of N draws only. Where the noise is smaller than that, f has to follow the scatter, or what it misses would be
taken for noise: so f has more knots where they pay (`curves`), the same ones in both directions. As the noise vanishes, S can make it alike
everywhere whenever it is so on the column's own scale: an effect without much noise can be told from a cause by the ends of its density at most.
A binary or categorical column tells nothing of that kind: whatever its joint distribution with the ranks of a latent, P(u | S(z)) can be it, so that
latent -> column always fits. There the latent's own scale, which is the model's choice, has to break the tie, and the margin is 0.
Shapes: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata
from torch import Tensor

from intervae.discovery.additive import Regressions
from intervae.discovery.design import one_hot

FUNCTION_KNOTS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)  # quantiles of a cause between which f is cubic; straight beyond
FINER = (14, 28, 56, 112)  # knots of f in place of these seven where they pay, as long as there are ROWS_A_KNOT
ROWS_A_KNOT = 12
SLOPE_KNOTS = (0.005, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.995)  # quantiles between which log S' is straight; constant beyond
GRID = 201  # points at which S is summed up
ROUGHNESS = 1e-3  # weight of the squared steps of log S' from knot to knot, which keeps it finite where there are no rows
STEPS = 60  # of L-BFGS at most
SHUFFLES = 6  # latents without any relation to a column, for what its density alone gives to a direction
FEWEST = 20  # rows, below which nothing is decided
LOG_TWO_PI_E = float(np.log(2 * np.pi) + 1)


class Decision(NamedTuple):
    """Edges between m latents and d columns."""

    causes: np.ndarray  # (d, m) the strength of column -> latent, see `associations`; 0 where there is no edge
    effects: np.ndarray  # (m, d) the strength of latent -> column
    margins: np.ndarray  # (d, m) nats for column -> latent, negative for latent -> column, 0 where there is no edge and for columns of categories


def decide_edges(
    latents: np.ndarray,
    columns: np.ndarray,
    *,
    threshold: float,
    one_each: bool,
    kinds: Sequence[str] | None = None,
    shown: np.ndarray | None = None,
    by_chance: Mapping[int, float] | None = None,
) -> Decision:
    """Which latents (N, m) and columns (N, d) belong together, and which of the two is the cause.

    Arguments:
        threshold: root of the share of the variance that one of them must explain of the other.
        one_each: whether a node has one edge at most; if so, they are the one-to-one matching of the largest likelihood.
        kinds: (d,) continuous, binary or categorical; all continuous by default.
        shown: (m,) latents that may have edges; all by default.
        by_chance: column -> what is taken off its margins, where that is known from before; measured for all others.
    """
    counted = [kind != "continuous" for kind in kinds or ["continuous"] * columns.shape[1]]
    share, gain = associations(latents if shown is None else np.where(shown, latents, 0.0), columns, counted)
    margins = np.zeros_like(share)
    linked = (gain > 0) & (share >= threshold**2)
    if one_each:
        matched = np.zeros_like(linked)
        matched[linear_sum_assignment(np.where(linked, gain, 0.0), maximize=True)] = True
        linked &= matched
    down, chance = np.zeros(share.shape, dtype=bool), dict(by_chance or {})
    for i, j in zip(*map(np.ndarray.tolist, np.nonzero(linked)), strict=True):
        if not counted[i]:
            chance[i] = margin_by_chance(columns[:, i])[0] if i not in chance else chance[i]
            margins[i, j] = margin(columns[:, i], latents[:, j]) - chance[i]
        down[i, j] = (margin_of_scale(columns[:, i], latents[:, j]) if counted[i] else margins[i, j]) > 0
    strength = np.sqrt(share)
    return Decision(strength * (linked & down), (strength * (linked & ~down)).T, margins)


def associations(latents: np.ndarray, columns: np.ndarray, counted: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    """How much latents (N, m) and columns (N, d), of which some are `counted` (categories), have to do with each other, in either direction.

    Returns:
        (d, m) the share of its variance that the better explained of the two owes to the other (a latent as normal scores, on which no monotone map
        counts; of a column of categories always the latent's, between them), and (d, m) the gain in nats, -inf where one of the two is constant.
    """
    shape = columns.shape[1], latents.shape[1]
    share, gain = np.zeros(shape), np.full(shape, -np.inf)
    rising = [i for i in range(shape[0]) if np.ptp(columns[:, i]) > 0]
    moving = [j for j in range(shape[1]) if np.ptp(latents[:, j]) > 0]
    if len(latents) < FEWEST or not rising or not moving:
        return share, gain
    z = np.stack([normal_scores(latents[:, j]) for j in moving], axis=1)
    for i in rising:
        share[i, moving], gain[i, moving] = explained(z, columns[:, i], counted[i])
    u = [i for i in rising if not counted[i]]
    for j, latent in zip(moving, z.T, strict=True):
        back = explained(columns[:, u], latent)
        share[u, j], gain[u, j] = np.maximum(share[u, j], back[0]), np.maximum(gain[u, j], back[1])
    return share, gain


def margin_of_scale(column: np.ndarray, latent: np.ndarray) -> float:
    """Nats for column -> latent of a column of categories, (N,) and (N,), as far as the latent's own scale tells.

    It is Gaussian around a mean for each category, or Gaussian in all and the column's logits a curve of it.
    """
    table = Regressions(np.stack([latent, column], axis=1), ("latent", "column"), ("continuous", "categorical"))
    return table.fit([1], 0).gain - table.fit([0], 1).gain


def margin(column: np.ndarray, latent: np.ndarray) -> float:
    """Nats by which N rows (N,) and (N,) speak for column -> latent; negative for latent -> column.

    Standardising the column and any increasing or decreasing map of the latent leave it as it is.
    """
    u = standardised(column)
    return density(u) + _relation(u, normal_scores(latent))


def _relation(u: np.ndarray, t: np.ndarray) -> float:
    """The margin of a standardised column (N,) and the normal scores (N,) of a latent, but for the column's own density."""
    down = max(best_scale(t, basis) - price for basis, price in curves(u, t))
    return down - gaussian(t) - max(density(remainder(basis, u)) - price for basis, price in curves(t, u))


def margin_by_chance(column: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of `margin` of a column (N,) with latents that have nothing to do with it.

    Not 0 where its density is not Gaussian: least squares that follow chance blur, say, the sharp ends of a uniform column. As only the ranks of a
    latent count, this is the column's alone.
    """
    rng, u, scores = np.random.default_rng(0), standardised(column), normal_scores(np.arange(len(column)))
    found = [_relation(u, rng.permutation(scores)) for _ in range(SHUFFLES)]
    return density(u) + float(np.mean(found)), float(np.std(found, ddof=1))


def standardised(values: np.ndarray) -> np.ndarray:
    """(N,) with mean 0 and variance 1."""
    values = values.astype(np.float64)
    return (values - values.mean()) / values.std()


def gaussian(x: np.ndarray) -> float:
    """Log-likelihood of x (N,) under the Gaussian of its own mean and variance."""
    return -0.5 * len(x) * (LOG_TWO_PI_E + float(np.log(np.maximum(x.var(), 1e-300))))


def density(x: np.ndarray) -> float:
    """Log-likelihood of x (N,): a Gaussian's, or that of a free density where it pays for its parameters (BIC)."""
    free = best_scale(x, np.ones((len(x), 1))) - 0.5 * (len(SLOPE_KNOTS) - 1) * np.log(len(x)) if np.ptp(x) > 0 else -np.inf
    return float(max(gaussian(x), free))


def explained(effects: np.ndarray, cause: np.ndarray, counted: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """What a smooth function of a cause (N,) explains of each effect (N, t), or, where the cause is `counted`, a mean for each of its categories.

    Returns:
        (t,) share of its variance, corrected for the function's parameters, and (t,) the gain in nats less their price (BIC).
    """
    basis = one_hot("", cause) if counted else splines(standardised(cause))
    rows, parameters = basis.shape
    left = remainder(basis, effects).var(axis=0) / effects.var(axis=0)
    gain = -0.5 * rows * np.log(np.maximum(left, 1e-300)) - 0.5 * (parameters - 1) * np.log(rows)
    return np.clip(1 - left * (rows - 1) / (rows - parameters), 0.0, 1.0), gain


def curves(cause: np.ndarray, effect: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Bases (N, k) of f for a cause (N,) of an effect (N,), each with the price in nats of its knots beyond the usual ones (BIC).

    These are the usual one and, where by least squares the first finer one pays, the best of all finer ones.
    """
    usual = splines(cause)
    tried: list[tuple[float, np.ndarray, float]] = []
    least = gaussian(remainder(usual, effect))
    for knots in FINER:
        if knots * ROWS_A_KNOT > len(cause) or (tried and tried[0][0] <= least):
            break
        basis = splines(cause, knots)
        price = 0.5 * (basis.shape[1] - usual.shape[1]) * float(np.log(len(cause)))
        tried.append((gaussian(remainder(basis, effect)) - price, basis, price))
    value, basis, price = max(tried, key=lambda found: found[0], default=(least, usual, 0.0))
    return [(usual, 0.0), (basis, price)] if value > least else [(usual, 0.0)]


def normal_scores(values: np.ndarray) -> np.ndarray:
    """(N,) to the quantiles of N(0, 1) that have their ranks."""
    return ndtri((rankdata(values) - 0.5) / len(values))


def splines(x: np.ndarray, knots: int = len(FUNCTION_KNOTS)) -> np.ndarray:
    """(N, k) a basis of the natural cubic splines of x (N,), straight beyond the outer knots; fewer where knots coincide.

    The usual knots are at FUNCTION_KNOTS, finer ones as evenly as normal scores, which reach the further out the more they are.
    """
    end = ndtri(FUNCTION_KNOTS[0] * len(FUNCTION_KNOTS) / knots)
    places = np.unique(np.quantile(x, FUNCTION_KNOTS if knots == len(FUNCTION_KNOTS) else ndtr(np.linspace(end, -end, knots))))
    if len(places) < 3:
        return np.stack([np.ones_like(x), x], axis=1)
    curve = CubicSpline(places, np.eye(len(places)), bc_type="natural")
    before, after = np.minimum(x - places[0], 0.0), np.maximum(x - places[-1], 0.0)
    return curve(np.clip(x, places[0], places[-1])) + np.outer(before, curve(places[0], 1)) + np.outer(after, curve(places[-1], 1))


def remainder(basis: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What least squares on a basis (N, k) leaves of y (N,) or (N, t)."""
    return y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]


def best_scale(t: np.ndarray, basis: np.ndarray) -> float:
    """max over monotone S and coefficients c of sum_i log N(S(t_i); basis_i c, s^2) + log S'(t_i), for t (N,) and a basis (N, k).

    With a constant basis it is the likelihood of a free density. c and s are in closed form, S by L-BFGS over log S' at its knots.
    """
    grid = np.linspace(t.min(), t.max(), GRID)
    step = grid[1] - grid[0]
    knots = np.unique(np.quantile(t, SLOPE_KNOTS))
    hats = torch.as_tensor(np.stack([np.interp(grid, knots, row) for row in np.eye(len(knots))], axis=1))  # (GRID, knots)
    place = np.clip(((t - grid[0]) / step).astype(np.int64), 0, GRID - 2)
    share, left = torch.as_tensor((t - grid[place]) / step), torch.as_tensor(place)
    directions, sizes, _ = np.linalg.svd(basis, full_matrices=False)
    span = torch.as_tensor(np.ascontiguousarray(directions[:, sizes > 1e-10 * sizes[0]]))
    log_slopes = torch.zeros(len(knots), dtype=torch.float64, requires_grad=True)

    def between(table: Tensor) -> Tensor:
        return torch.lerp(table[left], table[left + 1], share)

    def loss() -> Tensor:
        log_slope = hats @ log_slopes
        slope = log_slope.exp()
        rising = torch.cat([slope.new_zeros(1), ((slope[1:] + slope[:-1]) * (step / 2)).cumsum(0)])
        scale = between(rising)
        residual = scale - span @ (span.T @ scale)
        rough = ROUGHNESS * log_slopes.diff().square().sum() / max(len(knots) - 1, 1)
        return 0.5 * (residual.square().mean().log() + LOG_TWO_PI_E) - between(log_slope).mean() + rough

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser = torch.optim.LBFGS([log_slopes], max_iter=STEPS, line_search_fn="strong_wolfe")
        optimiser.step(closure)
        return -len(t) * float(loss().detach())
