"""CausalVAE-unsup: its loss term by term, A without labels, and do() along the linear layer."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, MultivariateNormal, Normal, kl_divergence

from batches import batch_of
from intervae.data import Dataset, Spec, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import VAE, CausalVAE, CausalVAEUnsup, load

SMALL = {
    "latents": 3,
    "dims": 2,
    "channels": (8, 8),
    "hidden": 32,
    "mechanism_hidden": 8,
    "batch_size": 16,
    "epochs": 2,
}
CHAIN = [[0.0, 0.8, 0.0], [0.0, 0.0, -1.1], [0.0, 0.0, 0.0]]  # z0 -> z1 -> z2
# a graph during training, det(I - A^T) = 1 - 0.125
CYCLE = [[0.0, 0.5, 0.0], [0.0, 0.0, 0.5], [0.5, 0.0, 0.0]]


def make(data: Dataset, weights: Any = None, **settings: Any) -> CausalVAEUnsup:
    model = CausalVAEUnsup(data.spec, **{**SMALL, **settings})
    if weights is not None:
        with torch.no_grad():
            model.adjacency.copy_(torch.as_tensor(weights, dtype=torch.float32))
    return model


def unlabelled(make_data: Any) -> Dataset:
    images = make_data(samples=140).train.images.numpy()
    return build_dataset("bare", images, np.zeros((len(images), 0)), [])


# ---- the loss ----------------------------------------------------------------------------------
@pytest.mark.parametrize("weights", [CHAIN, CYCLE], ids=["chain", "cycle"])
def test_every_term_of_the_loss(weights: Any, make_data: Any) -> None:
    data = make_data((3, 12, 10))
    strengths = {
        "noise_weight": 0.7,
        "prior_weight": 1.3,
        "acyclicity_weight": 2.0,
        "absolute_error_weight": 3.0,
    }
    model, batch = make(data, weights, **strengths), batch_of(data)
    terms = {
        key: value.item()
        for key, value in model.loss(batch, torch.Generator().manual_seed(2)).items()
    }
    with torch.no_grad():
        features = model.encoder(batch["images"]).reshape(8, 2, 3, 2)
        mean, variance = features[:, 0], features[:, 1].exp()
        push = torch.linalg.inv(torch.eye(3) - torch.tensor(weights).T)
        z = push @ (
            mean
            + variance.sqrt() * torch.randn((8, 3, 2), generator=torch.Generator().manual_seed(2))
        )
        output = model.decoder(z.flatten(1))
        posteriors = [
            MultivariateNormal(
                mean[..., k] @ push.T, push @ torch.diag_embed(variance[..., k]) @ push.T
            )
            for k in range(2)
        ]
        prior = MultivariateNormal(torch.zeros(3), torch.eye(3))
        squares = torch.tensor(weights).square()
        expected = {
            "reconstruction": -Bernoulli(logits=output, validate_args=False)
            .log_prob(batch["images"])
            .sum((1, 2, 3))
            .mean()
            .item(),
            "absolute_error": (torch.sigmoid(output) - batch["images"])
            .abs()
            .sum((1, 2, 3))
            .mean()
            .item(),
            "kl_noise": kl_divergence(Normal(mean, variance.sqrt()), Normal(0.0, 1.0))
            .sum((1, 2))
            .mean()
            .item(),
            "kl_prior": sum(kl_divergence(q, prior) for q in posteriors).mean().item(),
            "acyclicity": (
                torch.trace(torch.linalg.matrix_power(torch.eye(3) + squares / 3, 3)) - 3
            ).item(),
        }
    assert terms.keys() == {"loss", *expected}
    for key, value in expected.items():
        assert terms[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    factors = {"kl_noise": 0.7, "kl_prior": 1.3, "acyclicity": 2.0, "absolute_error": 3.0}
    assert terms["loss"] == pytest.approx(
        expected["reconstruction"] + sum(w * expected[key] for key, w in factors.items()), rel=1e-5
    )


def test_kl_terms_of_a_fixed_posterior(make_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """eps = (1, 0, 0) with variance 1 and z0 -> z1 of weight 2, so z = (1, 2, 0).

    Per dim KL(z) = (|z|^2 + tr C C^T - 3) / 2 and KL(eps) = 1 / 2.
    """
    data = make_data()
    model = make(data, [[0.0, 2.0, 0.0], [0.0] * 3, [0.0] * 3])
    mean = torch.tensor([1.0, 0.0, 0.0])[:, None].expand(8, 3, 2)
    monkeypatch.setattr(model, "posterior", lambda images: (mean, torch.zeros(8, 3, 2)))
    terms = model.loss(batch_of(data))
    assert terms["kl_noise"].item() == pytest.approx(2 * 0.5)
    assert terms["kl_prior"].item() == pytest.approx(2 * 0.5 * (1 + 4 + (3 + 4) - 3))


def test_at_zero_weights_without_the_prior_on_z_it_is_a_vae(make_data: Any) -> None:
    """The first loss is that of a VAE with the same weights; the prior on z adds the KL again."""
    data = make_data()
    plain = VAE(data.spec, latents=3, dims=2, channels=(8, 8), hidden=32, seed=5)
    without, with_prior = (
        make(data, seed=5, absolute_error_weight=0.0, prior_weight=weight) for weight in (0.0, 1.0)
    )
    for key, tensor in plain.state_dict().items():
        assert torch.equal(tensor, without.state_dict()[key]), key
    expected, without_terms, with_terms = (
        m.loss(batch_of(data), torch.Generator().manual_seed(0))
        for m in (plain, without, with_prior)
    )
    assert without_terms["loss"].item() == pytest.approx(expected["loss"].item(), rel=1e-6)
    assert without_terms["kl_noise"].item() == pytest.approx(expected["kl"].item(), rel=1e-5)
    assert (with_terms["loss"] - without_terms["loss"]).item() == pytest.approx(
        expected["kl"].item(), rel=1e-3
    )


def test_mask_layer_adds_the_mechanism_fit(make_data: Any) -> None:
    data = make_data()
    assert not [key for key in make(data).state_dict() if key.startswith("mechanisms")]
    model, batch = make(data, CHAIN, mask_layer=True, mechanism_weight=0.5), batch_of(data)
    terms = model.loss(batch, torch.Generator().manual_seed(2))
    with torch.no_grad():
        mean, log_variance = model.posterior(batch["images"])
        z = model.endogenous(
            mean
            + torch.exp(log_variance / 2)
            * torch.randn((8, 3, 2), generator=torch.Generator().manual_seed(2))
        )
        assert model.mechanisms is not None
        misfit = (z - model.mechanisms(z, torch.tensor(CHAIN))).square().sum((1, 2)).mean().item()
        without = make(data, CHAIN).loss(batch, torch.Generator().manual_seed(2))
    assert terms["mechanism_fit"].item() == pytest.approx(misfit, rel=1e-5)
    assert torch.equal(terms["kl_prior"], without["kl_prior"])
    rest = sum(
        terms[key].item() * w
        for key, w in (
            ("reconstruction", 1),
            ("absolute_error", 10),
            ("kl_noise", 1),
            ("kl_prior", 1),
            ("acyclicity", 1),
        )
    )
    assert terms["loss"].item() == pytest.approx(rest + 0.5 * misfit, rel=1e-5)


def test_shared_settings_have_the_defaults_of_causal_vae() -> None:
    ours, theirs = (
        {field.name: field.default for field in fields(cls.Settings)}
        for cls in (CausalVAEUnsup, CausalVAE)
    )
    assert {
        name: value for name, value in ours.items() if name in theirs and name != "patience"
    }.items() <= theirs.items()
    assert ours.keys() - theirs.keys() == {"latents", "mask_layer"}


def test_labels_are_not_used(make_data: Any) -> None:
    data = make_data()
    model, batch = make(data), batch_of(data)
    terms = [
        model.loss({**batch, "labels": labels}, torch.Generator().manual_seed(0))
        for labels in (batch["labels"], 100 - batch["labels"])
    ]
    assert all(torch.equal(terms[0][key], terms[1][key]) for key in terms[0])
    assert torch.equal(
        model.encode(data.test.images), model.encode(data.test.images, data.test.labels)
    )
    CausalVAEUnsup(
        Spec((1, 16, 16), (Variable("colour", "categorical", categories=("red", "blue")),))
    )


# ---- A -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [{}, {"prior_weight": 0.0}, {"mask_layer": True}], ids=str)
def test_weights_leave_zero_except_on_the_diagonal(
    settings: dict[str, Any], make_data: Any
) -> None:
    data = make_data(samples=128)
    model = make(data, **settings)
    model.loss(batch_of(data), torch.Generator().manual_seed(0))["loss"].backward()
    gradient = model.adjacency.grad
    off_diagonal = ~torch.eye(3, dtype=torch.bool)
    assert gradient is not None
    assert gradient[off_diagonal].abs().min() > 1e-3  # zero is not a saddle point
    assert not gradient.diagonal().any()
    history = model.fit(data).history
    assert model.weights.detach()[off_diagonal].all()
    assert not model.adjacency.diagonal().any()
    logged = [line["adjacency"] for line in history if "train" in line]
    assert np.allclose(logged[-1], model.weights.detach()) or np.allclose(
        logged[0], model.weights.detach()
    )  # the better of the two epochs


def test_graph_of_unsup_is_acyclic_for_any_weights(make_data: Any) -> None:
    data = make_data()
    rng = np.random.default_rng(0)
    for _ in range(30):
        weights = rng.normal(scale=0.6, size=(6, 6))
        graph = make(data, weights, latents=6, dims=1).graph
        assert graph.is_acyclic
        assert graph.names == tuple(f"z{i}" for i in range(6))
        assert not np.diagonal(graph.weights).any()
        assert all(abs(weight) >= 0.3 for _, _, weight in graph.edges)
        assert np.allclose(graph.weights[graph.weights != 0], weights[graph.weights != 0])
    assert [edge[:2] for edge in make(data, CHAIN).graph.edges] == [("z0", "z1"), ("z1", "z2")]
    assert make(data, [[0.0, 0.29, 0.0], [0.0] * 3, [0.0] * 3]).graph.edges == []


# ---- queries -----------------------------------------------------------------------------------
def test_do_propagates_along_the_linear_layer_in_latent_units(make_data: Any) -> None:
    data = make_data()
    model = make(data, CHAIN)
    latents = model.encode(data.test.images)
    after = model.intervene(latents, {"z0": 1.5})
    shift = 1.5 - latents[:, 0]
    assert torch.equal(after[:, 0], torch.full_like(after[:, 0], 1.5))
    assert torch.allclose(after[:, 1], latents[:, 1] + 0.8 * shift, atol=1e-6)
    assert torch.allclose(after[:, 2], latents[:, 2] - 1.1 * 0.8 * shift, atol=1e-6)
    effect = model.intervene(latents, {"z1": lambda value: value + 1})
    assert torch.equal(effect[:, 0], latents[:, 0])
    assert torch.allclose(effect[:, 1], latents[:, 1] + 1, atol=1e-6)
    assert torch.allclose(effect[:, 2], latents[:, 2] - 1.1, atol=1e-6)


def test_do_propagates_along_the_mask_layer_if_there_is_one(make_data: Any) -> None:
    data = make_data()
    model = make(data, CHAIN, mask_layer=True)
    latents = model.encode(data.test.images)
    after = model.intervene(latents, {"z0": 1.5})
    assert model.mechanisms is not None
    with torch.no_grad():
        before, then = (model.mechanisms(z, torch.tensor(CHAIN))[:, 1] for z in (latents, after))
    assert torch.allclose(after[:, 1], latents[:, 1] + then - before, atol=1e-6)
    assert not torch.allclose(after[:, 1], latents[:, 1] + 0.8 * (1.5 - latents[:, 0]), atol=1e-3)


def test_samples_of_unsup_use_noises_of_the_training_split(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data()
    model = make(data, CHAIN)
    model.collect_noise(data, seed=0)
    eps = model.posterior(data.train.images.float() / 255)[0]
    decoded: list[Tensor] = []
    decode = model.decode
    monkeypatch.setattr(model, "decode", lambda latents: decoded.append(latents) or decode(latents))
    model.sample(100, seed=1)
    model.sample(100, {"z1": 0.25}, seed=1)
    free, acted = decoded
    drawn = free - torch.einsum("ji,bjk->bik", torch.tensor(CHAIN), free)
    nearest = [(drawn[:, None, i] - eps.detach()[None, :, i]).norm(dim=-1).min(1) for i in range(3)]
    assert all(match.values.max() < 1e-5 for match in nearest)
    # noises of different variables are independent
    assert (nearest[0].indices == nearest[1].indices).float().mean() < 0.2
    assert torch.equal(acted[:, 0], free[:, 0])
    assert torch.equal(acted[:, 1], torch.full_like(acted[:, 1], 0.25))
    assert torch.allclose(acted[:, 2], free[:, 2] - 1.1 * (0.25 - free[:, 1]), atol=1e-5)


@pytest.mark.parametrize("weights", [CHAIN, CYCLE], ids=["chain", "cycle"])
def test_mean_of_log_weights_is_the_elbo_under_standard_normal_noises(
    weights: Any, make_data: Any
) -> None:
    """With a constant decoder the mean weight is a constant minus KL(q(eps) || N(0, I)).

    The weights integrate to that constant.
    """
    data = make_data((1, 8, 8))
    model = make(data, weights).eval()
    with torch.no_grad():
        model.decoder.get_parameter("dense.0.weight").zero_()
    images = data.test.images[:3]
    drawn = model.log_weights(images, None, 4000, torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = images.float() / 255
        mean, log_variance = model.posterior(x)
        divergence = kl_divergence(Normal(mean, torch.exp(log_variance / 2)), Normal(0.0, 1.0)).sum(
            (1, 2)
        )
        pixels = (
            Bernoulli(logits=model.decoder(torch.zeros(3, 6)), validate_args=False)
            .log_prob(x)
            .sum((1, 2, 3))
        )
    spread = drawn.std(0) / 4000**0.5
    assert ((drawn.mean(0) - (pixels - divergence)).abs() < 4 * spread + 1e-4).all()
    torch.testing.assert_close(torch.logsumexp(drawn, 0) - math.log(4000), pixels, atol=0.1, rtol=0)
    with pytest.raises(QueryError, match="at least one sample"):
        model.log_weights(images, None, 0)


def test_data_without_labels_is_enough(make_data: Any, tmp_path: Any) -> None:
    data = unlabelled(make_data)
    model = make(data, epochs=10, learning_rate=5e-3)
    history = [line for line in model.fit(data, out=tmp_path / "run").history if "train" in line]
    assert history[-1]["train"]["loss"] < 0.8 * history[0]["train"]["loss"]
    loaded = load(tmp_path / "run")
    do = {"z2": 1.0}
    images = model.counterfactual(data.test.images, do)
    assert torch.equal(images, loaded.counterfactual(data.test.images, do))
    assert not torch.equal(images, model.reconstruct(data.test.images))
    assert model.measure(data.test.images).shape == (len(data.test), 3)


@pytest.mark.parametrize(
    "settings",
    [{"decoder": "per-concept"}, {"mask_layer": True, "mechanism_input": "sum"}, {"latents": 1}],
    ids=str,
)
def test_every_variant_of_unsup_trains(settings: dict[str, Any], make_data: Any) -> None:
    data = make_data((3, 13, 16), samples=96)
    model = make(data, epochs=12, learning_rate=5e-3, **settings)
    history = [line for line in model.fit(data).history if "train" in line]
    assert history[-1]["train"]["loss"] < 0.8 * history[0]["train"]["loss"]
    assert model.sample(3, {"z0": 0.5}, seed=0).shape == (3, 3, 13, 16)


def test_errors_for_clips_and_invalid_settings(make_data: Any) -> None:
    with pytest.raises(DataError, match="causal-vae-unsup takes single images, not clips"):
        CausalVAEUnsup(Spec((1, 16, 16), frames=4))
    for wrong in (
        {"latents": 0},
        {"dims": 0},
        {"scale": 0.0},
        {"graph": "joint"},
        {"label_weight": 1.0},
        {"encode_labels": True},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            make(make_data(), **wrong)
