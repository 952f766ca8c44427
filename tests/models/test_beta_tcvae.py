"""beta-TCVAE: the terms of the loss, the stored size of the data, and the warm-up of beta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal
from torch.func import functional_call, stack_module_state, vmap

from batches import batch_of
from intervae.errors import UsageError
from intervae.models import BetaTCVAE
from intervae.models.storage import load_model

SMALL: dict[str, Any] = {
    "latents": 3,
    "dims": 2,
    "channels": (8, 8),
    "hidden": 32,
    "epochs": 1,
    "batch_size": 16,
}


def terms_of(model: BetaTCVAE, batch: dict[str, Tensor], seed: int = 0) -> dict[str, float]:
    return {
        key: value.item()
        for key, value in model.loss(batch, torch.Generator().manual_seed(seed)).items()
    }


def densities(
    model: BetaTCVAE, batch: dict[str, Tensor], seed: int = 0
) -> tuple[np.ndarray, Tensor, Tensor]:
    """q(z_i,d | x_j) (B, B, D) at the samples of `terms_of`, and log q(z | x), log p(z), (B,)."""
    with torch.no_grad():
        mean, log_variance = (t.flatten(1).double() for t in model.posterior(batch["images"]))
        noise = (
            torch.randn((len(mean), 3, 2), generator=torch.Generator().manual_seed(seed))
            .flatten(1)
            .double()
        )
        q = Normal(mean, torch.exp(log_variance / 2))
        z = q.loc + q.scale * noise
        return (
            q.log_prob(z[:, None]).exp().numpy(),
            q.log_prob(z).sum(1),
            Normal(0.0, 1.0).log_prob(z).sum(1),
        )


def spread_posteriors(model: BetaTCVAE) -> BetaTCVAE:
    """Scale the encoder's weights, so that posteriors differ between images."""
    with torch.no_grad():
        model.encoder.dense[-1].weight.mul_(150)
    return model


@pytest.mark.parametrize("sampling", ["weighted", "stratified"])
def test_the_loss_is_the_weighted_sum_of_three_terms(sampling: Any, make_data: Any) -> None:
    """The terms by sums of densities, with weights written out entry by entry."""
    data = make_data()
    weights = {"beta": 5.0, "information_weight": 0.3, "dimension_weight": 2.0}
    model = spread_posteriors(BetaTCVAE(data.spec, sampling=sampling, **weights, **SMALL))
    model.training_samples.fill_(100)
    batch = batch_of(data)
    terms = terms_of(model, batch)
    pairs, conditional, prior = densities(model, batch)
    size, total = 8, 100
    table = np.full((size, size), 1 / (size * total))
    if sampling == "stratified":
        for i in range(size):
            for j in range(size):
                table[i, j] = (
                    1 / total
                    if i == j
                    else (total - 7) / (total * 7)
                    if j == (i + 1) % size
                    else 1 / 7
                )
    joint, marginals = (
        np.log((table * pairs.prod(2)).sum(1)),
        np.log((table[..., None] * pairs).sum(1)).sum(1),
    )
    assert terms["mutual_information"] == pytest.approx(
        (conditional.numpy() - joint).mean(), rel=1e-4, abs=1e-4
    )
    assert terms["total_correlation"] == pytest.approx(
        (joint - marginals).mean(), rel=1e-4, abs=1e-4
    )
    assert terms["dimension_kl"] == pytest.approx(
        (marginals - prior.numpy()).mean(), rel=1e-4, abs=1e-4
    )
    added = (
        0.3 * terms["mutual_information"]
        + 5 * terms["total_correlation"]
        + 2 * terms["dimension_kl"]
    )
    assert terms["loss"] == pytest.approx(terms["reconstruction"] + added, rel=1e-5)
    assert np.std((pairs.prod(2)).sum(1)) > 0


@pytest.mark.parametrize("sampling", ["weighted", "stratified"])
def test_with_unit_weights_it_is_the_vae_with_a_sampled_kl(sampling: Any, make_data: Any) -> None:
    data = make_data()
    model = spread_posteriors(BetaTCVAE(data.spec, sampling=sampling, beta=1.0, **SMALL))
    batch = batch_of(data)
    _, conditional, prior = densities(model, batch)
    terms = terms_of(model, batch)
    assert terms["loss"] == pytest.approx(
        terms["reconstruction"] + float((conditional - prior).mean()), rel=1e-4
    )


def test_the_size_of_the_training_split_is_stored(make_data: Any, tmp_path: Path) -> None:
    data = make_data(samples=80)
    model = BetaTCVAE(data.spec, **SMALL)
    model.fit(data, out=tmp_path / "run")
    assert model.training_samples.item() == len(data.train) != 1
    loaded: Any = load_model(tmp_path / "run")
    assert torch.equal(loaded.training_samples, model.training_samples)
    assert terms_of(loaded, batch_of(data)) == terms_of(model, batch_of(data))


def test_n_changes_weighted_terms_by_constants_and_no_gradient(make_data: Any) -> None:
    data = make_data()
    model = spread_posteriors(BetaTCVAE(data.spec, **SMALL))
    terms, gradients = [], []
    for samples in (100, 1000):
        model.training_samples.fill_(samples)
        terms.append(terms_of(model, batch_of(data)))
        model.zero_grad()
        model.loss(batch_of(data), torch.Generator().manual_seed(0))["loss"].backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    moved = {key: terms[1][key] - terms[0][key] for key in terms[0]}
    for key, times in (("mutual_information", 1), ("total_correlation", 5), ("dimension_kl", -6)):
        assert moved[key] == pytest.approx(times * np.log(10), abs=1e-3)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-3)


def test_the_dims_of_a_latent_count_separately(make_data: Any) -> None:
    data = make_data()
    blocks = spread_posteriors(BetaTCVAE(data.spec, **SMALL))
    singles = BetaTCVAE(data.spec, **{**SMALL, "latents": 6, "dims": 1})
    singles.load_state_dict(blocks.state_dict())
    assert terms_of(blocks, batch_of(data)) == pytest.approx(
        terms_of(singles, batch_of(data)), rel=1e-6
    )


def test_beta_rises_from_zero_over_the_warm_up(make_data: Any) -> None:
    data = make_data()
    model = spread_posteriors(BetaTCVAE(data.spec, warm_up_steps=100, beta=4.0, **SMALL))
    for step, share in ((0.0, 0.0), (25.0, 0.25), (100.0, 1.0), (float("inf"), 1.0)):
        terms = terms_of(model, batch_of(data, step=step))
        rest = terms["reconstruction"] + terms["mutual_information"] + terms["dimension_kl"]
        assert terms["loss"] - rest == pytest.approx(
            4 * share * terms["total_correlation"], rel=1e-3, abs=1e-3
        )


def test_stratified_sampling_can_be_vmapped(make_data: Any) -> None:
    data = make_data()
    models = [
        spread_posteriors(BetaTCVAE(data.spec, sampling="stratified", seed=seed, **SMALL))
        for seed in range(2)
    ]
    for n, model in enumerate(models):
        model.training_samples.fill_(50 * (n + 1))
    parameters, buffers = stack_module_state(models)

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = models[0]

        def forward(self, batch: Any) -> Any:
            return self.model.loss(batch, torch.Generator().manual_seed(0))["loss"]

    loss, batch = Loss(), batch_of(data)

    def loss_of(parameters: Any, buffers: Any) -> Any:
        return functional_call(
            loss, {f"model.{k}": v for k, v in {**parameters, **buffers}.items()}, (batch,)
        )

    stacked = vmap(loss_of, randomness="same")(parameters, buffers)
    assert stacked.tolist() == pytest.approx(
        [terms_of(model, batch)["loss"] for model in models], rel=1e-4
    )


def test_wrong_settings_are_refused(make_data: Any) -> None:
    for wrong in (
        {"beta": -1.0},
        {"information_weight": -0.1},
        {"warm_up_steps": -1},
        {"sampling": "importance"},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            BetaTCVAE(make_data().spec, **wrong)
