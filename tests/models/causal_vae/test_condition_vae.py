"""ConditionVAE: its loss against closed forms, CausalVAE at A = 0, and do() without effects."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Normal, kl_divergence

from batches import batch_of
from elbo import reference_draw
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Spec, Variable
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import CausalVAE, ConditionVAE

SMALL = {"dims": 2, "channels": (8, 8), "hidden": 32, "batch_size": 16, "epochs": 2}


def make(data: Dataset, **settings: Any) -> ConditionVAE:
    return ConditionVAE(data.spec, **{**SMALL, **settings})


# ---- the loss ----------------------------------------------------------------------------------
@pytest.mark.parametrize("likelihood", ["bernoulli", "laplace"])
def test_loss_is_the_elbo_with_a_prior_centred_on_the_normalised_labels(
    likelihood: Any, make_data: Any
) -> None:
    data = make_data((3, 12, 10), kinds=("continuous", "binary", "continuous"))
    model = make(
        data,
        likelihood=likelihood,
        scale=0.1,
        prior_std=0.5,
        prior_weight=1.3,
        absolute_error_weight=2.0,
    )
    batch = batch_of(data)
    terms = {
        key: value.item()
        for key, value in model.loss(batch, torch.Generator().manual_seed(5)).items()
    }
    with torch.no_grad():
        q, _, output, p = reference_draw(model, batch, likelihood, 0.1)
        a, b, c = batch["labels"].T
        first, _, last = data.variables
        u = torch.stack([(a - first.mean) / first.std, 2 * b - 1, (c - last.mean) / last.std], 1)
        expected = {
            "reconstruction": -p.log_prob(batch["images"]).sum((1, 2, 3)).mean().item(),
            "absolute_error": (torch.sigmoid(output) - batch["images"])
            .abs()
            .sum((1, 2, 3))
            .mean()
            .item(),
            "kl_prior": kl_divergence(q, Normal(u[:, :, None], 0.5)).sum((1, 2)).mean().item(),
        }
    assert terms.keys() == {"loss", *expected}
    for key, value in expected.items():
        assert terms[key] == pytest.approx(value, rel=1e-4, abs=1e-3), key
    assert terms["loss"] == pytest.approx(
        expected["reconstruction"] + 2 * expected["absolute_error"] + 1.3 * expected["kl_prior"],
        rel=1e-5,
    )


def test_kl_of_a_fixed_posterior(make_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean off by d prior deviations and s times the prior width.

    KL = n k (d^2 + s^2 - 1 - log s^2) / 2
    """
    data = make_data()
    model, batch = make(data, prior_std=0.2), batch_of(data)
    u = model.spec.normalise(batch["labels"])[..., None].expand(-1, -1, 2)
    for off, wide in ((0.0, 1.0), (1.5, 1.0), (0.0, 3.0), (-2.0, 0.5)):
        log_variance = torch.full_like(u, 2 * math.log(0.2 * wide))
        monkeypatch.setattr(
            model, "posterior", lambda *_, fixed=(u + off * 0.2, log_variance): fixed
        )
        expected = 6 * (off**2 + wide**2 - 1 - math.log(wide**2)) / 2
        assert model.loss(batch)["kl_prior"].item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"encode_labels": True},
        {"decoder": "per-concept"},
        {"network": "mlp", "likelihood": "gaussian"},
    ],
    ids=str,
)
def test_condition_vae_is_causal_vae_at_zero_weights(
    settings: dict[str, Any], make_data: Any
) -> None:
    data = make_data((3, 12, 10))
    causal = CausalVAE(data.spec, graph="joint", seed=3, **{**SMALL, **settings})
    model = make(data, seed=3, **settings)
    shared = model.state_dict()
    assert not causal.adjacency.any()
    for key in shared.keys() - {"noise_bank"}:  # drawn in the same order from one seed
        assert torch.equal(shared[key], causal.state_dict()[key]), key
    ours, theirs = (
        m.loss(batch_of(data), torch.Generator().manual_seed(1)) for m in (model, causal)
    )
    for key in ("reconstruction", "absolute_error"):
        assert torch.equal(ours[key], theirs[key])
    assert ours["kl_prior"].item() == pytest.approx(theirs["kl_prior"].item(), rel=1e-5)
    assert torch.equal(
        model.encode(data.test.images, data.test.labels),
        causal.encode(data.test.images, data.test.labels),
    )
    drawn = [
        m.log_weights(data.test.images, data.test.labels, 3, torch.Generator().manual_seed(1))
        for m in (model, causal)
    ]
    torch.testing.assert_close(*drawn)


def test_shared_settings_of_condition_vae_have_the_same_defaults() -> None:
    ours, theirs = (
        {field.name: field.default for field in fields(cls.Settings)}
        for cls in (ConditionVAE, CausalVAE)
    )
    assert ours.items() <= theirs.items()
    assert {
        "dims",
        "prior_std",
        "prior_weight",
        "absolute_error_weight",
        "encode_labels",
        "epochs",
        "learning_rate",
    } <= ours.keys()


def test_labels_are_dropped_for_half_of_the_training_images(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(samples=128)
    model = make(data, encode_labels=True)
    masks: list[Tensor] = []
    posterior = model.posterior
    monkeypatch.setattr(
        model,
        "posterior",
        lambda images, labels, mask: masks.append(mask) or posterior(images, labels, mask),
    )  # type: ignore[func-returns-value]
    model.loss(batch_of(data, 80), torch.Generator().manual_seed(0))
    assert set(masks[0].unique().tolist()) == {0.0, 1.0}
    assert 25 <= masks[0].sum() <= 55


def test_mean_of_log_weights_is_the_elbo_of_the_conditional_likelihood(make_data: Any) -> None:
    """With a constant decoder the mean weight is a constant minus the KL.

    The weights integrate to that constant.
    """
    data = make_data((1, 8, 8))
    model = make(data, prior_std=0.9).eval()
    with torch.no_grad():
        model.decoder.get_parameter("dense.0.weight").zero_()
    images, labels = (
        data.test.images[:3],
        model.spec.denormalise(torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.0, -0.2], [-0.1, 0.2, 0.4]])),
    )
    drawn = model.log_weights(images, labels, 6000, torch.Generator().manual_seed(0))
    with torch.no_grad():
        x, u = images.float() / 255, model.spec.normalise(labels)
        mean, log_variance = model.posterior(x)
        divergence = kl_divergence(
            Normal(mean, torch.exp(log_variance / 2)), Normal(u[..., None], 0.9)
        ).sum((1, 2))
        pixels = (
            Bernoulli(logits=model.decoder(torch.zeros(3, 6)), validate_args=False)
            .log_prob(x)
            .sum((1, 2, 3))
        )
    spread = drawn.std(0) / 6000**0.5
    assert ((drawn.mean(0) - (pixels - divergence)).abs() < 4 * spread).all()
    torch.testing.assert_close(torch.logsumexp(drawn, 0) - math.log(6000), pixels, atol=0.1, rtol=0)
    with pytest.raises(QueryError, match="give log_weights the labels"):
        model.log_weights(images, None, 1)
    with pytest.raises(QueryError, match="at least one sample"):
        model.log_weights(images, labels, 0)


# ---- do() --------------------------------------------------------------------------------------
def test_do_has_no_effects_where_causal_vae_has_some(pendulum: Dataset) -> None:
    model = make(pendulum)
    model.fit(pendulum)
    causal = CausalVAE(pendulum.spec, graph=pendulum.graph or "joint", **{**SMALL, "seed": 0})
    assert model.graph == CausalGraph.empty(pendulum.names)
    latents = model.encode(pendulum.test.images)
    for i, name in enumerate(pendulum.names):
        variable = pendulum.variables[i]
        after = model.intervene(latents, {name: variable.mean + 1.5 * variable.std})
        unaffected = [j for j in range(4) if j != i]
        assert torch.equal(after[:, unaffected], latents[:, unaffected])
        assert torch.allclose(after[:, i], torch.full_like(after[:, i], 1.5), atol=1e-5)
    assert [edge[:2] for edge in causal.graph.edges]
    moved = causal.intervene(latents, {"light": 40.0})
    assert not torch.equal(moved[:, 2:], latents[:, 2:])
    assert torch.equal(
        model.counterfactual(pendulum.test.images, {}), model.reconstruct(pendulum.test.images)
    )


def latents_of_samples(
    model: ConditionVAE, do: Any, monkeypatch: pytest.MonkeyPatch, n: int = 300
) -> Tensor:
    decoded: list[Tensor] = []
    decode = model.decode
    with monkeypatch.context() as patch:
        patch.setattr(model, "decode", lambda latents: decoded.append(latents) or decode(latents))
        model.sample(n, do, seed=4)
    return torch.cat(decoded)


def test_samples_are_training_rows_and_do_sets_one_concept(
    pendulum: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(pendulum)
    model.fit(pendulum)
    trained = model.encode(pendulum.train.images)
    drawn = latents_of_samples(model, None, monkeypatch)
    distance = torch.cdist(drawn.flatten(1), trained.flatten(1))
    assert distance.min(1).values.max() < 1e-3
    assert len(distance.argmin(1).unique()) > 0.8 * len(trained)
    acted = latents_of_samples(model, {"light": 90.0}, monkeypatch)
    assert torch.equal(acted[:, [0, 2, 3]], drawn[:, [0, 2, 3]])
    assert torch.allclose(model.to_units(1, acted[:, 1]), torch.full((300,), 90.0), atol=1e-3)


def test_measure_learns_the_concepts(make_data: Any) -> None:
    data = make_data(samples=400, kinds=("continuous", "binary", "continuous"))
    model = make(data, epochs=15, patience=None, learning_rate=4e-3)
    history = model.fit(data).history
    assert history[-1]["train"]["loss"] < 0.8 * history[0]["train"]["loss"]
    measured, truth = model.measure(data.test.images).numpy(), data.test.labels.numpy()
    assert np.all(((measured - truth) ** 2).mean(0) < 0.15 * truth.var(0))


# ---- what it refuses ---------------------------------------------------------------------------
def test_errors_for_unsuitable_data_and_settings(make_data: Any) -> None:
    with pytest.raises(DataError, match="condition-vae learns from labels"):
        ConditionVAE(Spec((1, 16, 16)))
    with pytest.raises(DataError, match="not clips"):
        ConditionVAE(Spec((1, 16, 16), (Variable("a"),), frames=4))
    for wrong in (
        {"prior_std": 0.0},
        {"dims": 0},
        {"scale": -1.0},
        {"hidden": 0},
        {"graph": "joint"},
        {"label_weight": 1.0},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            make(make_data(), **wrong)
