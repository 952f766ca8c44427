"""Directions between a latent and a column: right on the worlds' own latents, blind to the scale of a latent, silent where there is none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import norm

from intervae.data.simulators import CrossModal
from intervae.models.cmcl_directions import (
    best_scale,
    curves,
    decide_edges,
    density,
    explained,
    margin,
    margin_by_chance,
    margin_of_scale,
    normal_scores,
    splines,
)
from intervae.nets.node_networks import NodeNetworks

ROWS = 1000


def bent(rng: np.random.Generator, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian cause and an effect of it with Gaussian noise."""
    cause = rng.normal(size=rows)
    return cause, 3 * np.tanh(cause) + rng.normal(size=rows)


# ---- the likelihoods ------------------------------------------------------------------------------------------------
def test_a_free_scale_with_nothing_to_explain_is_the_density_of_the_values() -> None:
    """A Gaussian, and a cube root of one, whose densities are known."""
    drawn = np.random.default_rng(0).normal(size=2000)
    constant = np.ones((2000, 1))
    for values, truth in ((2 * drawn + 1, norm.logpdf(drawn) - np.log(2)), (np.sinh(drawn), norm.logpdf(drawn) - np.log(np.cosh(drawn)))):
        gap = best_scale(values, constant) - truth.sum()
        assert -5 < gap < 10  # eleven parameters are worth 5.5 nats of chance


def test_a_free_scale_finds_the_one_on_which_noise_is_gaussian() -> None:
    """3 asinh z = f(u) + e: the likelihood is that of the regression on this scale, with its Jacobian."""
    rng = np.random.default_rng(1)
    cause, effect = bent(rng, 2000)
    truth = norm.logpdf(effect - 3 * np.tanh(cause)).sum() - np.log(np.cosh(effect / 3) / 3).sum()
    found = best_scale(np.sinh(effect / 3), splines(cause))
    assert -10 < found - truth < 20


def test_the_explained_share_is_that_of_the_signal_and_chance_explains_nothing() -> None:
    rng = np.random.default_rng(2)
    cause, effect = bent(rng, 4000)
    share, gain = explained(np.stack([effect, rng.normal(size=4000)], axis=1), cause)
    assert share[0] == pytest.approx(np.var(3 * np.tanh(cause)) / np.var(effect), abs=0.02)
    assert share[1] < 0.01
    assert gain[0] > 1000
    assert gain[1] < 0


# ---- directions -----------------------------------------------------------------------------------------------------
def test_directions_of_the_worlds_are_right_however_the_pictures_show_their_latents() -> None:
    right = []
    for world in range(2):
        simulator = CrossModal(graph="8/16", world=world, weakest=2.0)
        noises = simulator.sample_exogenous(ROWS, np.random.default_rng(world))
        values, names = simulator.simulate(noises), simulator.graph.names
        for cause, effect, _ in simulator.graph.edges:
            latent, column = sorted((names.index(cause), names.index(effect)))  # latents come first
            shown = simulator.warps[latent](values[:, latent]) + noises[:, len(names) + latent]
            right.append((margin(values[:, column], shown) > 0) == (cause[0] == "u"))
    assert len(right) == 16
    assert all(right)


def test_no_increasing_or_decreasing_map_of_the_latent_and_no_unit_of_the_column_counts() -> None:
    rng = np.random.default_rng(3)
    cause, effect = bent(rng)
    for column, latent, sign in ((cause, effect, 1), (effect, cause, -1)):
        found = margin(column, latent)
        assert sign * found > 20
        for other in (margin(column, 10 * latent), margin(column, -latent), margin(column, np.exp(latent)), margin(5 - 100 * column, latent)):
            assert other == pytest.approx(found, rel=1e-3, abs=0.05)


def test_a_straight_relation_of_gaussians_has_no_direction() -> None:
    rng = np.random.default_rng(4)
    column = rng.normal(size=ROWS)
    assert abs(margin(column, 2 * column + rng.normal(size=ROWS))) < 10


@pytest.mark.parametrize("rows", [700, 1600])
def test_a_cause_need_not_be_gaussian(rows: int) -> None:
    """The paper's two experiments on MNIST: an angle from 0 to 10 that turns by its square, and a shift that is straight but for its ends."""
    rng = np.random.default_rng(5)
    angle, shift, noise = rng.uniform(0, 10, rows), rng.uniform(-5, 5, rows), rng.normal(size=rows)
    assert margin(angle, 0.9 * angle**2 + noise) > 50
    assert margin(shift, shift + np.sqrt(2) * noise) > 20
    latent = rng.uniform(-2, 2, rows)
    assert margin(3 * np.tanh(latent) + noise, latent) < -10


SKEWED: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {  # effects of a latent whose noise is not Gaussian
    "exponential": lambda rng, z: 3 * np.tanh(z) + rng.exponential(size=len(z)),
    "lognormal": lambda rng, z: z + rng.lognormal(size=len(z)),
    "uniform": lambda rng, z: 3 * np.tanh(z) + rng.uniform(-1.7, 1.7, len(z)),
}


@pytest.mark.parametrize("noise", SKEWED)
def test_an_effect_whose_noise_is_not_gaussian_is_no_cause(noise: str) -> None:
    """Its noise may have any density, as a cause may: with a Gaussian one all of the first two kinds were turned."""
    rng = np.random.default_rng(12)
    for _ in range(2):
        latent = rng.normal(size=700)
        assert margin(SKEWED[noise](rng, latent), latent) < -10


@pytest.mark.parametrize(("rows", "noise"), [(700, 0.02), (700, 0.05), (1400, 0.05), (1400, 0.1)])
def test_a_uniform_effect_with_little_noise_is_no_cause(rows: int, noise: float) -> None:
    """The ranks of the latent scatter by more than the noise: with seven knots f could not follow, and all were turned, by 18 to 298 nats."""
    rng = np.random.default_rng(15)
    for _ in range(3):
        latent = rng.normal(size=rows)
        column = 10 * norm.cdf(latent) + noise * rng.normal(size=rows)
        assert margin(column, latent) - margin_by_chance(column)[0] < 0


def test_where_there_is_hardly_any_noise_a_margin_is_no_evidence() -> None:
    """A uniform cause of a straight relation is called the effect by tens of nats, as a uniform effect is: but for the ends their rows are alike."""
    rng = np.random.default_rng(16)
    for _ in range(3):
        column = rng.uniform(0, 10, 700)
        latent = column + 0.2 * rng.normal(size=700)
        mean, spread = margin_by_chance(column)
        assert margin(column, latent) - mean < -2 * spread


def test_finer_knots_are_taken_only_where_they_pay() -> None:
    rng = np.random.default_rng(17)
    cause, effect = bent(rng)
    assert [(basis.shape[1], price) for basis, price in curves(cause, effect)] == [(7, 0.0)]
    wave = np.sin(8 * cause) + 0.1 * rng.normal(size=ROWS)
    (_, none), (finer, price) = curves(cause, wave)
    assert none == 0
    assert finer.shape[1] > 14
    assert price == pytest.approx(0.5 * (finer.shape[1] - 7) * np.log(ROWS))
    assert np.std(wave - finer @ np.linalg.lstsq(finer, wave, rcond=None)[0]) < 0.15


def test_a_density_is_a_gaussian_or_a_free_one_and_the_free_one_has_its_price() -> None:
    rng = np.random.default_rng(13)
    normal, even = rng.normal(size=ROWS), rng.uniform(size=ROWS)
    assert density(normal) == pytest.approx(norm.logpdf(normal, normal.mean(), normal.std()).sum())
    assert -4 * np.log(ROWS) - 5 < density(even) < 5  # its true density is 1, and eight slopes have a price
    assert norm.logpdf(even, even.mean(), even.std()).sum() < -150


def test_a_column_that_has_nothing_to_do_with_a_latent_speaks_for_no_direction() -> None:
    """By its density alone a uniform or a skewed column would count as a cause: that much is taken off."""
    rng = np.random.default_rng(14)
    for column in (rng.uniform(size=700), rng.exponential(size=700), rng.normal(size=700)):
        mean, spread = margin_by_chance(column)
        found = np.mean([margin(column, rng.normal(size=700)) for _ in range(3)])
        assert abs(found - mean) < 4 * spread
        assert (mean > 10) == (column.min() >= 0)  # not of the Gaussian
    assert margin_by_chance(column) == margin_by_chance(column)
    given = decide_edges(np.stack([3 * np.tanh(column)], 1), column[:, None], threshold=0.2, one_each=True, by_chance={0: 1000.0})
    assert given.margins[0, 0] < -500
    assert given.effects[0, 0] > 0.9


# ---- which pairs ----------------------------------------------------------------------------------------------------
def test_pairs_are_found_one_to_one_or_as_many_as_there_are() -> None:
    rng = np.random.default_rng(6)
    (a, of_a), (before_b, b) = bent(rng), bent(rng)  # column a causes the second latent; the first latent causes column b
    columns = np.stack([a, b, rng.normal(size=ROWS)], axis=1)
    latents = np.stack([before_b, of_a, of_a + 4 * rng.normal(size=ROWS), np.zeros(ROWS)], axis=1)  # the third leaks from the second
    one = decide_edges(latents, columns, threshold=0.2, one_each=True)
    assert np.argwhere(one.causes).tolist() == [[0, 1]]
    assert np.argwhere(one.effects).tolist() == [[0, 1]]
    assert one.causes[0, 1] == pytest.approx(np.sqrt(np.var(3 * np.tanh(a)) / np.var(of_a)), abs=0.05)
    many = decide_edges(latents, columns, threshold=0.2, one_each=False)
    assert {tuple(pair) for pair in np.argwhere(many.margins)} == {(0, 1), (0, 2), (1, 0)}
    strict = decide_edges(latents, columns, threshold=0.7, one_each=False)
    assert {tuple(pair) for pair in np.argwhere(strict.margins)} == {(0, 1), (1, 0)}


def test_columns_of_categories_join_the_matching_and_have_no_margin() -> None:
    """The disease goes with the latent that tells it best and with no other; a code of three values that are in no order with another."""
    rng = np.random.default_rng(10)
    disease, code = rng.integers(0, 2, ROWS), rng.integers(0, 3, ROWS)
    cause, effect = bent(rng)
    latents = np.stack([effect, np.array([1.0, 3.0, -1.0])[code], 2.0 * disease, 2.0 * disease, np.zeros(ROWS)], axis=1)
    latents += np.array([0.0, 1, 1, 2, 1]) * rng.normal(size=(ROWS, 5))
    columns, kinds = np.stack([disease, cause, code], axis=1), ("binary", "continuous", "categorical")
    one = decide_edges(latents, columns, threshold=0.2, one_each=True, kinds=kinds)
    assert np.argwhere(one.causes).tolist() == [[0, 2], [1, 0], [2, 1]]
    assert not one.effects.any()
    assert np.argwhere(one.margins).tolist() == [[1, 0]]
    assert one.causes[0, 2] == pytest.approx(2**-0.5, abs=0.04)
    many = decide_edges(latents, columns, threshold=0.2, one_each=False, kinds=kinds)
    assert {tuple(pair) for pair in np.argwhere(many.causes + many.effects.T)} == {(0, 2), (0, 3), (1, 0), (2, 1)}


def test_the_direction_of_a_binary_column_is_that_of_the_latents_own_scale_and_turns_with_it() -> None:
    """Right where the scale is the one on which noise is Gaussian, and the other way round on another: so its margin is 0."""
    rng = np.random.default_rng(11)
    for _ in range(5):
        coin, free = rng.integers(0, 2, ROWS).astype(float), rng.normal(size=ROWS)
        caused, logits = 3 * coin + rng.normal(size=ROWS), 4 * free
        effect = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-logits))).astype(float)
        assert margin_of_scale(coin, caused) > 2
        assert margin_of_scale(effect, free) < -2
        assert margin_of_scale(coin, np.sinh(caused)) < -2
        assert margin_of_scale(effect, np.tanh(free / 2)) > 2


def test_too_little_data_and_constants_have_no_edges() -> None:
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(60, 4))
    for latents, columns in ((noise[:10, :2], noise[:10, :2]), (np.zeros((60, 2)), noise), (noise, np.ones((60, 2))), (noise[:, :2], noise[:, 2:])):
        found = decide_edges(latents, columns, threshold=0.2, one_each=False)
        assert not found.causes.any()
        assert not found.effects.any()


def test_normal_scores_are_standard_normal_and_ordered() -> None:
    values = np.random.default_rng(8).exponential(size=500)
    scores = normal_scores(values)
    assert np.array_equal(scores.argsort(), values.argsort())
    assert scores.mean() == pytest.approx(0, abs=1e-12)
    assert scores.std() == pytest.approx(1, abs=0.01)


# ---- mechanisms once more -------------------------------------------------------------------------------------------
def test_mechanisms_are_fitted_anew_to_the_decided_parents_alone() -> None:
    rng = np.random.default_rng(9)
    cause, effect = bent(rng)
    scale = effect.std()
    inputs = torch.tensor(np.stack([effect / scale, cause, rng.normal(size=ROWS)], axis=1), dtype=torch.float32)
    edges = torch.zeros(3, 3)
    edges[1, 0] = 1.0
    networks = NodeNetworks(["continuous"] * 3, [1] * 3, torch.ones(3, 3), (10,), "tanh", 2.0)
    networks.refit(inputs, inputs, edges, steps=300, rate=0.01, decay=0.001)
    assert (networks.strengths > 0).float().equal(edges)
    x = torch.linspace(-2, 2, 9)
    found = networks(torch.stack([torch.zeros(9), x, torch.zeros(9)], dim=1))[0, :, 0].detach()
    torch.testing.assert_close(found, 3 * torch.tanh(x) / scale, atol=0.12, rtol=0)
    assert networks.log_noise[0].exp().item() == pytest.approx(1 / scale**2, rel=0.15)
    again = NodeNetworks(["continuous"] * 3, [1] * 3, torch.ones(3, 3), (10,), "tanh", 2.0)
    again.refit(inputs, inputs, edges, steps=300, rate=0.01, decay=0.001)
    assert torch.equal(again(inputs), networks(inputs))
