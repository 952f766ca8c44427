"""The structural equation model: mechanisms, jacobians, exact densities, sampling, interventions and edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from intervae.causal.sem import SEM
from intervae.errors import DataError, QueryError, UsageError

FORMS = ("linear", "quadratic", "mlp")
MAXIMAL = torch.ones(5, 5).triu(1)
DIAMOND = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])  # 0 -> 1, 2 -> 3; 4 alone


def build(form: str = "linear", allowed: Tensor = MAXIMAL, seed: int = 0, strength: float = 1.0, **settings) -> SEM:
    """A SEM in double precision whose parameters are all drawn."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    sem = SEM(allowed, form=form, **settings).double()
    with torch.no_grad():
        if form == "linear":
            sem.weights.copy_(strength * torch.randn(sem.weights.shape, generator=generator) * sem.allowed)
        if sem.learn_edges:
            sem.edge_logits.copy_(torch.randn(sem.allowed.shape, generator=generator) * sem.allowed)
        if isinstance(sem.log_scales, torch.nn.Parameter) and "scales" not in settings:
            sem.log_scales.copy_(0.4 * torch.randn(sem.d, generator=generator))
    return sem


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_edges(sem: SEM, seed: int = 3) -> Tensor:
    return sem.sample_edges(torch.Generator().manual_seed(seed)).detach()


# ---- mechanisms -----------------------------------------------------------------------------------------------------
def test_the_parabola_is_the_papers():
    sem = SEM(torch.tensor([[0, 1], [0, 0]]), form="quadratic")
    torch.testing.assert_close(sem.mean(torch.tensor([[3.0, 5.0]])), torch.tensor([[0.0, 9.0]]))
    torch.testing.assert_close(sem.mean(torch.tensor([[3.0, 5.0]]), torch.tensor([[0.0, 0.5], [0.0, 0.0]])), torch.tensor([[0.0, 4.5]]))
    assert [name for name, _ in sem.named_parameters()] == ["log_scales", "edge_logits"]


def test_linear_mechanisms_are_sums_over_parents_row_to_column():
    sem, z = build("linear", DIAMOND), draw(5)
    with torch.no_grad():
        w = sem.weights
        by_hand = torch.stack([z[0] * 0, w[0, 1] * z[0], w[0, 2] * z[0], w[1, 3] * z[1] + w[2, 3] * z[2], z[0] * 0])
        torch.testing.assert_close(sem.mean(z), by_hand)
    assert (sem.weights[DIAMOND == 0] == 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_mechanism_sees_its_parents_only(form):
    sem, z = build(form, DIAMOND), draw(6, 5)
    edges = some_edges(sem)
    for j in range(5):
        moved = z.clone()
        moved[:, j] += 1.7
        changed = (sem.mean(moved, edges) != sem.mean(z, edges)).any(0)
        assert changed.tolist() == (DIAMOND[j] > 0).tolist()


@pytest.mark.parametrize("form", FORMS)
def test_jacobian_equals_autograd_and_finite_differences(form):
    sem, z = build(form), draw(4, 5)
    edges = some_edges(sem)
    found = sem.jacobian(z, edges)
    by_autograd = torch.func.vmap(torch.func.jacrev(lambda row: sem.mean(row, edges)))(z)
    torch.testing.assert_close(found, by_autograd, rtol=1e-12, atol=1e-12)
    step = 1e-5 * torch.eye(5, dtype=torch.float64)
    columns = (sem.mean(z[:, None] + step, edges) - sem.mean(z[:, None] - step, edges)) / 2e-5  # (B, j, i)
    torch.testing.assert_close(found, columns.mT, rtol=1e-7, atol=1e-8)
    assert (found.triu() == 0).all()
    assert (found.tril(-1).abs().amax(0) > 0)[torch.ones(5, 5).tril(-1) > 0].all()


@pytest.mark.parametrize("form", FORMS)
def test_edges_of_strength_zero_remove_rows_of_the_jacobian_and_mechanisms(form):
    sem, z = build(form), draw(4, 5)
    edges = torch.zeros(5, 5, dtype=torch.float64)
    edges[1, 3] = 0.7
    found = sem.jacobian(z, edges)
    assert (found[:, 3, 1] != 0).all()
    found = found.clone()
    found[:, 3, 1] = 0
    assert (found == 0).all()
    assert (sem.mean(z, torch.zeros_like(edges)) == 0).all()  # no mechanism left: the prior of a plain VAE
    torch.testing.assert_close(sem.mean(z, torch.ones_like(edges)), sem.mean(z))  # what is not allowed stays out


@pytest.mark.parametrize("form", FORMS)
def test_jacobian_is_differentiable_and_any_batch_shape_goes(form):
    sem, z = build(form), draw(2, 3, 5).requires_grad_()
    edges = sem.sample_edges(torch.Generator().manual_seed(0))
    found = sem.jacobian(z, edges)
    assert found.shape == (2, 3, 5, 5)
    torch.testing.assert_close(found[1, 2], sem.jacobian(z[1, 2], edges))
    torch.testing.assert_close(sem.mean(z, edges)[1, 2], sem.mean(z[1, 2], edges))
    found.square().sum().backward()
    assert sem.edge_logits.grad.abs().sum() > 0
    if form != "linear":
        assert z.grad[..., :4].abs().min() > 0


def test_a_networks_output_has_a_fixed_scale_whatever_its_weights():
    sem = build("mlp", learn_edges=False)
    reference = sem.networks.reference
    before = sem.mean(reference).std(0, correction=0)
    with torch.no_grad():
        sem.networks.last.mul_(50.0)
        sem.networks.bias.add_(0.3)
    after = sem.mean(reference).std(0, correction=0)
    expected = torch.tensor([0.0, 1, 1, 1, 1], dtype=torch.float64)
    torch.testing.assert_close(before, expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=0)
    fresh = sem.mean(draw(20000, 5, seed=9)).std(0)  # other draws of the same distribution
    torch.testing.assert_close(fresh, expected, rtol=0.15, atol=0)
    sem.eval()
    torch.testing.assert_close(sem.mean(reference[:1]), sem.train().mean(reference)[:1])  # no statistics of a batch


def test_networks_for_a_sem_without_edges_are_none():
    sem = build("mlp", torch.zeros(3, 3))
    z = draw(4, 3)
    assert (sem.mean(z) == 0).all()
    assert sem.jacobian(z).shape == (4, 3, 3)
    torch.testing.assert_close(sem.from_noises(z), z)
    assert sem.coupled == ()


# ---- density and draws ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
def test_log_density_is_the_chain_of_conditionals(form):
    sem, z = build(form), draw(7, 5)
    edges = some_edges(sem)
    chain = sum(Normal(sem.mean(z, edges)[:, i], sem.log_scales[i].exp()).log_prob(z[:, i]) for i in range(5))
    torch.testing.assert_close(sem.log_density(z, edges), chain, rtol=1e-12, atol=1e-12)


def test_log_density_of_a_linear_sem_is_the_multivariate_normal():
    sem, z = build("linear"), draw(7, 5)
    root = torch.linalg.inv(torch.eye(5, dtype=torch.float64) - sem.weights.detach().T) * sem.log_scales.detach().exp()
    exact = MultivariateNormal(torch.zeros(5, dtype=torch.float64), root @ root.T).log_prob(z)
    torch.testing.assert_close(sem.log_density(z), exact, rtol=1e-10, atol=1e-10)


def test_log_density_integrates_to_one():
    sem = SEM(torch.tensor([[0, 1], [0, 0]]), form="quadratic", scales=[1.0, 0.5]).double()
    x, y = torch.linspace(-5, 5, 501, dtype=torch.float64), torch.linspace(-4, 29, 1651, dtype=torch.float64)
    density = sem.log_density(torch.cartesian_prod(x, y)).exp()
    assert (density.sum() * (x[1] - x[0]) * (y[1] - y[0])).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("allowed", [MAXIMAL, DIAMOND])
def test_noises_and_variables_are_inverse_to_each_other(form, allowed):
    sem, z = build(form, allowed), 0.7 * draw(9, 5)
    edges = some_edges(sem)
    torch.testing.assert_close(sem.from_noises(sem.noises(z, edges), edges), z, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(sem.noises(sem.from_noises(z, edges), edges), z, rtol=1e-9, atol=1e-9)


def test_ancestral_sampling_goes_in_the_order_of_the_variables():
    """The loop over single variables, which the levels replace."""
    sem, noise = build("mlp"), draw(3, 5)
    z = torch.zeros_like(noise)
    for i in range(5):
        z[:, i] = noise[:, i] + sem.mean(z)[:, i].detach()
    torch.testing.assert_close(sem.from_noises(noise), z)
    assert len(sem.levels) == 5
    assert build("linear", DIAMOND).levels.long().tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]]


def test_samples_have_the_moments_of_the_parabola():
    sem = SEM(torch.tensor([[0, 1], [0, 0]]), form="quadratic", scales=[1.0, 0.5])
    z = sem.sample(200_000, torch.Generator().manual_seed(0)).detach().double()
    assert z.mean(0).tolist() == pytest.approx([0, 1], abs=0.02)
    assert torch.cov(z.T).flatten().tolist() == pytest.approx([1, 0, 0, 2.25], abs=0.05)
    assert torch.equal(z, sem.sample(200_000, torch.Generator().manual_seed(0)).double())


def test_sampling_gives_gradients_to_everything():
    for form in FORMS:
        sem = build(form)
        sem.sample(64, torch.Generator().manual_seed(0), sem.sample_edges(torch.Generator().manual_seed(1))).square().mean().backward()
        for name, parameter in sem.named_parameters():
            assert parameter.grad is not None, (form, name)
            assert parameter.grad.abs().sum() > 0, (form, name)
            assert parameter.grad.isfinite().all()
            if parameter.shape == (5, 5):
                assert (parameter.grad[MAXIMAL == 0] == 0).all()  # what is not allowed never moves


def test_scales_that_are_not_learned_are_no_parameters():
    sem = SEM(MAXIMAL, scales=[1, 0.5, 1, 2, 1], learn_scales=False)
    torch.testing.assert_close(sem.log_scales.exp(), torch.tensor([1, 0.5, 1, 2, 1]))
    assert "log_scales" not in dict(sem.named_parameters())
    assert "log_scales" in sem.state_dict()
    assert sem.draw_noises(50_000, torch.Generator().manual_seed(0)).std(0).tolist() == pytest.approx([1, 0.5, 1, 2, 1], rel=0.02)


# ---- interventions --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
def test_do_clamps_reaches_descendants_and_leaves_the_rest_bit_equal(form):
    sem, noise = build(form, DIAMOND), draw(8, 5)
    before, after = sem.from_noises(noise), sem.from_noises(noise, do={1: torch.tensor(2.5)})
    assert (after[:, 1] == 2.5).all()
    assert torch.equal(after[:, [0, 2, 4]], before[:, [0, 2, 4]])
    assert (after[:, 3] != before[:, 3]).all()
    torch.testing.assert_close(after[:, 3], noise[:, 3] + sem.mean(after)[:, 3])  # its mechanism, with its own noise
    per_sample = draw(8, seed=4)
    assert torch.equal(sem.from_noises(noise, do={1: per_sample, 4: 1.0})[:, 1], per_sample)


@pytest.mark.parametrize("form", FORMS)
def test_intervening_on_data_abducts_and_keeps_what_is_not_reached_to_the_bit(form):
    sem, z = build(form).float(), draw(8, 5).float()
    edges = torch.ones(5, 5)
    edges[1, 2] = 0  # 1 reaches 2 neither directly ...
    after = sem.intervene(z, {1: torch.tensor(-1.3)}, edges)
    torch.testing.assert_close(after, sem.from_noises(sem.noises(z, edges), edges, {1: torch.tensor(-1.3)}), rtol=1e-3, atol=1e-3)
    assert torch.equal(after[:, [0, 2]], z[:, [0, 2]])
    assert (after[:, 3] != z[:, 3]).all()
    assert torch.equal(sem.intervene(z, {4: 0.0}, edges)[:, :4], z[:, :4])
    assert torch.equal(sem.intervene(z, {}, edges), z)


def test_several_interventions_at_once_cut_each_off_from_its_causes():
    sem, noise = build("linear"), draw(6, 5)
    after = sem.from_noises(noise, do={0: 1.0, 3: -2.0})
    assert (after[:, 0] == 1).all()
    assert (after[:, 3] == -2).all()
    torch.testing.assert_close(after[:, [1, 2, 4]], (noise + sem.mean(after))[:, [1, 2, 4]])
    with pytest.raises(QueryError, match="variable 5"):
        sem.from_noises(noise, do={5: 0.0})


# ---- edges ----------------------------------------------------------------------------------------------------------
def test_expected_edges_is_the_sum_of_probabilities_and_starts_dense():
    sem = SEM(DIAMOND)
    assert sem.expected_edges().item() == pytest.approx(4 / (1 + math.exp(-2)), rel=1e-6)
    assert torch.equal(sem.hard_edges(), DIAMOND.float())
    sem.expected_edges().backward()
    slope = 1 / (1 + math.exp(-2)) * (1 - 1 / (1 + math.exp(-2)))
    torch.testing.assert_close(sem.edge_logits.grad, slope * DIAMOND)


def test_concrete_edges_lie_within_zero_and_one_and_round_to_their_probability():
    sem = build("linear")
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([sem.sample_edges(generator).detach() for _ in range(4000)])
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert (drawn[:, MAXIMAL == 0] == 0).all()
    counted, probability = (drawn > 0.5).double().mean(0), sem.edge_probabilities().detach()
    assert (counted - probability).abs().max() < 4 * 0.5 / math.sqrt(4000)


def test_concrete_edges_at_the_limits_of_temperature_and_logit():
    cold, hot = build("linear", temperature=1e-3), build("linear", temperature=1e3)
    allowed = MAXIMAL > 0
    drawn = cold.sample_edges(torch.Generator().manual_seed(0))[allowed]
    assert torch.minimum(drawn, 1 - drawn).max() < 1e-6
    assert (hot.sample_edges(torch.Generator().manual_seed(0))[allowed] - 0.5).abs().max() < 0.01
    with torch.no_grad():
        cold.edge_logits.fill_(40.0)
    torch.testing.assert_close(cold.sample_edges(torch.Generator().manual_seed(0)), cold.allowed)
    with torch.no_grad():
        cold.edge_logits.fill_(-40.0)
    assert cold.sample_edges(torch.Generator().manual_seed(0)).max() < 1e-12


def test_edges_that_are_not_learned_are_all_there():
    sem = SEM(DIAMOND, learn_edges=False)
    for edges in (sem.edge_probabilities(), sem.sample_edges(), sem.hard_edges()):
        assert torch.equal(edges, DIAMOND.float())
    assert sem.expected_edges() == 4
    assert "edge_logits" not in dict(sem.named_parameters())
    assert sem.coupled == (0, 1, 2, 3)


def test_graph_holds_coefficients_of_a_linear_sem_and_probabilities_of_others():
    for form in FORMS:
        sem = build(form)
        graph = sem.graph("abcde")
        there = sem.edge_logits.detach() > 0
        assert 0 < there[MAXIMAL > 0].sum() < 10
        strengths = sem.weights if form == "linear" else sem.edge_probabilities()
        np.testing.assert_allclose(graph.weights, (strengths * there * sem.allowed).detach().numpy())
    assert SEM(DIAMOND, form="quadratic", learn_edges=False).graph("abcde").parents("d") == ["b", "c"]
    with pytest.raises(DataError, match="2 x 2"):
        sem.graph("ab")


# ---- pure and refused -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
def test_many_sems_at_once_under_vmap_equal_one_after_another(form):
    sem, z = build(form), draw(6, 5)

    class Everything(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sem = sem

        def forward(self, z, generator):
            edges = self.sem.sample_edges(generator)
            return self.sem.jacobian(z, edges).sum() + self.sem.log_density(z, edges).sum() + self.sem.sample(4, generator, edges).sum()

    whole = Everything()
    stacked = {name: torch.stack([p.detach(), p.detach() + 0.1]) for name, p in whole.named_parameters()}

    def gradient(parameters):
        return torch.func.grad(lambda p: torch.func.functional_call(whole, p, (z, torch.Generator().manual_seed(0))))(parameters)

    together = torch.func.vmap(gradient, randomness="same")(stacked)
    second = gradient({name: p[1] for name, p in stacked.items()})
    for name in second:
        torch.testing.assert_close(together[name][1], second[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_state_gives_the_same_sem(form):
    sem, z = build(form), draw(4, 5)
    other = build(form, seed=1)
    assert not torch.equal(other.log_density(z), sem.log_density(z))
    other.load_state_dict(sem.state_dict())
    assert torch.equal(other.log_density(z), sem.log_density(z))


@pytest.mark.parametrize(
    ("allowed", "settings", "said"),
    [
        (torch.ones(3, 3).tril(-1), {}, "1 -> 0"),
        (torch.eye(3), {}, "0 -> 0"),
        (torch.ones(2, 3), {}, "square"),
        (torch.zeros(0, 0), {}, "square"),
        (0.5 * torch.ones(3, 3).triu(1), {}, "0 and 1"),
        (torch.ones(3, 3).triu(1), {"scales": [1.0, 1.0]}, "3 positive scales"),
        (torch.ones(3, 3).triu(1), {"scales": [1.0, 0.0, 1.0]}, "3 positive scales"),
        (torch.ones(3, 3).triu(1), {"form": "cubic"}, "'quadratic'"),
        (torch.ones(3, 3).triu(1), {"temperature": 0.0}, "temperature"),
        (torch.ones(3, 3).triu(1), {"hidden": 0}, "hidden"),
    ],
)
def test_a_wrong_sem_is_refused_in_a_sentence(allowed, settings, said):
    with pytest.raises(UsageError, match=said):
        SEM(allowed, **settings)
