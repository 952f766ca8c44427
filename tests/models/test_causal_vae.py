"""CausalVAE against the paper, equation by equation, and its queries on mechanisms that are set by hand."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from elbo import drawn_by_hand
from torch import Tensor
from torch.distributions import Bernoulli, MultivariateNormal, Normal, kl_divergence

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Spec, Variable, build_dataset
from intervae.discovery import discover
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import CausalVAE

SMALL = {"dims": 2, "channels": (8, 8), "hidden": 32, "mechanism_hidden": 8, "batch_size": 16, "epochs": 2}
# what the loss has beyond the paper's, switched off
PAPER = {name: 0.0 for name in ("sharpness", "influence_weight") if name in {f.name for f in fields(CausalVAE.Settings)}}
CHAIN = [("a", "b", 0.9), ("b", "c", -1.4)]


def make(data: Dataset, graph: Any = "joint", **settings: Any) -> CausalVAE:
    return CausalVAE(data.spec, graph=graph, **{**SMALL, **settings})


def chain(weights: list[tuple[str, str, float]] | None = None) -> CausalGraph:
    return CausalGraph.from_edges(("a", "b", "c"), CHAIN if weights is None else weights)


def batch_of(data: Dataset, n: int = 8) -> dict[str, Tensor]:
    return {**data.train.batch(torch.arange(n)), "step": torch.zeros(())}


def with_weights(model: CausalVAE, weights: Any) -> CausalVAE:
    with torch.no_grad():
        model.adjacency.copy_(torch.as_tensor(weights, dtype=torch.float32))
    return model


# ---- Eq. 1, 7, 10: the evidence lower bound -------------------------------------------------------------------------
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian", "laplace"])
def test_without_edges_the_loss_is_the_elbo_of_a_vae_with_a_conditional_prior(likelihood: Any, make_data: Any) -> None:
    data = make_data((3, 12, 10))
    weights = {"noise_weight": 0.7, "prior_weight": 1.3, "label_weight": 0.4, "mechanism_weight": 0.6, "acyclicity_weight": 2.0}
    model = make(data, likelihood=likelihood, scale=0.3, prior_std=0.5, **weights, **PAPER)
    batch = batch_of(data)
    terms = {key: value.item() for key, value in model.loss(batch, torch.Generator().manual_seed(5)).items()}

    with torch.no_grad():
        q, z, _, p = drawn_by_hand(model, batch, likelihood, 0.3)
        u = torch.as_tensor([[(x - v.mean) / v.std for x, v in zip(row, data.variables, strict=True)] for row in batch["labels"].tolist()])
        expected = {
            "reconstruction": -p.log_prob(batch["images"]).sum((1, 2, 3)).mean(),
            "kl_noise": kl_divergence(q, Normal(0.0, 1.0)).sum((1, 2)).mean(),
            "kl_prior": kl_divergence(q, Normal(u[:, :, None], 0.5)).sum((1, 2)).mean(),
            "label_fit": u.square().sum(1).mean(),
            "mechanism_fit": (z - model.mechanisms(z, torch.zeros(3, 3))).square().sum((1, 2)).mean(),
            "acyclicity": torch.tensor(0.0),
        }
    for key, value in expected.items():
        assert terms[key] == pytest.approx(value.item(), rel=1e-4, abs=1e-6), key
    total = terms["reconstruction"] + 0.7 * terms["kl_noise"] + 1.3 * terms["kl_prior"] + 0.4 * terms["label_fit"] + 0.6 * terms["mechanism_fit"]
    assert terms["loss"] == pytest.approx(total, rel=1e-5)


def test_with_edges_the_posterior_is_pushed_through_the_causal_layer(make_data: Any) -> None:
    data = make_data()
    model = with_weights(make(data, prior_std=0.4), [[0, 0.8, -0.3], [0, 0, 1.1], [0, 0, 0]])
    batch = batch_of(data)
    terms = model.loss(batch, torch.Generator().manual_seed(2))
    with torch.no_grad():
        mean, log_variance = model.posterior(batch["images"])
        push = torch.linalg.inv(torch.eye(3) - model.weights.T)
        z = torch.einsum("ij,bjk->bik", push, mean + torch.exp(log_variance / 2) * torch.randn((8, 3, 2), generator=torch.Generator().manual_seed(2)))
        u = model.spec.normalise(batch["labels"])
        divergences = []
        for k in range(2):
            covariance = push @ torch.diag_embed(log_variance[..., k].exp()) @ push.T
            q = MultivariateNormal(mean[..., k] @ push.T, covariance)
            divergences.append(kl_divergence(q, MultivariateNormal(u, 0.16 * torch.eye(3))))
        reconstruction = -Bernoulli(logits=model.decoder(z.flatten(1)), validate_args=False).log_prob(batch["images"]).sum((1, 2, 3)).mean()
    assert terms["kl_prior"].item() == pytest.approx(sum(divergences).mean().item(), rel=1e-4)  # type: ignore[union-attr]
    assert terms["reconstruction"].item() == pytest.approx(reconstruction.item(), rel=1e-5)
    assert terms["mechanism_fit"].item() == pytest.approx((z - model.mechanisms(z, model.weights)).square().sum((1, 2)).mean().item(), rel=1e-4)


def test_encoding_and_the_loss_use_the_same_causal_layer(make_data: Any) -> None:
    data = make_data()
    model = with_weights(make(data), [[0, 0.8, -0.3], [0, 0, 1.1], [0, 0, 0]])
    images = data.test.images[:5]
    mean = model.posterior(images.float() / 255)[0]
    z = model.encode(images)
    a, b, c = mean.unbind(1)
    assert torch.allclose(z[:, 0], a, atol=1e-6)
    assert torch.allclose(z[:, 1], b + 0.8 * a, atol=1e-6)
    assert torch.allclose(z[:, 2], c - 0.3 * a + 1.1 * (b + 0.8 * a), atol=1e-6)


def test_sharpness_adds_the_absolute_pixel_error(make_data: Any) -> None:
    data = make_data()
    batch = batch_of(data)
    plain, sharp = (make(data, **{**PAPER, "sharpness": sharpness}) for sharpness in (0.0, 2.5))
    terms = [model.loss(batch, torch.Generator().manual_seed(0)) for model in (plain, sharp)]
    with torch.no_grad():
        mean, log_variance = sharp.posterior(batch["images"])
        z = mean + torch.exp(log_variance / 2) * torch.randn((8, 3, 2), generator=torch.Generator().manual_seed(0))
        error = (torch.sigmoid(sharp.decoder(z.flatten(1))) - batch["images"]).abs().sum((1, 2, 3)).mean().item()
    assert terms[1]["absolute_error"].item() == pytest.approx(error, rel=1e-5)
    assert (terms[1]["loss"] - terms[0]["loss"]).item() == pytest.approx(2.5 * error, rel=1e-3)


def test_influence_is_what_one_moved_concept_changes_in_the_picture(make_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data()
    model = make(data, influence_step=0.4)
    z = torch.randn((6, 3, 2), generator=torch.Generator().manual_seed(1))
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch, "randn", lambda *size, **_: torch.full(size, -1.0))
        patch.setattr(torch, "randint", lambda _, size, **__: torch.full(size, 2))
        found = model.influence(z, model.decoder(z.flatten(1)), None).item()
        moved = z.clone()
        moved[:, 2] -= 0.4
        change = torch.sigmoid(model.decoder(moved.flatten(1))) - torch.sigmoid(model.decoder(z.flatten(1)))
    assert found == pytest.approx(change.abs().sum((1, 2, 3)).mean().item() / 0.4, rel=1e-4)
    batch = batch_of(data)
    terms = [make(data, **{**PAPER, "influence_weight": weight}).loss(batch, torch.Generator().manual_seed(0)) for weight in (0.0, 5.0)]
    assert (terms[1]["loss"] - terms[0]["loss"]).item() == pytest.approx(5 * terms[1]["influence"].item(), rel=1e-3)


# ---- Eq. 11, 12, 13 -------------------------------------------------------------------------------------------------
def test_label_fit_is_linear_for_continuous_and_logistic_for_binary_labels(make_data: Any) -> None:
    data = make_data(kinds=("continuous", "binary", "continuous", "binary"))
    weights = np.random.default_rng(0).normal(size=(4, 4))
    np.fill_diagonal(weights, 0)
    model = with_weights(make(data), weights)
    labels = data.train.labels[:9]
    u = np.stack(
        [2 * column - 1 if v.kind == "binary" else (column - v.mean) / v.std for v, column in zip(data.variables, labels.T.numpy(), strict=True)], 1
    )
    total = 0.0
    for row in u:
        for i, variable in enumerate(data.variables):
            linear = sum(weights[j, i] * row[j] for j in range(4))
            predicted = 2 / (1 + math.exp(-linear)) - 1 if variable.kind == "binary" else linear
            total += (row[i] - predicted) ** 2
    assert model.label_fit(model.spec.normalise(labels)).item() == pytest.approx(total / 9, rel=1e-4)
    assert model.loss(batch_of(data, 9))["label_fit"].item() == pytest.approx(total / 9, rel=1e-4)


def test_acyclicity_is_the_papers_polynomial(make_data: Any) -> None:
    data = make_data()
    weights = np.random.default_rng(1).normal(size=(3, 3))
    np.fill_diagonal(weights, 0)
    model = with_weights(make(data), weights)
    expected = np.trace(np.linalg.matrix_power(np.eye(3) + weights**2 / 3, 3)) - 3
    assert model.loss(batch_of(data))["acyclicity"].item() == pytest.approx(expected, rel=1e-5)


def test_mechanisms_are_fitted_to_children_only(make_data: Any) -> None:
    data = make_data()
    model = make(data, chain())
    z = torch.randn((5, 3, 2), generator=torch.Generator().manual_seed(0))
    predicted = model.mechanisms(z, torch.as_tensor(chain().adjacency, dtype=torch.float32))
    assert model.mechanism_fit(z).item() == pytest.approx((z - predicted)[:, 1:].square().sum((1, 2)).mean().item(), rel=1e-5)


@pytest.mark.parametrize("shapes", [False, True])
def test_the_mechanism_fit_moves_the_latents_only_if_asked(shapes: bool, make_data: Any) -> None:
    data = make_data()
    model = make(data, chain(), mechanism_shapes_latents=shapes)
    model.loss(batch_of(data), torch.Generator().manual_seed(0))["mechanism_fit"].backward()
    moved = any(p.grad is not None and p.grad.any() for p in model.encoder.parameters())
    assert moved == shapes
    assert all(p.grad is not None and p.grad.any() for p in model.mechanisms.parameters())


# ---- where the graph comes from -------------------------------------------------------------------------------------
def linear_gaussian(n: int = 800, seed: int = 0) -> Dataset:
    """Labels of the chain a -> b -> c with noises of unequal variance; the pictures say nothing."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = 1.5 * a + 0.8 * rng.normal(size=n)
    c = -1.2 * b + 1.5 * rng.normal(size=n)
    images = np.zeros((n, 1, 8, 8), dtype=np.uint8)
    return build_dataset("chain", images, np.stack([a, b, c], 1), [Variable(name) for name in "abc"])


def test_the_lagrangian_phase_finds_the_skeleton_of_a_chain_and_logs_a_from_zero() -> None:
    data = linear_gaussian()
    model = make(data, "lagrangian", epochs=0)
    lines = model.fit(data).history
    assert {frozenset(edge[:2]) for edge in model.graph.edges} == {frozenset("ab"), frozenset("bc")}
    assert {line["phase"] for line in lines} == {"graph"}
    history = np.array([line["adjacency"] for line in lines])
    assert not history[0].any()  # from A = 0
    edges = model.graph.weights != 0
    assert np.abs(history[-1][edges]) == pytest.approx(np.abs(model.graph.weights[edges]), rel=1e-5)
    assert torch.equal(model.mask, model.support)  # the edges are fixed from here on


def test_a_soft_intervention_that_changes_nothing_is_the_identity(make_data: Any) -> None:
    data = make_data()
    model = make(data, "joint")
    latents = model.encode(data.test.images)
    assert torch.equal(model.intervene(latents, {data.names[0]: lambda value: value}), latents)


def test_a_given_graph_keeps_its_edges_and_learns_their_strengths(make_data: Any) -> None:
    data = make_data()
    model = make(data, chain())
    assert model.graph == CausalGraph(("a", "b", "c"), chain().weights.astype(np.float32).astype(np.float64))
    before = model.weights.detach().clone()
    model.fit(data)
    after = model.weights.detach()
    assert (after[0, 1] != before[0, 1]) & (after[1, 2] != before[1, 2])
    assert torch.equal(after != 0, torch.as_tensor(chain().adjacency, dtype=torch.bool))
    assert [edge[:2] for edge in model.graph.edges] == [edge[:2] for edge in chain().edges]


def test_a_given_graph_may_name_the_variables_in_any_order_and_more_of_them(make_data: Any) -> None:
    wider = CausalGraph.from_edges(("x", "c", "b", "a"), [("a", "b"), ("b", "c"), ("x", "a")])
    assert [edge[:2] for edge in make(make_data(), wider).graph.edges] == [("a", "b"), ("b", "c")]


def test_the_graph_is_found_from_the_labels_of_the_training_split(pendulum: Dataset) -> None:
    model = make(pendulum, "independence", epochs=0)
    model.fit(pendulum, seed=3)
    found = discover(pendulum.train.labels.numpy(), names=pendulum.names, kinds=["continuous"] * 4, seed=3).graph
    assert np.array_equal(model.graph.adjacency, found.adjacency)
    assert found.edges
    u = model.spec.normalise(pendulum.train.labels).numpy()
    for i in range(4):
        parents = np.flatnonzero(found.adjacency[:, i])
        if len(parents):
            slopes = np.linalg.lstsq(u[:, parents], u[:, i], rcond=None)[0]
            assert np.allclose(model.weights.detach().numpy()[parents, i], slopes, atol=1e-4)


@pytest.mark.parametrize("graph", ["joint", "lagrangian", "independence"])
def test_the_diagonal_stays_zero_and_the_graph_acyclic(graph: str, pendulum: Dataset) -> None:
    model = make(pendulum, graph)
    model.fit(pendulum)
    assert not model.weights.diagonal().any()
    assert not model.adjacency.diagonal().any()
    assert model.graph.is_acyclic


def test_the_graph_is_acyclic_whatever_the_weights_are(make_data: Any) -> None:
    model = make(make_data(kinds=("continuous",) * 6), edge_threshold=0.3)
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights = rng.normal(scale=0.6, size=(6, 6))
        with_weights(model, weights)
        graph = model.graph
        assert graph.is_acyclic
        assert not np.diagonal(graph.weights).any()
        assert all(abs(weight) >= 0.3 for _, _, weight in graph.edges)
        assert np.allclose(graph.weights[graph.weights != 0], weights[graph.weights != 0])


# ---- what it refuses ------------------------------------------------------------------------------------------------
def test_a_given_graph_with_a_cycle_or_without_a_variable_is_refused(make_data: Any) -> None:
    data = make_data()
    with pytest.raises(DataError, match="cycle"):
        make(data, chain([("a", "b", 1.0), ("b", "a", 1.0)]))
    with pytest.raises(DataError, match="'c'"):
        make(data, CausalGraph.from_edges(("a", "b"), [("a", "b")]))
    with pytest.raises(UsageError, match="graph=given needs a graph"):
        make(data, "given").fit(data)
    with pytest.raises(UsageError, match=r"graph='notears'.*lagrangian"):
        make(data, "notears")


def test_data_it_cannot_learn_from_is_refused() -> None:
    labels = (Variable("a"), Variable("colour", "categorical", categories=("red", "blue", "green")))
    with pytest.raises(DataError, match="'colour' is categorical"):
        CausalVAE(Spec((1, 16, 16), labels))
    with pytest.raises(DataError, match="learns from labels"):
        CausalVAE(Spec((1, 16, 16)))
    with pytest.raises(DataError, match="not clips"):
        CausalVAE(Spec((1, 16, 16), (Variable("a"),), frames=4))


@pytest.mark.parametrize(
    "settings", [{"dims": 0}, {"hidden": 0}, {"channels": ()}, {"channels": (8, 0)}, {"mechanism_hidden": 0}, {"dims": -1}, {"dimz": 2}]
)
def test_settings_that_make_no_network_are_refused(settings: dict[str, Any], make_data: Any) -> None:
    with pytest.raises(UsageError):
        make(make_data(), **settings)


# ---- variants -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings",
    [
        {"network": "mlp"},
        {"decoder": "per-concept"},
        {"network": "mlp", "decoder": "per-concept"},
        {"mechanism_input": "sum"},
        {"likelihood": "gaussian"},
        {"likelihood": "laplace"},
        {"encode_labels": True},
        {"dims": 1},
        {"mechanism_shapes_latents": True},
    ],
    ids=str,
)
def test_every_variant_learns_and_answers(settings: dict[str, Any], make_data: Any, tmp_path: Any) -> None:
    data = make_data((3, 13, 16))
    model = make(data, chain(), epochs=6, **settings)
    history = model.fit(data).history
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"]
    pictures = model.counterfactual(data.test.images, {"a": 1.0})
    assert pictures.shape == data.test.images.shape
    assert not torch.equal(pictures, model.reconstruct(data.test.images))
    assert model.sample(3, {"b": 0.0}, seed=0).shape == (3, 3, 13, 16)


@pytest.mark.parametrize("graph", ["given", "auto"])
def test_binary_labels_train_and_are_set_to_no_or_yes(graph: str, make_data: Any) -> None:
    data = make_data(samples=96, kinds=("binary", "continuous", "binary"))
    model = make(data, data.graph if graph == "given" else graph)
    model.fit(data)
    latents = model.encode(data.test.images)
    for value in (0.0, 1.0):
        after = model.intervene(latents, {"a": value})
        assert torch.allclose(after[:, 0], torch.full_like(after[:, 0], 2 * value - 1))
        assert torch.allclose(model.to_units(0, after[:, 0]), torch.full((len(latents),), value))


def test_a_single_variable_is_enough(make_data: Any) -> None:
    data = make_data(kinds=("continuous",))
    model = make(data, "independence")
    model.fit(data)
    assert model.graph.edges == []
    assert model.counterfactual(data.test.images, {"a": 0.3}).shape == data.test.images.shape


def test_each_concept_has_a_decoder_of_its_own(make_data: Any) -> None:
    model = make(make_data(), chain(), decoder="per-concept")
    z, moved = torch.randn((2, 4, 3, 2), generator=torch.Generator().manual_seed(0))
    moved[:, (0, 2)] = z[:, (0, 2)]
    with torch.no_grad():
        change = model.decoder(moved.flatten(1)) - model.decoder(z.flatten(1))
        alone = model.decoder.decoders[1](moved[:, 1]) - model.decoder.decoders[1](z[:, 1])
    assert alone.abs().max() > 0
    assert torch.allclose(change, alone / 3, atol=1e-5)


def test_the_encoder_may_see_the_labels_and_works_without_them(make_data: Any) -> None:
    data = make_data()
    model = make(data, chain(), encode_labels=True, epochs=3)
    model.fit(data)
    images, labels = data.test.images, data.test.labels
    blind, told, lied = model.encode(images), model.encode(images, labels), model.encode(images, labels + 1)
    assert not torch.equal(blind, told)
    assert not torch.equal(told, lied)
    assert torch.equal(told, model.encode(images, labels.numpy()))
    assert torch.allclose(told[:1], model.encode(images[0], labels[0]), atol=1e-5)
    assert not torch.equal(model.counterfactual(images, {}, labels), model.counterfactual(images, {}))
    for wrong, words in ((labels[:2], "labels must be"), (labels[:, :2], "a, b, c"), (labels * math.nan, "NaN"), ("far", "not an array of numbers")):
        with pytest.raises(QueryError, match=words):
            model.encode(images, wrong)
    plain = make(data, chain())
    assert torch.equal(plain.encode(images), plain.encode(images, labels))


def test_labels_are_hidden_from_half_of_the_training_images(make_data: Any) -> None:
    data = make_data(samples=128)
    model = make(data, encode_labels=True)
    seen: list[Tensor] = []
    posterior = model.posterior
    model.posterior = lambda images, labels, known: seen.append(known) or posterior(images, labels, known)  # type: ignore[assignment,func-returns-value]
    model.loss(batch_of(data, 80), torch.Generator().manual_seed(0))
    assert set(seen[0].unique().tolist()) == {0.0, 1.0}
    assert 25 <= seen[0].sum() <= 55


# ---- queries on mechanisms set by hand ------------------------------------------------------------------------------
def by_hand(data: Dataset) -> CausalVAE:
    """b = 2 a + noise, c = -3 b + noise in normalised units, the first latent dim of a parent deciding both dims of its child."""
    model = make(data, chain())
    with torch.no_grad():
        for weight, bias in zip(model.mechanisms.layer_weights, model.mechanisms.layer_biases, strict=True):
            weight.zero_()
            bias.zero_()
        first, second = model.mechanisms.layer_weights
        for child, parent, slope in ((1, 0, 2.0), (2, 1, -3.0)):
            first[child, parent * 2, 0] = 1.0
            second[child, 0] = slope
        model.mechanisms.layer_biases[0][:, :, 0] = 50.0  # ELU is the identity there
        model.mechanisms.layer_biases[1][1] = -100.0
        model.mechanisms.layer_biases[1][2] = 150.0
    return model


def test_do_travels_along_the_mechanisms(make_data: Any) -> None:
    data = make_data()
    model = by_hand(data)
    latents = model.encode(data.test.images)
    variable = model.spec.variables[0]
    after = model.intervene(latents, {"a": variable.mean + 1.5 * variable.std})
    assert torch.allclose(after[:, 0], torch.full_like(after[:, 0], 1.5), atol=1e-5)
    shift = 2 * (1.5 - latents[:, 0, :1])
    assert torch.allclose(after[:, 1], latents[:, 1] + shift, atol=1e-3)
    assert torch.allclose(after[:, 2], latents[:, 2] - 3 * shift, atol=1e-3)


def test_do_on_an_effect_leaves_its_cause(make_data: Any) -> None:
    data = make_data()
    model = by_hand(data)
    latents = model.encode(data.test.images)
    b = model.spec.variables[1]
    after = model.intervene(latents, {"b": lambda value: value + b.std})
    assert torch.equal(after[:, 0], latents[:, 0])
    set_to = latents[:, 1].mean(-1) + 1
    assert torch.allclose(after[:, 1].mean(-1), set_to, atol=1e-4)
    assert torch.allclose(after[:, 2], latents[:, 2] - 3 * (after[:, 1, :1] - latents[:, 1, :1]), atol=1e-3)


def test_several_interventions_at_once_in_any_order_and_per_sample(make_data: Any) -> None:
    data = make_data()
    model = by_hand(data)
    images = data.test.images
    values = np.linspace(-1, 1, len(images))
    do = {"a": values, "c": lambda value: 2 * value}
    forwards, backwards = model.counterfactual(images, do), model.counterfactual(images, dict(reversed(do.items())))
    assert torch.equal(forwards, backwards)
    latents = model.intervene(model.encode(images), do)
    assert np.allclose(model.to_units(0, latents[:, 0]).numpy(), values, atol=1e-5)
    alone = model.to_units(2, model.intervene(model.encode(images), {"a": values})[:, 2])
    assert torch.allclose(model.to_units(2, latents[:, 2]), 2 * alone, rtol=1e-3, atol=1e-3)
    each = torch.cat([model.counterfactual(images[i], {"a": value, "c": lambda v: 2 * v}) for i, value in enumerate(values)])
    assert torch.allclose(forwards, each, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"network": "mlp"}, {"decoder": "per-concept"}, {"encode_labels": True}], ids=str)
def test_an_empty_do_is_the_reconstruction_bit_for_bit(settings: dict[str, Any], pendulum: Dataset) -> None:
    model = make(pendulum, pendulum.graph, **settings)
    model.fit(pendulum)
    for images in (pendulum.test.images, pendulum.test.images[:1]):
        assert torch.equal(model.counterfactual(images, {}), model.reconstruct(images))


def latents_of_samples(model: CausalVAE, n: int, do: Any, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    seen: list[Tensor] = []
    decode = model.decode

    def spy(latents: Tensor) -> Tensor:
        seen.append(latents)
        return decode(latents)

    monkeypatch.setattr(model, "decode", spy)
    model.sample(n, do, seed=4)
    monkeypatch.undo()
    return torch.cat(seen)


def test_sampling_under_do_sets_the_variable_in_its_own_units(pendulum: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(pendulum, pendulum.graph)
    model.fit(pendulum)
    free = latents_of_samples(model, 300, None, monkeypatch)
    for i, name in enumerate(model.latent_names):
        found = latents_of_samples(model, 300, {name: 7.5}, monkeypatch)
        assert torch.allclose(model.to_units(i, found[:, i]), torch.full((300,), 7.5), atol=1e-4)
        reached = {name, *model.graph.descendants(name)}
        for j, other in enumerate(model.latent_names):
            assert torch.equal(found[:, j], free[:, j]) == (other not in reached)


def test_samples_are_made_of_the_training_noises(pendulum: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(pendulum, pendulum.graph)
    model.fit(pendulum)
    trained = model.encode(pendulum.train.images)
    drawn = latents_of_samples(model, 400, None, monkeypatch)
    mask = torch.as_tensor(pendulum.graph.adjacency, dtype=torch.float32)
    for i, name in enumerate(model.latent_names):
        if pendulum.graph.parents(name):
            with torch.no_grad():
                known, new = (z[:, i] - model.mechanisms.one(i, z, mask) for z in (trained, drawn))
        else:
            known, new = trained[:, i], drawn[:, i]
        nearest = torch.cdist(new, known).argmin(1)
        assert torch.allclose(new, known[nearest], atol=1e-4), name
        assert len(nearest.unique()) > 50  # nearly all of the 65
    first, second = (torch.cdist(drawn[:, i], trained[:, i]).argmin(1) for i in (0, 1))
    assert (first == second).float().mean() < 0.1  # each root has a noise of its own
