"""CT-VAE's sparse graphs: prices that follow target shares, masks that keep an action out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intervae.data import Dataset
from intervae.errors import UsageError
from intervae.models.ct_vae.graph import NO_ACTION
from intervae.models.ct_vae.model import CTVAE
from intervae.models.ct_vae.sparsity import (
    INTEGRATION,
    STIFFNESS,
    GraphPrices,
    changed_share,
    graph_loss,
)
from squares import tiny
from transition_layers import ACTION, BATCH, POSITIONS, codes, generator, layer


def begun(steps: int, edges: float, masks: float) -> GraphPrices:
    prices = GraphPrices(positions=4)
    prices.start(steps, edges, masks)
    return prices


def test_multipliers_integrate_the_excess_and_are_never_negative() -> None:
    """Constant shares of 0.5; in the second half the targets are 0.4 and 1."""
    prices, integral = begun(100, 0.4, 1.0), 0.0
    for step in range(100):
        prices.cost(torch.tensor(0.5 * 16), torch.tensor(0.5 * 4))
        done = min(1.0, step / 50)
        targets = torch.tensor([0.5 - 0.1 * done, 0.5 + 0.5 * done])
        assert step == 0 or torch.allclose(prices.targets(), targets)
        integral += 0.1 * done / (0.5 - 0.1 * done) * STIFFNESS * INTEGRATION / 100
        prices.update()
    assert prices.multipliers[0].item() == pytest.approx(integral, rel=1e-3)
    assert prices.multipliers[1] == 0


def test_price_of_another_edge_is_multiplier_plus_stiffness_times_excess() -> None:
    prices = begun(10, 0.25, 0.5)
    prices.first.copy_(prices.final)
    prices.multipliers.copy_(torch.tensor([0.3, 0.2]))
    edges, masks = torch.tensor(7.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    cost = prices.cost(edges, masks)  # 4 of 16 edges and 2 of 4 masks are allowed
    assert cost.item() == pytest.approx(4 * (0.3 * 0.75 + STIFFNESS / 2 * 0.75**2) - 2 * 0.2 * 0.5)
    cost.backward()
    assert edges.grad is not None
    assert masks.grad is not None
    assert edges.grad.item() == pytest.approx(0.3 + STIFFNESS * 0.75)
    assert masks.grad.item() == pytest.approx(0.2)


def test_changed_share_counts_codes_that_differ(data: Dataset) -> None:
    pairs = tiny(data, seed=0).encode_pairs(data, 0).train
    batch = pairs.batch(torch.arange(len(pairs)))
    expected = (batch["codes"] != batch["after_codes"]).double().mean().item()
    assert 0 < expected < 1
    assert changed_share(pairs) == pytest.approx(expected)


def test_most_probable_graph_has_the_edges_above_a_half() -> None:
    network, x = layer(discrete=True), codes()
    network.edge_bias.data.zero_()
    graph = network.graph(network.nodes(x), ACTION)
    assert torch.equal(graph.mask, (graph.mask_logits > 0).float())
    assert torch.equal(graph.edges, (graph.edge_logits > 0).float())
    assert 0 < graph.edges.mean() < 1
    without = network.graph(network.nodes(x), torch.full((BATCH,), NO_ACTION))
    under = torch.where(graph.mask[..., None] > 0, graph.edges, without.edges)
    assert torch.equal(graph.edges, under)  # Eq. 4


def test_an_action_reaches_only_variables_whose_mask_is_open() -> None:
    network, x = layer(masked_action=True), codes()
    nodes, edges = network.nodes(x), torch.ones(POSITIONS, POSITIONS)
    none = network.logits(x, nodes, edges, torch.full((BATCH,), NO_ACTION))
    free = network.logits(x, nodes, edges, ACTION)
    mask = torch.zeros(BATCH, 1, POSITIONS)
    mask[..., 2] = 1
    masked = network.logits(x, nodes, edges, ACTION, mask=mask)
    closed = mask[0, 0] == 0
    assert torch.allclose(masked[:, :, closed], none[:, :, closed])
    assert torch.allclose(masked[:, :, 2], free[:, :, 2])
    assert not torch.allclose(free[:3], none[:3])


def test_scores_of_all_modes_use_the_masks() -> None:
    network, x, y = layer(masked_action=True, discrete=True), codes(), codes(1)
    actions = torch.tensor([0, 2, 1, 1])
    modes = network.score_modes(x, y, actions)
    separate = network.score(x, y, None).log_likelihood
    one = network.score(x, y, actions).log_likelihood
    assert torch.allclose(modes.actions, separate, atol=1e-5)
    assert torch.allclose(modes.actions.gather(1, actions[:, None]), one, atol=1e-5)
    masked = network.graph(network.nodes(x), actions).mask.sum(2)
    assert torch.equal(modes.masked[:, 1:], masked)
    assert (modes.masked[:, 0] == 0).all()


def test_noise_of_scale_0_gives_the_most_probable_graph() -> None:
    network, x = layer(), codes()
    network.edge_bias.data.zero_()
    nodes, noise = network.nodes(x), network.draw_noise(BATCH, generator(), x.device)
    scaled = noise.scaled(torch.tensor(1.0))
    assert torch.allclose(scaled.edges, noise.edges, atol=1e-4)
    hard = network.graph(nodes, ACTION, noise.scaled(torch.tensor(0.0)))
    network.discrete = True
    expected = network.graph(nodes, ACTION)
    assert torch.equal(hard.edges, expected.edges)
    assert torch.equal(hard.mask, expected.mask)


def test_graph_loss_adds_the_cost_to_the_loss_without_noise_at_the_end(data: Dataset) -> None:
    model = tiny(data, sparse_epochs=1, masked_action=True, causal_share=0.5).train()
    batch = model.encode_pairs(data, 0).train.batch(torch.arange(8))
    model.prices.start(10, 0.1, 0.2)
    model.prices.step.copy_(model.prices.steps)
    with torch.no_grad():
        terms = graph_loss(model, batch, generator())
        plain = model.transition_loss(batch, generator(1), torch.tensor(0.0))  # another noise
        cost = model.prices.cost(terms["edge_norm"], terms["masks"])
    assert terms["loss"].item() == pytest.approx((plain["loss"] + cost).item(), rel=1e-5)
    assert terms["edge_norm"] == terms["edge_norm"].round(decimals=3)  # edges are counted


@pytest.mark.parametrize("settings", [{"edge_share": 0.0}, {"mask_share": 1.5}])
def test_invalid_shares_raise(settings: dict[str, Any], data: Dataset) -> None:
    with pytest.raises(UsageError, match="above 0 and at most 1"):
        tiny(data, **settings)


def test_training_ends_with_graphs_of_zeros_and_ones(random_data: Dataset) -> None:
    model = tiny(random_data, sparse_epochs=2, masked_action=True, decoder_epochs=0)
    assert isinstance(model, CTVAE)
    model.fit(random_data, seed=0)
    mechanism = model.action_mechanism(random_data.test.images[:1], 0)
    assert set(mechanism.edges.unique().tolist()) <= {0.0, 1.0}
    assert set(mechanism.mask.unique().tolist()) <= {0.0, 1.0}
    assert model.prices.step == model.prices.steps
