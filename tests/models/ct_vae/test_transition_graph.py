"""CT-VAE's graphs: sampling, the intervention mask, and regularisers against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from intervae.models.ct_vae.graph import NO_ACTION, sample_bernoulli
from intervae.models.ct_vae.regularisers import bernoulli_kl, dependency_loss, log_no_parents
from intervae.models.ct_vae.transition import joint_log_likelihood
from transition_layers import ACTION, BATCH, POSITIONS, codes, generator, layer


def test_sampled_edges_have_the_given_probabilities() -> None:
    logits = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0])
    samples = sample_bernoulli(logits.expand(40000, 5), torch.rand(40000, 5, generator=generator()))
    assert set(samples.unique().tolist()) == {0.0, 1.0}
    assert torch.allclose(samples.mean(0), torch.sigmoid(logits), atol=0.01)


def test_absent_edges_have_gradients() -> None:
    """Authors' code: edges sampled to 0 had no gradient."""
    network, x, y = layer(), codes(), codes(1)
    nodes = network.nodes(x).detach()
    logits = torch.zeros(BATCH, 1, POSITIONS, POSITIONS, requires_grad=True)
    edges = sample_bernoulli(logits, torch.rand(logits.shape, generator=generator()))
    joint_log_likelihood(network.logits(x, nodes, edges, ACTION), y).sum().backward()
    assert logits.grad is not None
    absent = edges == 0
    assert 10 < absent.sum() < absent.numel() - 10
    assert (logits.grad[absent] != 0).all()


def test_gradient_of_absent_edge_equals_finite_difference() -> None:
    network, x, y = layer().double(), codes(), codes(1)
    nodes = network.nodes(x)
    edges = torch.zeros(BATCH, 1, POSITIONS, POSITIONS, dtype=torch.float64, requires_grad=True)
    joint_log_likelihood(network.logits(x, nodes, edges, ACTION), y).sum().backward()
    step = torch.zeros_like(edges)
    step[1, 0, 2, 4] = 1e-6
    with torch.no_grad():
        values = [
            joint_log_likelihood(network.logits(x, nodes, sign * step, ACTION), y).sum().item()
            for sign in (1, -1)
        ]
    assert edges.grad is not None
    difference = (values[0] - values[1]) / 2e-6
    assert edges.grad[1, 0, 2, 4].item() == pytest.approx(difference, rel=1e-3)


@pytest.mark.parametrize("prior", [0.5, 0.1])
def test_edge_kl_equals_bernoulli_kl(prior: float) -> None:
    """Authors' code: a softmax over all edges gave the empty and the full graph the same cost."""
    probability = torch.tensor([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6], dtype=torch.float64)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Bernoulli(probability),
        torch.distributions.Bernoulli(torch.tensor(prior)),
    )
    assert torch.allclose(
        bernoulli_kl(torch.logit(probability), prior), expected.double(), atol=1e-6
    )
    empty, full = bernoulli_kl(torch.tensor([-20.0, 20.0]), prior).tolist()
    assert empty == pytest.approx(-math.log(1 - prior), abs=1e-5)
    assert full == pytest.approx(-math.log(prior), abs=1e-5)


@pytest.mark.parametrize("positions", [6, 64, 256])
def test_dependency_loss_does_not_underflow(positions: int) -> None:
    """Authors' code: the product over 64 edges of probability 0.5 is 5e-20; its square is 0."""
    logits = torch.randn(positions, positions, generator=generator())
    exact = torch.log1p(-torch.sigmoid(logits.double())).sum(1)
    assert torch.allclose(log_no_parents(logits).double(), exact, rtol=1e-5)
    assert (
        log_no_parents(torch.zeros(positions, positions)) + positions * math.log(2)
    ).abs().max() < 1e-3
    sparse = torch.full((positions, positions), -12.0, requires_grad=True)
    loss = dependency_loss(sparse)
    loss.backward()
    has_parent = -math.expm1(positions * math.log1p(-1 / (1 + math.exp(12.0))))
    assert loss.item() == pytest.approx(-positions * math.log(has_parent), rel=1e-3)
    assert (sparse.grad < -1e-4).all()  # type: ignore[operator]
    assert dependency_loss(torch.full((positions, positions), 3.0)).item() < 1e-3


def test_mask_selects_edges_of_the_action_or_of_no_action() -> None:
    network, nodes = layer(), layer().nodes(codes())
    network.mask_place.data[:] = torch.tensor([100.0, -100.0]).repeat(3)
    mixed = network.graph(nodes, ACTION)
    none = network.graph(nodes, torch.full((BATCH,), NO_ACTION))
    network.mask_place.data[:] = 100.0
    full_mask = network.graph(nodes, ACTION)
    assert mixed.mask[0, 0].tolist() == pytest.approx([1, 0, 1, 0, 1, 0])
    acted = slice(0, 3)  # the fourth image has no action
    assert torch.allclose(mixed.edge_logits[acted, 0, 0::2], full_mask.edge_logits[acted, 0, 0::2])
    assert torch.allclose(mixed.edge_logits[:, 0, 1::2], none.edge_logits[:, 0, 1::2])
    assert not torch.allclose(full_mask.edge_logits[acted], none.edge_logits[acted], atol=1e-2)
    assert mixed.mask[3].max() < 1e-9
    assert torch.allclose(full_mask.edge_logits[3], none.edge_logits[3])


def test_regularisers_sum_over_rows_of_parents() -> None:
    """Authors' code: the regularisers used columns, not the parents in row i."""
    network, x = layer(), codes()
    score, graph = network.score(x, codes(1), None), network.graph(network.nodes(x), None)
    p = torch.sigmoid(graph.edge_logits.double())
    assert torch.allclose(score.norm, graph.edges.sum((2, 3)))
    assert torch.allclose(
        score.kl.double(),
        (p * (2 * p).log() + (1 - p) * (2 - 2 * p).log()).sum((2, 3)),
        rtol=1e-4,
    )
    by_row = -torch.log1p(-(1 - p).prod(3)).sum(2)
    assert torch.allclose(score.dependency.double(), by_row, rtol=1e-2, atol=1e-5)
    one_parent = torch.full((POSITIONS, POSITIONS), -6.0)
    one_parent[:, 0] = 6.0  # node 0 is the parent of all
    assert dependency_loss(one_parent) < 0.1 < dependency_loss(one_parent.T)


def test_expected_graph_is_the_mean_of_sampled_graphs() -> None:
    network, x = layer(), codes()[:2]
    nodes, action = network.nodes(x), torch.tensor([1, NO_ACTION])
    samples = [
        network.graph(nodes, action, network.draw_noise(2, generator(seed), x.device))
        for seed in range(2000)
    ]
    edges, mask = (
        torch.stack([getattr(graph, name)[:, 0] for graph in samples]).mean(0)
        for name in ("edges", "mask")
    )
    expected = network.graph(nodes, action)
    assert torch.allclose(expected.edges[:, 0], edges, atol=0.05)
    assert torch.allclose(expected.mask[:, 0], mask, atol=0.05)
    assert torch.allclose(expected.edge_logits.sigmoid(), expected.edges)


def test_expected_graph_approximates_the_mean_over_samples() -> None:
    """All edges have probability 0.2, so the most probable graph is empty."""
    network, x, action = layer(), codes(), torch.tensor([0, 2, 1, 1])
    network.edge_target.data.zero_()
    network.edge_bias.data[:] = -1.4
    nodes = network.nodes(x)

    def probabilities(edges: Tensor) -> Tensor:
        return network.logits(x, nodes, edges, action)[:, 0].softmax(2)

    noises = [network.draw_noise(BATCH, generator(seed), x.device) for seed in range(400)]
    mean = torch.stack(
        [probabilities(network.graph(nodes, action, noise).edges) for noise in noises]
    ).mean(0)
    expected = network.graph(nodes, action).edges
    assert torch.allclose(expected, torch.full_like(expected, 0.2), atol=0.01)
    error, empty_error = (
        (mean - probabilities(edges)).abs().mean()
        for edges in (expected, torch.zeros_like(expected))
    )
    assert error < empty_error / 2
    sampled = torch.stack(
        [network.score_modes(x, codes(1), action, noise).identity_graph for noise in noises]
    ).mean(0)
    assert torch.allclose(
        network.score_modes(x, codes(1), action).identity_graph, sampled, rtol=0.05
    )
