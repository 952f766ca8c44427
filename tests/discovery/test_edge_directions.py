"""Direction between a latent and a column: right on simulations, unchanged by monotone maps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import norm

from intervae.data.simulators import CrossModal
from intervae.discovery.edge_directions import (
    categorical_margin,
    chance_margin,
    decide_edges,
    direction_margin,
)
from intervae.discovery.spline_likelihood import (
    candidate_bases,
    density_log_likelihood,
    explained_variance,
    monotone_map_log_likelihood,
    natural_spline_basis,
    normal_scores,
)
from intervae.nets.node_networks import NodeNetworks

ROWS = 1000


def curved(rng: np.random.Generator, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian cause and an effect of it with Gaussian noise."""
    cause = rng.normal(size=rows)
    return cause, 3 * np.tanh(cause) + rng.normal(size=rows)


# ---- the likelihoods -----------------------------------------------------------------------------
def test_monotone_map_with_a_constant_basis_is_a_free_density() -> None:
    """A Gaussian and the sinh of one, whose densities are known."""
    normal = np.random.default_rng(0).normal(size=2000)
    constant = np.ones((2000, 1))
    for values, truth in (
        (2 * normal + 1, norm.logpdf(normal) - np.log(2)),
        (np.sinh(normal), norm.logpdf(normal) - np.log(np.cosh(normal))),
    ):
        gap = monotone_map_log_likelihood(values, constant) - truth.sum()
        assert -5 < gap < 10  # eleven parameters are worth 5.5 nats of chance


def test_monotone_map_finds_the_scale_with_gaussian_noise() -> None:
    """3 asinh z = f(u) + e: the likelihood of the regression on this scale, with the Jacobian."""
    rng = np.random.default_rng(1)
    cause, effect = curved(rng, 2000)
    truth = norm.logpdf(effect - 3 * np.tanh(cause)).sum() - np.log(np.cosh(effect / 3) / 3).sum()
    fit = monotone_map_log_likelihood(np.sinh(effect / 3), natural_spline_basis(cause))
    assert -10 < fit - truth < 20


def test_explained_variance_is_that_of_the_signal() -> None:
    rng = np.random.default_rng(2)
    cause, effect = curved(rng, 4000)
    share, gain = explained_variance(np.stack([effect, rng.normal(size=4000)], axis=1), cause)
    assert share[0] == pytest.approx(np.var(3 * np.tanh(cause)) / np.var(effect), abs=0.02)
    assert share[1] < 0.01
    assert gain[0] > 1000
    assert gain[1] < 0


# ---- directions ----------------------------------------------------------------------------------
def test_directions_of_simulated_data_are_right_under_monotone_maps() -> None:
    right = []
    for world in range(2):
        simulator = CrossModal(graph="8/16", world=world, weakest=2.0)
        noises = simulator.sample_exogenous(ROWS, np.random.default_rng(world))
        values, names = simulator.simulate(noises), simulator.graph.names
        for cause, effect, _ in simulator.graph.edges:
            latent, column = sorted((names.index(cause), names.index(effect)))  # latents come first
            observed = (
                simulator.transforms[latent](values[:, latent]) + noises[:, len(names) + latent]
            )
            right.append((direction_margin(values[:, column], observed) > 0) == (cause[0] == "u"))
    assert len(right) == 16
    assert all(right)


def test_margin_ignores_monotone_maps_of_the_latent_and_units_of_the_column() -> None:
    rng = np.random.default_rng(3)
    cause, effect = curved(rng)
    for column, latent, sign in ((cause, effect, 1), (effect, cause, -1)):
        margin = direction_margin(column, latent)
        assert sign * margin > 20
        for mapped in (
            direction_margin(column, 10 * latent),
            direction_margin(column, -latent),
            direction_margin(column, np.exp(latent)),
            direction_margin(5 - 100 * column, latent),
        ):
            assert mapped == pytest.approx(margin, rel=1e-3, abs=0.05)


def test_a_linear_relation_of_gaussians_has_no_direction() -> None:
    rng = np.random.default_rng(4)
    column = rng.normal(size=ROWS)
    assert abs(direction_margin(column, 2 * column + rng.normal(size=ROWS))) < 10


@pytest.mark.parametrize("rows", [700, 1600])
def test_a_uniform_cause_is_recognised(rows: int) -> None:
    """As in the paper's MNIST experiments: an angle that rotates by its square, and a shift."""
    rng = np.random.default_rng(5)
    angle, shift, noise = rng.uniform(0, 10, rows), rng.uniform(-5, 5, rows), rng.normal(size=rows)
    assert direction_margin(angle, 0.9 * angle**2 + noise) > 50
    assert direction_margin(shift, shift + np.sqrt(2) * noise) > 20
    latent = rng.uniform(-2, 2, rows)
    assert direction_margin(3 * np.tanh(latent) + noise, latent) < -10


# effects of a latent, with noise that is not Gaussian
SKEWED: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "exponential": lambda rng, z: 3 * np.tanh(z) + rng.exponential(size=len(z)),
    "lognormal": lambda rng, z: z + rng.lognormal(size=len(z)),
    "uniform": lambda rng, z: 3 * np.tanh(z) + rng.uniform(-1.7, 1.7, len(z)),
}


@pytest.mark.parametrize("noise", SKEWED)
def test_an_effect_with_noise_that_is_not_gaussian_is_recognised(noise: str) -> None:
    """With a Gaussian density of the noise, all effects of the first two kinds were reversed."""
    rng = np.random.default_rng(12)
    for _ in range(2):
        latent = rng.normal(size=700)
        assert direction_margin(SKEWED[noise](rng, latent), latent) < -10


@pytest.mark.parametrize(("rows", "noise"), [(700, 0.02), (700, 0.05), (1400, 0.05), (1400, 0.1)])
def test_a_uniform_effect_with_little_noise_is_recognised(rows: int, noise: float) -> None:
    """The ranks of the latent scatter by more than the noise.

    With seven knots f could not follow them, and all were reversed, by 18 to 298 nats.
    """
    rng = np.random.default_rng(15)
    for _ in range(3):
        latent = rng.normal(size=rows)
        column = 10 * norm.cdf(latent) + noise * rng.normal(size=rows)
        assert direction_margin(column, latent) - chance_margin(column)[0] < 0


def test_with_hardly_any_noise_the_margin_is_no_evidence() -> None:
    """A uniform cause of a linear relation gets tens of nats for the wrong direction."""
    rng = np.random.default_rng(16)
    for _ in range(3):
        column = rng.uniform(0, 10, 700)
        latent = column + 0.2 * rng.normal(size=700)
        mean, spread = chance_margin(column)
        assert direction_margin(column, latent) - mean < -2 * spread


def test_finer_knots_are_used_only_where_they_improve_the_bic() -> None:
    rng = np.random.default_rng(17)
    cause, effect = curved(rng)
    assert [(basis.shape[1], penalty) for basis, penalty in candidate_bases(cause, effect)] == [
        (7, 0.0)
    ]
    wave = np.sin(8 * cause) + 0.1 * rng.normal(size=ROWS)
    (_, usual_penalty), (finer, penalty) = candidate_bases(cause, wave)
    assert usual_penalty == 0
    assert finer.shape[1] > 14
    assert penalty == pytest.approx(0.5 * (finer.shape[1] - 7) * np.log(ROWS))
    assert np.std(wave - finer @ np.linalg.lstsq(finer, wave, rcond=None)[0]) < 0.15


def test_density_is_gaussian_or_free_by_bic() -> None:
    rng = np.random.default_rng(13)
    normal, even = rng.normal(size=ROWS), rng.uniform(size=ROWS)
    assert density_log_likelihood(normal) == pytest.approx(
        norm.logpdf(normal, normal.mean(), normal.std()).sum()
    )
    assert (
        -4 * np.log(ROWS) - 5 < density_log_likelihood(even) < 5
    )  # the true density is 1; eight slopes are penalised
    assert norm.logpdf(even, even.mean(), even.std()).sum() < -150


def test_chance_margin_is_the_margin_with_unrelated_latents() -> None:
    """By its density alone a uniform or skewed column would count as a cause."""
    rng = np.random.default_rng(14)
    for column in (rng.uniform(size=700), rng.exponential(size=700), rng.normal(size=700)):
        mean, spread = chance_margin(column)
        margin = np.mean([direction_margin(column, rng.normal(size=700)) for _ in range(3)])
        assert abs(margin - mean) < 4 * spread
        assert (mean > 10) == (column.min() >= 0)  # 0 for the Gaussian
    assert chance_margin(column) == chance_margin(column)
    decision = decide_edges(
        np.stack([3 * np.tanh(column)], 1),
        column[:, None],
        threshold=0.2,
        one_edge_per_node=True,
        chance_margins={0: 1000.0},
    )
    assert decision.margins[0, 0] < -500
    assert decision.effects[0, 0] > 0.9


# ---- which pairs ---------------------------------------------------------------------------------
def test_edges_are_one_to_one_or_unrestricted() -> None:
    rng = np.random.default_rng(6)
    # column a causes the second latent; the first latent causes column b
    (a, effect_of_a), (cause_of_b, b) = curved(rng), curved(rng)
    columns = np.stack([a, b, rng.normal(size=ROWS)], axis=1)
    noisy_copy = effect_of_a + 4 * rng.normal(size=ROWS)
    latents = np.stack([cause_of_b, effect_of_a, noisy_copy, np.zeros(ROWS)], axis=1)
    matched = decide_edges(latents, columns, threshold=0.2, one_edge_per_node=True)
    assert np.argwhere(matched.causes).tolist() == [[0, 1]]
    assert np.argwhere(matched.effects).tolist() == [[0, 1]]
    assert matched.causes[0, 1] == pytest.approx(
        np.sqrt(np.var(3 * np.tanh(a)) / np.var(effect_of_a)), abs=0.05
    )
    unrestricted = decide_edges(latents, columns, threshold=0.2, one_edge_per_node=False)
    assert {tuple(pair) for pair in np.argwhere(unrestricted.margins)} == {(0, 1), (0, 2), (1, 0)}
    strict = decide_edges(latents, columns, threshold=0.7, one_edge_per_node=False)
    assert {tuple(pair) for pair in np.argwhere(strict.margins)} == {(0, 1), (1, 0)}


def test_categorical_columns_are_matched_and_have_no_margin() -> None:
    """Each column is matched with the latent that depends most on it."""
    rng = np.random.default_rng(10)
    disease, code = rng.integers(0, 2, ROWS), rng.integers(0, 3, ROWS)
    cause, effect = curved(rng)
    latents = np.stack(
        [effect, np.array([1.0, 3.0, -1.0])[code], 2.0 * disease, 2.0 * disease, np.zeros(ROWS)],
        axis=1,
    )
    latents += np.array([0.0, 1, 1, 2, 1]) * rng.normal(size=(ROWS, 5))
    columns, kinds = (
        np.stack([disease, cause, code], axis=1),
        ("binary", "continuous", "categorical"),
    )
    matched = decide_edges(latents, columns, threshold=0.2, one_edge_per_node=True, kinds=kinds)
    assert np.argwhere(matched.causes).tolist() == [[0, 2], [1, 0], [2, 1]]
    assert not matched.effects.any()
    assert np.argwhere(matched.margins).tolist() == [[1, 0]]
    assert matched.causes[0, 2] == pytest.approx(2**-0.5, abs=0.04)
    unrestricted = decide_edges(
        latents, columns, threshold=0.2, one_edge_per_node=False, kinds=kinds
    )
    assert {tuple(pair) for pair in np.argwhere(unrestricted.causes + unrestricted.effects.T)} == {
        (0, 2),
        (0, 3),
        (1, 0),
        (2, 1),
    }


def test_the_direction_of_a_binary_column_depends_on_the_latents_scale() -> None:
    """It is right on the scale with Gaussian noise and reversed on another scale."""
    rng = np.random.default_rng(11)
    for _ in range(5):
        coin, free = rng.integers(0, 2, ROWS).astype(float), rng.normal(size=ROWS)
        caused, logits = 3 * coin + rng.normal(size=ROWS), 4 * free
        effect = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-logits))).astype(float)
        assert categorical_margin(coin, caused) > 2
        assert categorical_margin(effect, free) < -2
        assert categorical_margin(coin, np.sinh(caused)) < -2
        assert categorical_margin(effect, np.tanh(free / 2)) > 2


def test_few_rows_and_constants_have_no_edges() -> None:
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(60, 4))
    for latents, columns in (
        (noise[:10, :2], noise[:10, :2]),
        (np.zeros((60, 2)), noise),
        (noise, np.ones((60, 2))),
        (noise[:, :2], noise[:, 2:]),
    ):
        decision = decide_edges(latents, columns, threshold=0.2, one_edge_per_node=False)
        assert not decision.causes.any()
        assert not decision.effects.any()


def test_normal_scores_are_standard_normal_and_ordered() -> None:
    values = np.random.default_rng(8).exponential(size=500)
    scores = normal_scores(values)
    assert np.array_equal(scores.argsort(), values.argsort())
    assert scores.mean() == pytest.approx(0, abs=1e-12)
    assert scores.std() == pytest.approx(1, abs=0.01)


# ---- final fit of the mechanisms -----------------------------------------------------------------
def test_refit_uses_the_decided_parents_only() -> None:
    rng = np.random.default_rng(9)
    cause, effect = curved(rng)
    scale = effect.std()
    inputs = torch.tensor(
        np.stack([effect / scale, cause, rng.normal(size=ROWS)], axis=1), dtype=torch.float32
    )
    edges = torch.zeros(3, 3)
    edges[1, 0] = 1.0
    networks = NodeNetworks(["continuous"] * 3, [1] * 3, torch.ones(3, 3), (10,), "tanh", 2.0)
    networks.refit(inputs, inputs, edges, steps=300, rate=0.01, decay=0.001)
    assert (networks.strengths > 0).float().equal(edges)
    x = torch.linspace(-2, 2, 9)
    outputs = networks(torch.stack([torch.zeros(9), x, torch.zeros(9)], dim=1))[0, :, 0].detach()
    torch.testing.assert_close(outputs, 3 * torch.tanh(x) / scale, atol=0.12, rtol=0)
    assert networks.log_noise[0].exp().item() == pytest.approx(1 / scale**2, rel=0.15)
    again = NodeNetworks(["continuous"] * 3, [1] * 3, torch.ones(3, 3), (10,), "tanh", 2.0)
    again.refit(inputs, inputs, edges, steps=300, rate=0.01, decay=0.001)
    assert torch.equal(again(inputs), networks(inputs))
