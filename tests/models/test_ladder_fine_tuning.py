"""Fine-tuning of the Ladder VAE: its bound on a linear-Gaussian model, its phase and its rows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from ladder import SMALL, grey, make, seeded
from torch import Tensor

from batches import late_batch as batch_of
from intervae.errors import UsageError
from intervae.experiments.ladder import LVAE_MNIST
from intervae.models import LadderVAE

NOISE = 0.5  # standard deviation of p(x | z_1)


class LinearGaussian(LadderVAE):
    """p(x | z_1) = N(A z_1, NOISE^2), with one layer: log p(x) has a closed form."""

    def reconstruction_loss(self, z: Tensor, images: Tensor) -> Tensor:
        normal = torch.distributions.Normal(z @ loadings(z.shape[1], images), NOISE)
        return -normal.log_prob(images.flatten(1)).sum(1)


def loadings(latents: int, images: Tensor) -> Tensor:
    """A, (latents, pixels)."""
    return torch.randn(latents, images[0].numel(), generator=seeded(3)) / 3


def linear_model(data: Any, importance: int, monte_carlo: int = 1, **changes: Any) -> LadderVAE:
    settings = {
        "latents": (2,),
        "widths": (16,),
        "fine_tuning_importance_samples": importance,
        "fine_tuning_monte_carlo_samples": monte_carlo,
    }
    model = LinearGaussian(data.spec, **{**SMALL, **settings, **changes})
    model.initialise(0)
    return model.eval()


def bound(model: LadderVAE, data: Any, n: int) -> float:
    """Return the bound, averaged over ten draws: its standard error is below 0.006."""
    losses = [model.fine_tuning_loss(batch_of(data, n), seeded(seed)) for seed in range(10)]
    return -torch.stack([terms["loss"] for terms in losses]).mean().item()


@torch.no_grad()
def test_the_bound_rises_from_the_elbo_to_the_closed_form_likelihood(make_data: Any) -> None:
    data, n = make_data((1, 3, 3)), 8
    images = grey(data, n)
    a = loadings(2, images)
    covariance = a.T @ a + NOISE**2 * torch.eye(a.shape[1])
    exact = torch.distributions.MultivariateNormal(torch.zeros(a.shape[1]), covariance)
    evidence = exact.log_prob(images.flatten(1)).mean().item()
    # ELBO = log p(x) - KL(q || p(z | x)), both Gaussian
    model = linear_model(data, 1, 20_000)
    (layer,) = model.infer(images, None)
    precision = torch.eye(2) + a @ a.T / NOISE**2
    posterior = torch.distributions.MultivariateNormal(
        images.flatten(1) @ a.T @ precision.inverse() / NOISE**2, precision_matrix=precision
    )
    q = torch.distributions.MultivariateNormal(layer.mean, torch.diag_embed(layer.variance))
    gap = torch.distributions.kl_divergence(q, posterior).mean().item()
    assert gap > 0.3
    assert bound(model, data, n) == pytest.approx(evidence - gap, abs=0.025)
    bounds = [bound(linear_model(data, k, 20_000 // k), data, n) for k in (1, 4, 16, 64)]
    assert all(low + 0.01 < high for low, high in itertools.pairwise(bounds))
    assert bound(linear_model(data, 20_000), data, n) == pytest.approx(evidence, abs=0.02)
    assert bounds[-1] < evidence + 0.01


@torch.no_grad()
def test_fine_tuning_has_the_full_kl_from_its_first_step(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, warm_up=4, fine_tuning_monte_carlo_samples=1)
    model.set_warm_up(data, 0)
    batch = batch_of(data, 16, torch.tensor(0.0))
    terms = model.fine_tuning_loss(batch, seeded(0))
    assert model.loss(batch, seeded(0))["loss"] < terms["loss"] - 0.1
    torch.testing.assert_close(terms["loss"], terms["reconstruction"] + terms["kl"])
    after = make(data)
    torch.testing.assert_close(terms["loss"], after.loss(batch, seeded(0))["loss"])


def test_fine_tuning_is_a_phase_with_a_falling_rate_before_the_statistics(make_data: Any) -> None:
    data = make_data((1, 4, 4), samples=120)
    tuned = {"fine_tuning_epochs": 3, "fine_tuning_rate": 2e-3, "fine_tuning_decay": 0.5}
    model = LadderVAE(data.spec, **{**SMALL, **tuned, "warm_up": 1})
    names = [phase.name for phase in model.phases()]
    assert names == ["images", "fine-tuning", "statistics"]
    phase = model.phases()[1]
    assert (phase.epochs, phase.schedule, phase.decay) == (3, "exponential", 0.5)
    assert phase.players[0].learning_rate == 2e-3
    lines = [line for line in model.fit(data, tensorboard=False).history if "train" in line]
    assert [line["phase"] for line in lines] == ["images"] * 2 + ["fine-tuning"] * 3
    for line in lines[2:]:
        terms = line["train"]
        assert terms["loss"] == pytest.approx(terms["reconstruction"] + terms["kl"], rel=1e-5)


def test_fine_tuning_lowers_the_loss_of_a_model_at_rest(make_data: Any) -> None:
    """The weights of the first phase are those that the second one starts from."""
    data = make_data((1, 4, 4), samples=400)
    losses = []
    for epochs in (0, 10):
        settings = {"epochs": 1, "fine_tuning_epochs": epochs, "fine_tuning_rate": 5e-3}
        model = LadderVAE(data.spec, **{**SMALL, **settings})
        model.fit(data, tensorboard=False)
        with torch.no_grad():
            batch = batch_of(data, len(data.train))
            losses.append(model.fine_tuning_loss(batch, seeded(0))["loss"].item())
    assert losses[1] < losses[0] - 0.3


def test_no_fine_tuning_by_default_and_wrong_sizes_are_refused(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    assert [phase.name for phase in make(data).phases()] == ["images", "statistics"]
    for wrong in ({"fine_tuning_epochs": -1}, {"fine_tuning_importance_samples": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            make(data, **wrong)


def test_rows_of_the_mnist_table_have_the_papers_samples_and_numbers() -> None:
    jobs = {job.variant: job for job in LVAE_MNIST.jobs if "fine-tuned" in job.variant}
    samples = {
        name.removeprefix("LVAE+BN+WU 5 "): (
            job.settings["fine_tuning_monte_carlo_samples"],
            job.settings["fine_tuning_importance_samples"],
            job.paper.get("log_likelihood"),
        )
        for name, job in jobs.items()
    }
    assert samples == {
        "fine-tuned MC=1": (1, 1, None),
        "fine-tuned": (10, 1, -81.84),
        "fine-tuned IW=10": (10, 10, -81.74),
    }
    for job in jobs.values():
        epochs, decay = job.settings["fine_tuning_epochs"], job.settings["fine_tuning_decay"]
        assert math.log(decay) * epochs == pytest.approx(10 * math.log(0.75))
    assert len(jobs) == len({job.key for job in jobs.values()})
