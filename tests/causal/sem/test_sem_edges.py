"""Edges of the structural equation model: interventions along them, sampling, graph."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_sem import DIAMOND, FORMS, MAXIMAL, build

from intervae.causal.do import abduct, act, predict
from intervae.causal.graph import CausalGraph
from intervae.causal.sem.equations import SEM
from intervae.errors import DataError
from normal_draws import draw


def under_do(sem, z, do, edges=None):
    """z (N, d) under do() by the three steps of causal.do; variables are named "0", "1", ..."""
    names = [str(i) for i in range(sem.d)]
    strengths = sem.allowed if edges is None else edges * sem.allowed
    graph = CausalGraph(tuple(names), strengths.numpy())

    def mechanism(name, values):
        return sem.mean(torch.stack([values[n] for n in names], 1), edges)[:, int(name)]

    factual = dict(zip(names, z.unbind(1), strict=True))
    noises = abduct(factual, mechanism)
    actions = act(do, names)
    after = predict(
        graph, lambda name, values: mechanism(name, values) + noises[name], actions, factual
    )
    return torch.stack([after[name] for name in names], 1).detach()


@pytest.mark.parametrize("form", FORMS)
def test_do_sets_a_variable_and_leaves_non_descendants_bit_equal(form):
    sem, noise = build(form, DIAMOND), draw(8, 5)
    before = sem.from_noises(noise).detach()
    after = under_do(sem, before, {"1": 2.5})
    assert (after[:, 1] == 2.5).all()
    assert torch.equal(after[:, [0, 2, 4]], before[:, [0, 2, 4]])
    assert (after[:, 3] != before[:, 3]).all()
    torch.testing.assert_close(after[:, 3], noise[:, 3] + sem.mean(after)[:, 3])
    per_sample = draw(8, seed=4)
    assert torch.equal(under_do(sem, before, {"1": per_sample, "4": 1.0})[:, 1], per_sample)


@pytest.mark.parametrize("form", FORMS)
def test_do_on_data_follows_the_present_edges(form):
    sem, z = build(form).float(), draw(8, 5).float()
    edges = torch.ones(5, 5)
    edges[1, 2] = 0  # so 1 is no cause of 2
    after = under_do(sem, z, {"1": -1.3}, edges)
    noise = sem.noises(z, edges)
    torch.testing.assert_close(
        after[:, 3:], (noise + sem.mean(after, edges))[:, 3:], rtol=1e-3, atol=1e-3
    )
    assert torch.equal(after[:, [0, 2]], z[:, [0, 2]])
    assert (after[:, 3] != z[:, 3]).all()
    assert torch.equal(under_do(sem, z, {"4": 0.0}, edges)[:, :4], z[:, :4])
    assert torch.equal(under_do(sem, z, {}, edges), z)


def test_several_interventions_cut_each_variable_from_its_causes():
    sem, noise = build("linear"), draw(6, 5)
    after = under_do(sem, sem.from_noises(noise).detach(), {"0": 1.0, "3": -2.0})
    assert (after[:, 0] == 1).all()
    assert (after[:, 3] == -2).all()
    torch.testing.assert_close(after[:, [1, 2, 4]], (noise + sem.mean(after))[:, [1, 2, 4]])


def test_expected_edges_is_the_sum_of_probabilities_and_starts_dense():
    sem = SEM(DIAMOND)
    assert sem.expected_edges().item() == pytest.approx(4 / (1 + math.exp(-2)), rel=1e-6)
    assert torch.equal(sem.hard_edges(), DIAMOND.float())
    sem.expected_edges().backward()
    slope = 1 / (1 + math.exp(-2)) * (1 - 1 / (1 + math.exp(-2)))
    torch.testing.assert_close(sem.edge_logits.grad, slope * DIAMOND)


def test_sampled_edges_are_in_0_1_and_round_to_their_probability():
    sem = build("linear")
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([sem.sample_edges(generator).detach() for _ in range(4000)])
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert (drawn[:, MAXIMAL == 0] == 0).all()
    counted, probability = (drawn > 0.5).double().mean(0), sem.edge_probabilities().detach()
    assert (counted - probability).abs().max() < 4 * 0.5 / math.sqrt(4000)


def test_sampled_edges_at_the_limits_of_temperature_and_logit():
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


def test_edges_that_are_not_learned_all_exist():
    sem = SEM(DIAMOND, learn_edges=False)
    for edges in (sem.edge_probabilities(), sem.sample_edges(), sem.hard_edges()):
        assert torch.equal(edges, DIAMOND.float())
    assert sem.expected_edges() == 4
    assert "edge_logits" not in dict(sem.named_parameters())
    assert sem.coupled == (0, 1, 2, 3)


def test_graph_has_coefficients_of_a_linear_sem_else_probabilities():
    for form in FORMS:
        sem = build(form)
        graph = sem.graph("abcde")
        probable = sem.edge_logits.detach() > 0
        assert 0 < probable[MAXIMAL > 0].sum() < 10
        strengths = sem.weights if form == "linear" else sem.edge_probabilities()
        np.testing.assert_allclose(
            graph.weights, (strengths * probable * sem.allowed).detach().numpy()
        )
    assert SEM(DIAMOND, form="quadratic", learn_edges=False).graph("abcde").parents("d") == [
        "b",
        "c",
    ]
    with pytest.raises(DataError, match="2 x 2"):
        sem.graph("ab")
