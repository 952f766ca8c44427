"""The causal-prior VAE against closed forms and Monte Carlo: loss, queries, settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_causal_prior import SMALL, align_at_random, distribution, make, seeded, standard
from torch.distributions import MultivariateNormal, kl_divergence

from batches import late_batch as batch_of
from intervae.data import Dataset
from intervae.data.simulators import Parabola
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import CausalPriorVAE
from intervae.models.causal_prior.settings import allowed_edges

NAMES = ("z0", "z1", "z2", "z3")


@pytest.fixture
def data(make_data: Any) -> Dataset:
    return make_data((1, 6, 6))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_without_edges_the_loss_is_that_of_a_vae(data: Dataset, covariance: str) -> None:
    model, batch = (
        make(data, edges=(), covariance=covariance, reconstruction_weight=3.0, beta=0.7),
        batch_of(data),
    )
    assert [phase.name for phase in model.phases()] == ["prior"]
    posterior = model.posterior(batch["images"])
    off_diagonal = posterior.factor - torch.diag_embed(posterior.factor.diagonal(dim1=1, dim2=2))
    assert (off_diagonal.abs().max() > 0.01) == (covariance == "full")
    terms = model.loss(batch, seeded(1))
    kl = kl_divergence(distribution(posterior), standard(4)).mean()
    assert terms["kl"].item() == pytest.approx(kl.item(), rel=1e-4)
    z = posterior.mean + torch.einsum(
        "bij,bj->bi", posterior.factor, torch.randn(16, 4, generator=seeded(1))
    )
    error = ((model.decoder(z) - batch["images"]) ** 2).sum((1, 2, 3)).mean()
    assert terms["reconstruction"].item() == pytest.approx(error.item(), rel=1e-5)
    assert terms["loss"].item() == pytest.approx(3.0 * error.item() + 0.7 * kl.item(), rel=1e-4)


def test_isotropic_control_has_the_kl_from_a_standard_normal_after_alignment(
    data: Dataset,
) -> None:
    model = make(data, isotropic=True)
    align_at_random(model)
    posterior = model.posterior(batch_of(data)["images"])
    assert model.loss(batch_of(data))["kl"].item() == pytest.approx(
        kl_divergence(distribution(posterior), standard(4)).mean().item(), rel=1e-4
    )
    assert [phase.name for phase in model.phases()] == [
        phase.name for phase in make(data).phases()
    ]  # the same recipe but for the prior


def test_kl_from_linear_equations_is_the_closed_form_with_any_alignment(
    data: Dataset,
) -> None:
    model = make(data, form="linear", edges=("all",), scales=(1.0, 0.5, 2.0, 0.3))
    align_at_random(model)
    with torch.no_grad():
        model.sem.weights.copy_(torch.randn(4, 4, generator=seeded(3)).triu(1))
    mixing = torch.linalg.inv(torch.eye(4).double() - model.sem.weights.detach().double().T)
    prior = MultivariateNormal(
        torch.zeros(4).double(),
        mixing @ torch.diag(torch.tensor([1.0, 0.25, 4.0, 0.09]).double()) @ mixing.T,
    )
    posterior = model.posterior(batch_of(data)["images"])
    assert posterior.factor.triu(1).abs().max() > 0.1
    expected = kl_divergence(distribution(posterior), prior).mean().item()
    assert model.loss(batch_of(data))["kl"].item() == pytest.approx(expected, rel=1e-4)


def test_loss_is_the_negative_mean_of_log_weights(data: Dataset) -> None:
    """For one draw with divergence="mc"; on average with the closed form of linear equations."""
    model, images = make(data, divergence="mc", curriculum=False), batch_of(data)["images"]
    align_at_random(model)
    constant = 0.5 * 36 * math.log(math.pi)
    for seed in range(3):
        bound = model.log_weights(images, None, 1, seeded(seed)).mean().item() + constant
        assert -model.loss(batch_of(data), seeded(seed))["loss"].item() == pytest.approx(
            bound, rel=1e-5
        )
    linear = make(data, form="linear", edges=("all",), curriculum=False, scales=(1.0, 0.5))
    with torch.no_grad():
        linear.sem.weights.copy_(torch.randn(4, 4, generator=seeded(3)).triu(1))
    weights = linear.log_weights(images, None, 4000, seeded(0)).mean(1) + constant
    losses = torch.stack(
        [linear.loss(batch_of(data), seeded(seed))["loss"].detach() for seed in range(400)]
    )
    spread = (weights.var() / len(weights) + losses.var() / len(losses)).sqrt()
    assert (weights.mean() + losses.mean()).abs() < 4 * spread


@pytest.mark.parametrize(
    ("form", "learn_edges"), [("linear", True), ("quadratic", True), ("mlp", True), ("mlp", False)]
)
def test_every_form_of_equations_trains(data: Dataset, form: str, learn_edges: bool) -> None:
    model = CausalPriorVAE(
        data.spec,
        form=form,
        edges=("all",),
        learn_edges=learn_edges,
        learn_scales=True,
        sparsity=0.1,
        **{**SMALL, "restarts": 1},
    )
    start = {key: tensor.detach().clone() for key, tensor in model.sem.named_parameters()}
    last = model.fit(data).history[-1]["train"]
    assert all(math.isfinite(value) for value in last.values())
    assert all(not torch.equal(start[key], tensor) for key, tensor in model.sem.named_parameters())
    assert ("edges" in last) == learn_edges


def test_loss_includes_the_expected_number_of_edges(data: Dataset) -> None:
    model = make(data, edges=("all",), learn_edges=True, sparsity=2.5)
    terms = model.loss(batch_of(data), seeded(0))
    assert terms["edges"].item() == pytest.approx(
        6 * torch.sigmoid(torch.tensor(2.0)).item(), rel=1e-5
    )
    assert terms["loss"].item() == pytest.approx(
        (terms["reconstruction"] + terms["kl"] + 2.5 * terms["edges"]).item(), rel=1e-5
    )


def test_do_moves_the_effect_by_the_quadratic_law(data: Dataset) -> None:
    model = make(data)
    latents = model.encode(data.test.images)
    after = model.intervene(latents, {"z0": 1.7})
    assert torch.allclose(after[:, 1], latents[:, 1] + 1.7**2 - latents[:, 0].square(), atol=1e-5)
    assert torch.equal(after[:, 2:], latents[:, 2:])
    assert torch.equal(model.counterfactual(data.test.images, {"z0": 1.7}), model.decode(after))
    upwards = model.intervene(latents, {"z1": 1.7})  # an effect moves no cause
    assert torch.equal(upwards[:, [0, 2, 3]], latents[:, [0, 2, 3]])
    assert model.graph.edges == [("z0", "z1", 1.0)]


def test_samples_are_noises_passed_through_the_equations(data: Dataset) -> None:
    model = make(data)
    noise = model.draw_noise(2000, seeded(5))
    assert noise.std(0).flatten().tolist() == pytest.approx([1.0, 0.5, 1.0, 1.0], rel=0.1)
    z = noise.clone()
    z[:, 1] += z[:, 0].square()
    assert torch.allclose(model.sample(2000, seed=5), model.decode(z), atol=1e-5)
    z[:, 0] = 0.5
    z[:, 1] = noise[:, 1] + 0.25
    assert torch.allclose(model.sample(2000, {"z0": 0.5}, seed=5), model.decode(z), atol=1e-5)


def test_traverse_follows_the_equations(data: Dataset) -> None:
    model = make(data)
    noises = torch.randn(5, 4, generator=seeded(0))
    z = noises.clone()
    z[:, 1] = noises[:, 1] + noises[:, 0].square()
    assert torch.allclose(model.traverse(noises), model.decode(z[..., None]), atol=1e-5)
    with pytest.raises(QueryError, match=r"\(B, 4\)"):
        model.traverse(noises[:, :3])


def test_draw_posterior_draws_from_the_posterior(data: Dataset) -> None:
    model = make(data)
    align_at_random(model)
    image = data.test.images[:1]
    posterior = model.posterior(image.float() / 255)
    draws = model.draw_posterior(image.expand(40_000, -1, -1, -1))
    covariance = (posterior.factor @ posterior.factor.mT)[0].detach()
    assert torch.allclose(
        draws.mean(0), posterior.mean[0], atol=0.03 * covariance.diagonal().max().sqrt().item()
    )
    assert torch.allclose(draws.mT.cov(), covariance, atol=0.04 * covariance.abs().max().item())


def test_allowed_edges_parses_edge_names() -> None:
    assert torch.equal(
        allowed_edges(("z0->z1", " z1 -> z3 "), NAMES).nonzero(), torch.tensor([[0, 1], [1, 3]])
    )
    assert torch.equal(allowed_edges(("all",), NAMES), torch.ones(4, 4).triu(1))
    assert not allowed_edges((), NAMES).any()


@pytest.mark.parametrize("edge", ["z1->z0", "z0->z0", "z0-z1", "z0->z9", "up->z1", "", "all"])
def test_invalid_edge_raises_an_error_with_the_valid_names(edge: str) -> None:
    with pytest.raises(
        UsageError, match=r"must be like z0->z1, from an earlier to a later one of z0, z1, z2, z3"
    ):
        allowed_edges(("z0->z1", edge), NAMES)


@pytest.mark.parametrize(
    "settings",
    [
        {"scales": (1.0, 0.0)},
        {"scales": (1.0,) * 9},
        {"restarts": 0},
        {"finalists": 0},
        {"beta": -1.0},
        {"sparsity": -1.0},
        {"gate_steps": 0},
        {"latents": 1},
    ],
)
def test_invalid_settings_raise_errors(data: Dataset, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        CausalPriorVAE(data.spec, **{**SMALL, **settings})


def test_error_for_clips_names_the_temporal_model(make_data: Any) -> None:
    with pytest.raises(DataError, match="temporal-causal-prior-vae"):
        CausalPriorVAE(make_data((1, 6, 6), frames=3).spec)


def test_queries_of_the_isotropic_control_use_a_standard_normal_prior(data: Dataset) -> None:
    model = make(data, isotropic=True)
    assert not model.graph.edges
    assert not model.edges.any()
    draws = model.draw_latents(20_000, seeded(0))
    assert torch.allclose(draws.std(0), torch.ones(4), atol=0.03)
    images = data.test.images[:4]
    z = model.encode(images)
    moved = model.counterfactual(images, do={"z0": 2.0})
    z[:, 0] = 2.0
    assert torch.allclose(moved, model.decode(z), atol=1e-5)  # no effects
    plain = make(data, edges=())
    plain.encoder.load_state_dict(model.encoder.state_dict())
    plain.decoder.load_state_dict(model.decoder.state_dict())
    weights = [m.log_weights(images, None, 2, seeded(0)) for m in (model, plain)]
    assert torch.allclose(*weights, atol=1e-4)


def test_noises_may_be_lists_and_arrays_of_any_number_type(data: Dataset) -> None:
    model = make(data)
    expected = model.traverse(torch.ones(2, 4))
    for noises in ([[1, 1, 1, 1]] * 2, np.ones((2, 4)), torch.ones(2, 4, dtype=torch.int64)):
        assert torch.equal(model.traverse(noises), expected)
    for bad in (torch.ones(4), [[1.0, float("nan"), 0.0, 0.0]], "noise"):
        with pytest.raises(QueryError):
            model.traverse(bad)


def test_exploding_equations_raise_an_error_before_training(data: Dataset) -> None:
    with pytest.raises(UsageError, match=r"grow beyond 1e\+06; use fewer edges or form=mlp"):
        CausalPriorVAE(data.spec, **{**SMALL, "latents": 5, "edges": ("all",)})
    with pytest.raises(UsageError, match="edges=all needs two latents or more"):
        CausalPriorVAE(data.spec, **{**SMALL, "latents": 1, "edges": ("all",), "scales": (1.0,)})


@pytest.mark.slow
def test_first_two_latents_learn_the_position_of_an_oval() -> None:
    data = Parabola().dataset(size=16, samples=20_000)
    model = CausalPriorVAE(
        data.spec, reconstruction_weight=16.0, restarts=3, first_epochs=6, epochs=6
    )
    model.fit(data, seed=0)
    z, labels = model.encode(data.test.images)[..., 0].numpy(), data.test.labels.numpy()
    x, y = labels[:, 0], labels[:, 1]
    assert np.corrcoef(z[:, 0], x)[0, 1] ** 2 > 0.5
    assert np.corrcoef(z[:, 1], y)[0, 1] ** 2 > 0.5
