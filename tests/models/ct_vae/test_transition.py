"""The causal transition layer: dependencies, likelihoods, and errors of the authors' code."""

from __future__ import annotations

import pytest
import torch

from intervae.models.ct_vae.graph import NO_ACTION
from intervae.models.ct_vae.transition import CausalTransition, joint_log_likelihood
from transition_layers import ACTION, ACTIONS, BATCH, CODES, POSITIONS, codes, generator, layer


def test_the_action_reaches_every_node() -> None:
    """Authors' code: the action node was a sink."""
    network, x = layer(), codes()
    nodes = network.nodes(x)
    for edges in (
        torch.zeros(POSITIONS, POSITIONS),
        torch.eye(POSITIONS),
        torch.ones(POSITIONS, POSITIONS),
    ):
        by_action = network.logits(x, nodes, edges, None)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            difference = (by_action[:, a] - by_action[:, b]).abs().sum(-1)
            assert (difference > 1e-3).all()  # at every position of every image


def test_the_action_enters_the_states_before_attention() -> None:
    """Authors' code: the action only selected heads and masks; the nodes did not depend on it."""
    network, x, states = layer(), codes(), []
    network.rounds[0].register_forward_pre_hook(lambda _, inputs: states.append(inputs[0].detach()))
    network.logits(x, network.nodes(x), torch.ones(POSITIONS, POSITIONS), None)
    state = states[0].expand(BATCH, -1, -1, -1)  # (B, A, n, w)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert ((state[:, a] - state[:, b]).abs().sum(-1) > 1e-3).all()


def test_a_variable_depends_exactly_on_its_parents() -> None:
    """Authors' code: the graph was transposed; row i holds the parents of y_i."""
    network, x = layer(), codes()
    edges = (torch.rand(BATCH, 1, POSITIONS, POSITIONS, generator=generator()) < 0.5).float()
    before = network.logits(x, network.nodes(x), edges, ACTION)
    for j in range(POSITIONS):
        changed = x.clone()
        changed[:, j] = (x[:, j] + 1) % CODES
        after = network.logits(changed, network.nodes(changed), edges, ACTION)
        depends = ((after - before).abs().amax(-1) > 0)[:, 0]  # (B, n): y_i on x_j
        assert torch.equal(depends, edges[:, 0, :, j] == 1)


def test_the_identity_graph_is_not_the_empty_graph() -> None:
    """Authors' code: self-loops were stripped and re-added, so both gave the same output."""
    network, x = layer(), codes()
    nodes, size = network.nodes(x), (POSITIONS, POSITIONS)
    empty, identity, full = (
        network.logits(x, nodes, edges, ACTION)
        for edges in (torch.zeros(size), torch.eye(POSITIONS), torch.ones(size))
    )
    assert (empty - identity).abs().amax() > 0.1
    assert (full - identity).abs().amax() > 0.1
    assert torch.equal(
        empty[0], network.logits(codes(7), network.nodes(codes(7)), torch.zeros(size), ACTION)[0]
    )  # independent of x


def test_scoring_all_actions_equals_scoring_each() -> None:
    for network in (layer(), layer(codebooks=3, noise=2)):
        x, y, noise = codes(), codes(1), network.draw_noise(BATCH, generator(), torch.device("cpu"))
        all_scores = network.score(x, y, None, noise)
        for action in range(ACTIONS):
            score = network.score(x, y, torch.full((BATCH,), action), noise)
            for values, expected in zip(all_scores, score, strict=True):
                assert torch.allclose(values[:, action], expected[:, 0], atol=1e-4)


# ---- likelihoods ---------------------------------------------------------------------------------
def test_log_likelihood_sums_over_positions() -> None:
    """Authors' code: a mean over the nodes made all actions nearly equally probable."""
    network, x, y = layer(), codes(), codes(1)
    nodes = network.nodes(x)
    logits = network.logits(x, nodes, network.graph(nodes, None).edges, None)
    expected = torch.zeros(BATCH, ACTIONS)
    for i in range(POSITIONS):
        expected += torch.log_softmax(logits[:, :, i], dim=-1)[torch.arange(BATCH), :, y[:, i]]
    score = network.score(x, y, None).log_likelihood
    assert torch.allclose(score, expected, atol=1e-4)
    assert (score < -POSITIONS * 0.5).all()  # a mean over 6 positions would be above -3


def test_outcomes_have_total_probability_one() -> None:
    network = CausalTransition(3, 1, 2, ACTIONS, width=8, heads=1)
    x = torch.tensor([[0, 1, 1]])
    outcomes = torch.cartesian_prod(*[torch.arange(2)] * 3)
    probabilities = network.score(x.expand(8, -1), outcomes, None).log_likelihood.exp()
    assert torch.allclose(probabilities.sum(0), torch.ones(ACTIONS), atol=1e-5)


def test_scores_are_random_only_with_noise() -> None:
    """Authors' code: evaluation stayed random."""
    network, x, y = layer(noise=2), codes(), codes(1)
    first = network.score(x, y, None)
    assert torch.equal(first.log_likelihood, network.score(x, y, None).log_likelihood)
    sampled = [
        network.score(
            x, y, None, network.draw_noise(BATCH, generator(seed), x.device)
        ).log_likelihood
        for seed in (0, 0, 1)
    ]
    assert torch.equal(sampled[0], sampled[1])
    assert not torch.allclose(sampled[0], sampled[2])


def test_noise_reaches_every_node_and_defaults_to_its_mean() -> None:
    network, x = layer(noise=2), codes()
    nodes, edges = network.nodes(x), torch.zeros(POSITIONS, POSITIONS)
    noise = network.draw_noise(BATCH, generator(), x.device)
    assert noise.z.shape == (BATCH, POSITIONS, 2)
    mean, noisy = (
        network.logits(x, nodes, edges, ACTION),
        network.logits(x, nodes, edges, ACTION, noise.z),
    )
    assert ((mean - noisy).abs().amax(-1) > 0).all()
    assert torch.equal(mean, network.logits(x, nodes, edges, ACTION, torch.zeros_like(noise.z)))


def test_identity_losses_equal_their_definition() -> None:
    network, x, action = layer(), codes(), torch.tensor([0, 2, 1, 1])
    noise = network.draw_noise(BATCH, generator(), x.device)
    nodes, none = network.nodes(x), torch.full((BATCH,), NO_ACTION)
    modes = network.score_modes(x, codes(1), action, noise)
    assert torch.allclose(
        modes.identity_codes,
        -joint_log_likelihood(network.logits(x, nodes, torch.eye(POSITIONS), none), x)[:, 0],
        atol=1e-4,
    )
    wrong = network.graph(nodes, none, noise).edges[:, 0] != torch.eye(POSITIONS)
    assert torch.allclose(modes.identity_graph, wrong.sum((1, 2)).float())


@pytest.mark.parametrize("sampled", [False, True])
def test_score_modes_equals_separate_scores(sampled: bool) -> None:
    for network in (layer(), layer(codebooks=3, noise=2)):
        x, y, action = codes(), codes(1), torch.tensor([0, 2, 1, 1])
        noise = network.draw_noise(BATCH, generator(), x.device) if sampled else None
        modes = network.score_modes(x, y, action, noise)
        actions, none = (
            network.score(x, y, None, noise),
            network.score(x, x, torch.full((BATCH,), NO_ACTION), noise),
        )
        assert torch.allclose(modes.actions, actions.log_likelihood, atol=1e-4)
        assert torch.allclose(modes.standard, none.log_likelihood[:, 0], atol=1e-4)
        for both, of_none, of_actions in zip(modes[4:], none[1:], actions[1:], strict=True):
            assert torch.allclose(
                both,
                torch.stack([of_none[:, 0], of_actions[torch.arange(BATCH), action]], dim=1),
                rtol=1e-4,
                atol=1e-4,
            )
