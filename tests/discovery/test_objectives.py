"""Objectives and solvers of NOTEARS and DAGMA: gradients against autograd, closed forms."""

import numpy as np
import pytest
import torch

from intervae.causal.acyclicity import log_det, polynomial, trace_exponential, value_and_slope
from intervae.discovery.design_matrix import build_design_matrix
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.objectives import LinearObjective, MLPObjective
from intervae.discovery.solvers import adam, fit_in_order
from intervae.errors import UsageError

CPU = torch.device("cpu")
NAMES = ("a", "b", "c", "d")


def table(seed: int = 0, rows: int = 80) -> np.ndarray:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(rows, 4)).cumsum(axis=1)
    columns[:, 1] = columns[:, 1] > 0
    columns[:, 2] = rng.integers(0, 3, rows)
    return columns


@pytest.mark.parametrize(
    ("measure", "function"),
    [("exponential", trace_exponential), ("polynomial", polynomial), ("log_det", log_det)],
)
def test_acyclicity_measures_of_two_variables_are_closed_form(measure: str, function) -> None:
    weights = torch.tensor([[0.0, 0.7], [0.4, 0.0]], dtype=torch.float64)
    cycle = (0.7 * 0.4) ** 2  # M has eigenvalues +- sqrt(cycle)
    expected = {
        "exponential": 2 * np.cosh(cycle**0.5) - 2,
        "polynomial": cycle / 2,
        "log_det": -np.log(1 - cycle),
    }[measure]
    slope_of_cycle = {
        "exponential": np.sinh(cycle**0.5) / cycle**0.5,
        "polynomial": 0.5,
        "log_det": 1 / (1 - cycle),
    }[measure]
    value, slope = value_and_slope(weights.square(), measure)
    assert float(value) == pytest.approx(expected, rel=1e-12)
    assert float(slope[0, 1]) == pytest.approx(
        slope_of_cycle * 0.4**2, rel=1e-12
    )  # d cycle / d M01 = M10
    leaf = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf), leaf)
    torch.testing.assert_close(2 * weights * slope, gradient)


def test_an_unknown_acyclicity_measure_is_refused() -> None:
    with pytest.raises(UsageError, match="log_det"):
        value_and_slope(torch.zeros(2, 2), "logdet")


@pytest.mark.parametrize("noise", ["equal", "free"])
def test_mlp_gradients_of_mixed_kinds_match_autograd(noise: str) -> None:
    kinds = ("continuous", "binary", "categorical", "continuous")
    design = build_design_matrix(table(), NAMES, kinds, standardise=True)
    objective = MLPObjective(
        design,
        Knowledge().constraints(NAMES),
        noise=noise,
        l1=0.0,
        l2=0.03,
        hidden=5,
        seed=1,
        device=CPU,
    )
    analytic = objective.gradients()
    objective.parameters = [p.clone().requires_grad_() for p in objective.parameters]
    first, _, last, _ = objective.parameters
    value = objective.losses().sum() + 0.015 * (first.square().sum() + last.square().sum())
    expected = list(torch.autograd.grad(value, objective.parameters))
    expected[0] = expected[0] * objective.mask
    for ours, theirs in zip(analytic, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-9)


def test_mlp_losses_of_mixed_kinds_match_likelihoods() -> None:
    kinds = ("continuous", "binary", "categorical", "continuous")
    design = build_design_matrix(table(), NAMES, kinds, standardise=True)
    objective = MLPObjective(
        design,
        Knowledge().constraints(NAMES),
        noise="equal",
        l1=0.0,
        l2=0.0,
        hidden=5,
        seed=1,
        device=CPU,
    )
    out = objective.forward()[1].numpy()  # (O, N)
    squared = 0.5 * ((out[0] - design.targets[:, 0]) ** 2).mean()
    binary = -np.where(
        design.targets[:, 1] == 1, -np.log1p(np.exp(-out[1])), -np.log1p(np.exp(out[1]))
    ).mean()
    chances = np.exp(out[2:5]) / np.exp(out[2:5]).sum(0)
    cross = -np.log(chances[design.targets[:, 2:5].argmax(1), np.arange(80)]).mean()
    np.testing.assert_allclose(objective.losses().numpy()[:3], [squared, binary, cross], rtol=1e-10)


@pytest.mark.parametrize("noise", ["equal", "free"])
def test_the_linear_gradient_matches_that_of_the_residuals(noise: str) -> None:
    columns = np.random.default_rng(3).normal(size=(60, 4)).cumsum(axis=1)
    design = build_design_matrix(columns, NAMES, ("continuous",) * 4, standardise=False)
    objective = LinearObjective(
        design, Knowledge().constraints(NAMES), noise=noise, l1=0.0, device=CPU
    )
    weights = torch.from_numpy(np.random.default_rng(4).normal(size=(4, 4)) * (1 - np.eye(4)))
    objective.parameters[0].copy_(weights[:, :, None])
    leaf = weights.clone().requires_grad_()
    x = torch.from_numpy(design.inputs)
    errors = (x - x @ leaf).square().mean(0)
    (expected,) = torch.autograd.grad(
        0.5 * (errors.log() if noise == "free" else errors).sum(), leaf
    )
    torch.testing.assert_close(
        objective.gradients()[0][:, :, 0], expected * (1 - torch.eye(4, dtype=torch.float64))
    )
    np.testing.assert_allclose(
        objective.unexplained(), errors.detach().numpy() / columns.var(axis=0), rtol=1e-9
    )


def test_the_final_linear_fit_is_scikit_learns_lasso() -> None:
    from sklearn.linear_model import Lasso

    columns = np.random.default_rng(5).normal(size=(200, 4)).cumsum(axis=1) * [1.0, 3.0, 0.5, 2.0]
    design = build_design_matrix(columns, NAMES, ("continuous",) * 4, standardise=False)
    constraints = Knowledge(tiers=tuple((name,) for name in NAMES)).constraints(
        NAMES
    )  # the order a, b, c, d is known
    objective = LinearObjective(design, constraints, noise="equal", l1=0.1, device=CPU)
    fit_in_order(objective, constraints, steps=10, rate=0.01)
    for effect in range(1, 4):
        peer = Lasso(alpha=0.1, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(
            design.inputs[:, :effect], design.inputs[:, effect]
        )
        np.testing.assert_allclose(objective.strengths()[:effect, effect], peer.coef_, atol=2e-4)
    assert not np.tril(objective.strengths()).any()


def test_adam_finds_the_least_squares_solution_without_penalty() -> None:
    columns = np.random.default_rng(6).normal(size=(100, 3)).cumsum(axis=1)
    names = ("a", "b", "c")
    design = build_design_matrix(columns, names, ("continuous",) * 3, standardise=True)
    objective = LinearObjective(
        design, Knowledge().constraints(names), noise="equal", l1=0.0, device=CPU
    )
    adam(objective, None, steps=4000, rate=0.01)
    for effect in range(3):
        others = [j for j in range(3) if j != effect]
        expected = np.linalg.lstsq(design.inputs[:, others], design.inputs[:, effect], rcond=None)[
            0
        ]
        np.testing.assert_allclose(objective.strengths()[others, effect], expected, atol=1e-3)


def test_after_backtracking_both_gradients_are_at_the_same_point() -> None:
    columns = np.random.default_rng(7).normal(size=(100, 3)).cumsum(axis=1)
    names = ("a", "b", "c")
    design = build_design_matrix(columns, names, ("continuous",) * 3, standardise=True)
    points: dict[str, list[torch.Tensor]] = {"fit": [], "penalty": []}
    backtracks = 0

    class Recorded(LinearObjective):
        def gradients(self) -> list[torch.Tensor]:
            points["fit"].append(self.squares())
            return super().gradients()

    def penalty(squares: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal backtracks
        if squares.max() > 0.09:  # outside the domain
            backtracks += 1
            return torch.tensor(float("inf")), squares
        points["penalty"].append(squares)
        return squares.sum(), torch.ones_like(squares)

    adam(
        Recorded(design, Knowledge().constraints(names), noise="equal", l1=0.0, device=CPU),
        penalty,
        steps=20,
        rate=0.1,
    )
    assert backtracks > 0
    for fit, constraint in zip(points["fit"], points["penalty"], strict=True):
        torch.testing.assert_close(fit, constraint, rtol=0, atol=0)
