"""The structural equation model: mechanisms, Jacobians, exact densities, sampling."""

from __future__ import annotations

import pytest
import torch
from small_sem import DIAMOND, FORMS, MAXIMAL, build, some_edges
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from intervae.causal.sem.divergence import sem_divergence
from intervae.causal.sem.equations import SEM
from intervae.errors import UsageError
from normal_draws import draw


def test_parabola_of_the_paper():
    sem = SEM(torch.tensor([[0, 1], [0, 0]]), form="quadratic")
    torch.testing.assert_close(sem.mean(torch.tensor([[3.0, 5.0]])), torch.tensor([[0.0, 9.0]]))
    torch.testing.assert_close(
        sem.mean(torch.tensor([[3.0, 5.0]]), torch.tensor([[0.0, 0.5], [0.0, 0.0]])),
        torch.tensor([[0.0, 4.5]]),
    )
    assert [name for name, _ in sem.named_parameters()] == ["log_scales", "edge_logits"]


def test_linear_mechanisms_are_weighted_sums_over_parents():
    sem, z = build("linear", DIAMOND), draw(5)
    with torch.no_grad():
        w = sem.weights
        by_hand = torch.stack(
            [z[0] * 0, w[0, 1] * z[0], w[0, 2] * z[0], w[1, 3] * z[1] + w[2, 3] * z[2], z[0] * 0]
        )
        torch.testing.assert_close(sem.mean(z), by_hand)
    assert (sem.weights[DIAMOND == 0] == 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_mechanism_depends_on_its_parents_only(form):
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
    jacobian = sem.jacobian(z, edges)
    by_autograd = torch.func.vmap(torch.func.jacrev(lambda row: sem.mean(row, edges)))(z)
    torch.testing.assert_close(jacobian, by_autograd, rtol=1e-12, atol=1e-12)
    step = 1e-5 * torch.eye(5, dtype=torch.float64)
    columns = (
        sem.mean(z[:, None] + step, edges) - sem.mean(z[:, None] - step, edges)
    ) / 2e-5  # (B, j, i)
    torch.testing.assert_close(jacobian, columns.mT, rtol=1e-7, atol=1e-8)
    assert (jacobian.triu() == 0).all()
    assert (jacobian.tril(-1).abs().amax(0) > 0)[torch.ones(5, 5).tril(-1) > 0].all()


@pytest.mark.parametrize("form", FORMS)
def test_edges_of_strength_zero_remove_mechanisms_and_jacobian_entries(form):
    sem, z = build(form), draw(4, 5)
    edges = torch.zeros(5, 5, dtype=torch.float64)
    edges[1, 3] = 0.7
    jacobian = sem.jacobian(z, edges)
    assert (jacobian[:, 3, 1] != 0).all()
    jacobian = jacobian.clone()
    jacobian[:, 3, 1] = 0
    assert (jacobian == 0).all()
    assert (sem.mean(z, torch.zeros_like(edges)) == 0).all()  # the prior of a VAE
    torch.testing.assert_close(sem.mean(z, torch.ones_like(edges)), sem.mean(z))  # only allowed


@pytest.mark.parametrize("form", FORMS)
def test_jacobian_is_differentiable_for_any_batch_shape(form):
    sem, z = build(form), draw(2, 3, 5).requires_grad_()
    edges = sem.sample_edges(torch.Generator().manual_seed(0))
    jacobian = sem.jacobian(z, edges)
    assert jacobian.shape == (2, 3, 5, 5)
    torch.testing.assert_close(jacobian[1, 2], sem.jacobian(z[1, 2], edges))
    torch.testing.assert_close(sem.mean(z, edges)[1, 2], sem.mean(z[1, 2], edges))
    jacobian.square().sum().backward()
    assert sem.edge_logits.grad.abs().sum() > 0
    if form != "linear":
        assert z.grad[..., :4].abs().min() > 0


def test_network_output_has_a_fixed_scale_for_any_weights():
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
    # independent of the batch and of the training mode
    torch.testing.assert_close(sem.mean(reference[:1]), sem.train().mean(reference)[:1])


def test_networks_of_a_sem_without_edges_are_zero():
    sem = build("mlp", torch.zeros(3, 3))
    z = draw(4, 3)
    assert (sem.mean(z) == 0).all()
    assert sem.jacobian(z).shape == (4, 3, 3)
    torch.testing.assert_close(sem.from_noises(z), z)
    assert sem.coupled == ()


@pytest.mark.parametrize("form", FORMS)
def test_log_density_is_the_product_of_the_conditionals(form):
    sem, z = build(form), draw(7, 5)
    edges = some_edges(sem)
    chain = sum(
        Normal(sem.mean(z, edges)[:, i], sem.log_scales[i].exp()).log_prob(z[:, i])
        for i in range(5)
    )
    torch.testing.assert_close(sem.log_density(z, edges), chain, rtol=1e-12, atol=1e-12)


def test_log_density_of_a_linear_sem_is_the_multivariate_normal():
    sem, z = build("linear"), draw(7, 5)
    root = (
        torch.linalg.inv(torch.eye(5, dtype=torch.float64) - sem.weights.detach().T)
        * sem.log_scales.detach().exp()
    )
    exact = MultivariateNormal(torch.zeros(5, dtype=torch.float64), root @ root.T).log_prob(z)
    torch.testing.assert_close(sem.log_density(z), exact, rtol=1e-10, atol=1e-10)


def test_log_density_integrates_to_one():
    sem = SEM(torch.tensor([[0, 1], [0, 0]]), form="quadratic", scales=[1.0, 0.5]).double()
    x, y = (
        torch.linspace(-5, 5, 501, dtype=torch.float64),
        torch.linspace(-4, 29, 1651, dtype=torch.float64),
    )
    density = sem.log_density(torch.cartesian_prod(x, y)).exp()
    assert (density.sum() * (x[1] - x[0]) * (y[1] - y[0])).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("allowed", [MAXIMAL, DIAMOND])
def test_noises_and_from_noises_are_inverse(form, allowed):
    sem, z = build(form, allowed), 0.7 * draw(9, 5)
    edges = some_edges(sem)
    torch.testing.assert_close(
        sem.from_noises(sem.noises(z, edges), edges), z, rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        sem.noises(sem.from_noises(z, edges), edges), z, rtol=1e-9, atol=1e-9
    )


def test_ancestral_sampling_goes_in_the_order_of_the_variables():
    """The levels give the result of a loop over single variables."""
    sem, noise = build("mlp"), draw(3, 5)
    z = torch.zeros_like(noise)
    for i in range(5):
        z[:, i] = noise[:, i] + sem.mean(z)[:, i].detach()
    torch.testing.assert_close(sem.from_noises(noise), z)
    assert len(sem.levels) == 5
    assert build("linear", DIAMOND).levels.long().tolist() == [
        [1, 0, 0, 0, 1],
        [0, 1, 1, 0, 0],
        [0, 0, 0, 1, 0],
    ]


def test_samples_have_the_moments_of_the_parabola():
    sem = SEM(torch.tensor([[0, 1], [0, 0]]), form="quadratic", scales=[1.0, 0.5])
    z = sem.sample(200_000, torch.Generator().manual_seed(0)).detach().double()
    assert z.mean(0).tolist() == pytest.approx([0, 1], abs=0.02)
    assert torch.cov(z.T).flatten().tolist() == pytest.approx([1, 0, 0, 2.25], abs=0.05)
    assert torch.equal(z, sem.sample(200_000, torch.Generator().manual_seed(0)).double())


def test_sampling_is_differentiable_in_all_parameters():
    for form in FORMS:
        sem = build(form)
        sem.sample(
            64, torch.Generator().manual_seed(0), sem.sample_edges(torch.Generator().manual_seed(1))
        ).square().mean().backward()
        for name, parameter in sem.named_parameters():
            assert parameter.grad is not None, (form, name)
            assert parameter.grad.abs().sum() > 0, (form, name)
            assert parameter.grad.isfinite().all()
            if parameter.shape == (5, 5):
                assert (parameter.grad[MAXIMAL == 0] == 0).all()


def test_fixed_scales_are_not_parameters():
    sem = SEM(MAXIMAL, scales=[1, 0.5, 1, 2, 1], learn_scales=False)
    torch.testing.assert_close(sem.log_scales.exp(), torch.tensor([1, 0.5, 1, 2, 1]))
    assert "log_scales" not in dict(sem.named_parameters())
    assert "log_scales" in sem.state_dict()
    assert sem.draw_noises(50_000, torch.Generator().manual_seed(0)).std(
        0
    ).tolist() == pytest.approx([1, 0.5, 1, 2, 1], rel=0.02)


@pytest.mark.parametrize("form", FORMS)
def test_vmap_over_sems_equals_a_loop(form):
    sem, z = build(form), draw(6, 5)

    class Everything(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sem = sem

        def forward(self, z, generator):
            edges = self.sem.sample_edges(generator)
            return (
                self.sem.jacobian(z, edges).sum()
                + self.sem.log_density(z, edges).sum()
                + self.sem.sample(4, generator, edges).sum()
            )

    module = Everything()
    stacked = {
        name: torch.stack([p.detach(), p.detach() + 0.1]) for name, p in module.named_parameters()
    }

    def gradient(parameters):
        return torch.func.grad(
            lambda p: torch.func.functional_call(module, p, (z, torch.Generator().manual_seed(0)))
        )(parameters)

    batched = torch.func.vmap(gradient, randomness="same")(stacked)
    second = gradient({name: p[1] for name, p in stacked.items()})
    for name in second:
        torch.testing.assert_close(batched[name][1], second[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_state_dict_restores_the_sem(form):
    sem, z = build(form), draw(4, 5)
    loaded = build(form, seed=1)
    assert not torch.equal(loaded.log_density(z), sem.log_density(z))
    loaded.load_state_dict(sem.state_dict())
    assert torch.equal(loaded.log_density(z), sem.log_density(z))


@pytest.mark.parametrize(
    ("allowed", "settings", "message"),
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
def test_invalid_arguments_of_a_sem_raise_errors(allowed, settings, message):
    with pytest.raises(UsageError, match=message):
        SEM(allowed, **settings)


def test_intercepts_shift_every_variable_and_its_effects() -> None:
    """z0 = 1 + n0, z1 = 2 z0 - 3 + n1: means 1 and -1; the KL is that of the shifted Gaussian."""
    sem = SEM(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), learn_edges=False, intercepts=True)
    with torch.no_grad():
        sem.weights[0, 1] = 2.0
        assert sem.intercepts is not None
        sem.intercepts.copy_(torch.tensor([1.0, -3.0]))
    z = sem.sample(50_000, torch.Generator().manual_seed(0)).detach()
    assert torch.allclose(z.mean(0), torch.tensor([1.0, -1.0]), atol=0.05)
    assert torch.allclose(sem.from_noises(sem.noises(z)), z, atol=1e-5)
    mean, factor = torch.tensor([[0.3, 0.4]]), torch.tensor([[[0.5, 0.0], [0.1, 0.7]]])
    prior = MultivariateNormal(torch.tensor([1.0, -1.0]), torch.tensor([[1.0, 2.0], [2.0, 5.0]]))
    expected = kl_divergence(MultivariateNormal(mean[0], scale_tril=factor[0]), prior)
    assert torch.allclose(sem_divergence("tangent", mean, factor, sem)[0], expected, atol=1e-5)
    with pytest.raises(UsageError, match="intercepts need linear equations, not form='mlp'"):
        SEM(torch.zeros(2, 2), form="mlp", intercepts=True)
