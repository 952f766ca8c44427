"""Objectives as printed, where the option is new: against the equations on small examples."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import intervae
from intervae.causal.acyclicity import polynomial
from intervae.causal.gaussian import kl_pushed_forward, kl_standard_normal
from intervae.discovery.lagrangian import LabelRegression, lagrangian
from intervae.models.ct_vae.edge_network import PairMLP
from intervae.models.ct_vae.networks import StridedDecoder, StridedEncoder, strided_channels
from intervae.models.ct_vae.regularisers import squared_no_parents
from intervae.nets.quantise import Quantiser
from intervae.testing.case import first_batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- CausalVAE -----------------------------------------------------------------------------------
def pendulum(**options: object) -> intervae.data.Dataset:
    return intervae.load_data("pendulum", size=16, samples=120, **options)


def test_eq_14_of_causal_vae_is_the_sum_of_its_printed_terms() -> None:
    data = pendulum()
    model = intervae.create("causal-vae", data, preset="paper").train()
    weights = torch.randn(4, 4, generator=generator()) * 0.3
    with torch.no_grad():
        model.adjacency.copy_(weights)
    batch = first_batch(data)
    terms = model.loss(batch, generator())
    A = model.weights
    u = data.spec.normalise(batch["labels"])
    mean, log_variance = model.posterior(
        batch["images"], batch["labels"], torch.ones(len(u), 1)
    )  # h(x, u): no label is dropped
    likelihood = terms["reconstruction"]  # -log p(x | z), tested elsewhere
    prior = kl_pushed_forward(mean, log_variance, A, u[..., None], 0.0).mean()  # lambda_2 = 1
    noise = kl_standard_normal(mean, log_variance).mean()
    label_fit = (u - u @ A).square().sum(1).mean()  # Eq. 11 of continuous labels
    expected = likelihood + noise + prior + polynomial(A) + label_fit + terms["mechanism_fit"]
    torch.testing.assert_close(terms["loss"], expected)


def test_l_m_as_printed_moves_the_encoder_and_counts_every_concept() -> None:
    data = pendulum()
    gradients = []
    for changes in ({}, {"mechanism_gradient_to_latents": False}):
        model = intervae.create("causal-vae", data, preset="paper", **changes).train()
        model.loss(first_batch(data), generator())["mechanism_fit"].backward()
        first = next(model.encoder.parameters()).grad
        gradients.append(0.0 if first is None else float(first.abs().sum()))
    assert gradients[0] > 0
    assert gradients[1] == 0
    z = torch.randn(5, 4, 1, generator=generator())
    fit = (z - model.mechanisms(z, model.mask)).square().sum((1, 2)).mean()
    torch.testing.assert_close(model.mechanism_fit(z), fit)


def test_pretrained_starts_at_the_pretraining_and_keeps_every_edge_free() -> None:
    data = pendulum()
    model = intervae.create("causal-vae", data, preset="paper", epochs=1)
    model.learn_graph(data, 0)
    labels = data.train.labels.double().numpy()
    result = lagrangian(
        labels, data.names, ["continuous"] * 4, l1=0.0, intercept=False, samples=len(labels)
    )
    np.testing.assert_allclose(model.weights.detach(), result.history[-1], atol=1e-6)
    assert model.support.sum() == 12
    assert torch.equal(model.mask, model.weights)


def test_pretraining_without_l1_and_intercept_is_eq_11() -> None:
    """One binary effect of one binary cause: the maximum has a closed form."""
    rng = np.random.default_rng(0)
    cause = rng.integers(0, 2, 4000)
    effect = np.where(rng.random(4000) < 0.8, cause, 1 - cause)
    table = np.stack([cause, effect], axis=1).astype(float)
    inputs, targets = torch.tensor(2 * table - 1), torch.tensor(table)
    regression = LabelRegression(
        inputs, targets, torch.tensor([True, True]), l1=0.0, hidden=0, seed=0
    )
    flat = torch.zeros(len(regression.start), dtype=torch.float64)
    flat[1] = 1.5  # A[0, 1]
    predicted = 1 / (1 + np.exp(-1.5 * (2 * cause - 1)))
    expected = [np.mean((cause - 0.5) ** 2), np.mean((effect - predicted) ** 2)]
    np.testing.assert_allclose(regression.squared_errors(flat), expected)
    without = LabelRegression(
        inputs, targets, torch.tensor([True, True]), l1=0.0, hidden=0, seed=0, intercept=False
    )
    assert without.bounds[8:10] == [(0.0, 0.0)] * 2
    assert regression.bounds[8:10] == [(None, None)] * 2


def test_encoder_with_labels_needs_them() -> None:
    data = pendulum()
    model = intervae.create("condition-vae", data, preset="paper", epochs=1)
    model.fit(data, seed=0, tensorboard=False)
    assert model.needs_labels
    with pytest.raises(intervae.errors.QueryError, match="needs the labels"):
        model.encode(data.test.images[:2])
    one, other = (model.encode(data.test.images[:2], u) for u in data.test.labels[:4].split(2))
    assert not torch.equal(one, other)


# ---- CMCL ----------------------------------------------------------------------------------------
def cmcl(**changes: object) -> tuple[intervae.models.CMCL, intervae.data.Dataset]:
    data = intervae.load_data("cross-modal", size=16, samples=60)
    settings = {"latents": 5, "embedding": 4, "channels": (8, 8), **changes}
    return intervae.create("cmcl", data, preset="paper", **settings), data


def test_l_dag_of_cmcl_is_eq_10() -> None:
    from intervae.models.cmcl.inference import infer
    from intervae.models.cmcl.losses import graph_terms

    model, data = cmcl(acyclicity_weight=3.0, sparsity=0.5)
    model.train()
    batch = first_batch(data)
    inferred = infer(model, batch["images"], batch["labels"], generator())
    terms = graph_terms(model, inferred, batch["labels"])
    nodes = torch.cat([inferred.z, inferred.u], dim=1)  # as they are, z as sampled
    outputs = model.networks(nodes)[..., 0].T
    first = model.networks.layers().first
    W = first.square().sum(-1).T.sqrt()
    h = torch.linalg.matrix_exp(W * W).trace() - 10  # minus the number of nodes
    expected = 0.5 * (nodes - outputs).square().sum(1).mean() + 0.5 * first.abs().sum() + 3 * h
    torch.testing.assert_close(terms["loss"], expected, rtol=1e-4, atol=1e-4)


def test_edges_of_cmcl_as_printed_are_w() -> None:
    model, data = cmcl(epochs=1, batch_size=16)
    model.fit(data, seed=0, tensorboard=False)
    torch.testing.assert_close(model.influence, model.networks.strengths)
    strong = {(a, b) for a, b, _ in model.graph.edges}
    W = model.networks.strengths
    names = model.node_names
    assert strong
    assert all(W[names.index(a), names.index(b)] >= 0.3 for a, b in strong)


def test_algorithm_1_has_four_steps_of_their_own() -> None:
    from intervae.models.cmcl.training import step_loss

    model, data = cmcl()
    players = model.phases()[0].players
    assert [player.name for player in players] == ["embedding", "causal", "graph", "contrast"]
    assert not any(prefix.startswith("networks") for prefix in players[1].parameters)
    model.train()
    batch = {**first_batch(data), "step": torch.zeros(())}
    step_loss(model, "graph", batch, generator())["loss"].backward()
    moved = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert {"networks", "encoder", "posterior_nets"} <= moved  # W, A and phi
    assert not {"decoder", "embedding_decoder", "prior_nets"} & moved


# ---- CT-VAE --------------------------------------------------------------------------------------
def test_pair_mlp_is_an_mlp_of_both_nodes_for_each_action() -> None:
    torch.manual_seed(0)
    network = PairMLP(3, 4, 6)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    nodes = torch.randn(2, 5, 4)
    action = torch.tensor([2, 0])
    scores = network(nodes, action)[:, 0]
    for b, a in enumerate(action):
        weights = torch.cat([network.target[a], network.source[a]])  # (2 w, h)
        for i, j in ((0, 3), (3, 0), (4, 4)):
            pair = torch.cat([nodes[b, i], nodes[b, j]])
            hidden = torch.nn.functional.leaky_relu(pair @ weights + network.bias[a, 0], 0.01)
            expected = hidden @ network.out[a] + network.out_bias[a, 0, 0]
            torch.testing.assert_close(scores[b, i, j], expected)
    torch.testing.assert_close(network(nodes, None)[0, 2], scores[0])


def test_eq_15_as_printed() -> None:
    alpha = torch.tensor([[0.5, 0.2], [0.9, 0.9]])
    expected = (0.5 * 0.8) ** 2 + (0.1 * 0.1) ** 2
    assert float(squared_no_parents(torch.logit(alpha))) == pytest.approx(expected, rel=1e-5)


def test_codebook_loss_moves_codes_and_commitment_moves_features() -> None:
    torch.manual_seed(0)
    quantiser = Quantiser(1, 4, 3, restart=0.0, learned=True).train()
    features = torch.randn(2, 3, 2, 2, requires_grad=True)
    quantised = quantiser(features)
    torch.testing.assert_close(quantised.codebook, quantised.commitment)
    nearest = quantiser.codes[0][quantised.indices]  # (B, n, d)
    distance = (features.flatten(2).mT - nearest).square().sum((1, 2))
    torch.testing.assert_close(quantised.codebook, distance)
    quantised.codebook.sum().backward()
    assert features.grad is None
    assert quantiser.codes.grad.abs().sum() > 0
    before = quantiser.codes.detach().clone()
    quantiser.update()
    assert torch.equal(quantiser.codes, before)


def test_strided_networks_have_the_grid_and_the_image_size() -> None:
    assert strided_channels(8, 256) == [64, 128, 256]
    encoder = StridedEncoder((3, 30, 17), 5, 4, 8, 1)
    decoder = StridedDecoder(5, (3, 30, 17), 4, 8, 1)
    grid = encoder(torch.rand(2, 3, 30, 17))
    assert grid.shape == (2, 5, 8, 5)
    assert decoder(grid).shape == (2, 3, 30, 17)


# ---- causal-prior VAE ----------------------------------------------------------------------------
def test_clips_as_printed_take_the_closest_local_gaussian() -> None:
    """At one pivot the KL is that from N(pivot, covariance of the SEM)."""
    from intervae.causal.sem import sem_divergence

    data = intervae.load_data("motion", samples=40)
    settings = {"widths": (8,), "background": "median", "pivots": 1}
    model = intervae.create("temporal-causal-prior-vae", data, preset="paper", **settings)
    batch = first_batch(data)
    called = SimpleNamespace(kinds=[])

    def record(kind: str, *rest: object, **options: object) -> torch.Tensor:
        called.kinds.append((kind, options["pivots"]))
        return sem_divergence(kind, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("intervae.models.causal_prior.temporal.sem_divergence", record)
        terms = model.loss(batch, generator())
    assert called.kinds == [("local_min", 1)]
    expected = terms["reconstruction"] + terms["prediction"] + terms["kl"] + 0.01 * terms["edges"]
    torch.testing.assert_close(terms["loss"], expected)  # from the first step, without warm-up
