"""The curriculum of the causal-prior VAE: positions, alignment, trial, choice."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_causal_prior import SMALL, distribution, make, seeded, standard
from torch import nn
from torch.distributions import kl_divergence

from batches import late_batch as batch_of
from intervae.causal.sem import affine_score, fit_affine, sem_divergence
from intervae.data import Dataset
from intervae.errors import TrainingError
from intervae.models import CausalPriorVAE
from intervae.models.causal_prior import curriculum
from intervae.models.causal_prior.curriculum import (
    align,
    align_networks,
    choose,
    load_start,
    positions_loss,
    stacked_starts,
    trial_loss,
)
from intervae.models.storage import load_model
from intervae.training.stepper import Stepper


@pytest.fixture
def data(make_data: Any) -> Dataset:
    return make_data((1, 6, 6))


def shift_latent(model: CausalPriorVAE, index: int, by: float) -> None:
    last = model.encoder.network.layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.bias[index] += by
        for stack in stacked_starts(model, "encoder").stacks.values() if model.starts else ():
            if stack.shape[1:] == last.bias.shape:
                stack[:, index] += by


def test_only_latents_with_edges_reach_the_decoder_in_the_positions_phase(data: Dataset) -> None:
    model, batch = make(data), batch_of(data)
    before = positions_loss(model, batch, seeded(0))
    shift_latent(model, 2, 3.0)
    after = positions_loss(model, batch, seeded(0))
    assert torch.equal(before["reconstruction"], after["reconstruction"])
    assert after["kl"] > before["kl"] + 1
    shift_latent(model, 1, 3.0)
    assert not torch.equal(
        before["reconstruction"], positions_loss(model, batch, seeded(0))["reconstruction"]
    )


def test_positions_loss_has_an_isotropic_prior_of_weight_first_beta(data: Dataset) -> None:
    model, batch = (
        make(data, first_beta=0.05, reconstruction_weight=2.0, restarts=1),
        batch_of(data),
    )
    terms = positions_loss(model, batch, seeded(0))
    kl = kl_divergence(distribution(model.posterior(batch["images"])), standard(4)).mean().item()
    assert terms["kl"].item() == pytest.approx(kl, rel=1e-4)
    assert terms["loss"].item() == pytest.approx(
        2 * terms["reconstruction"].item() + 0.05 * kl, rel=1e-4
    )


def test_gate_opens_over_gate_steps(data: Dataset) -> None:
    model = make(data, gate_steps=8, finalists=1)
    posterior = model.posterior(batch_of(data)["images"])
    z = posterior.draw(torch.randn(16, 4, generator=seeded(0)))
    for step, open_by in ((0.0, 0.0), (2.0, 0.25), (8.0, 1.0), (math.inf, 1.0)):
        gated = z * torch.tensor([1.0, 1.0, open_by, open_by])
        expected = model.misfit(gated, batch_of(data)["images"]).mean().item()
        assert model.loss(batch_of(data, step=torch.tensor(step)), seeded(0))[
            "reconstruction"
        ].item() == pytest.approx(expected, rel=1e-5)
    free = make(data, curriculum=False)
    assert torch.equal(
        free.loss(batch_of(data, step=torch.zeros(())), seeded(0))["loss"],
        free.loss(batch_of(data), seeded(0))["loss"],
    )


def test_alignment_changes_the_latents_and_no_reconstruction(data: Dataset) -> None:
    model = make(data, restarts=1)
    images, noise = batch_of(data, 32)["images"], torch.randn(32, 4, generator=seeded(0))
    before = model.posterior(images)
    images_before, drawn = (
        model.reconstruct(data.test.images),
        model.decoder(before.draw(noise)).detach(),
    )
    for repeat in range(2):  # the second is applied after the first
        if repeat:
            align_networks(
                model, [0, 1], torch.tensor([[0.5, 1.0], [-2.0, 0.3]]), torch.tensor([1.0, -1.0])
            )
        else:
            align(model, data, 0)
        after = model.posterior(images)
        assert torch.allclose(model.reconstruct(data.test.images), images_before, atol=1e-4)
        assert torch.allclose(model.decoder(after.draw(noise)), drawn, atol=1e-4)
        assert torch.allclose(after.log_det, torch.linalg.slogdet(after.factor)[1], atol=1e-4)
        assert torch.allclose(
            after.log_det - before.log_det,
            torch.linalg.slogdet(model.encoder.alignment)[1],
            atol=1e-4,
        )
        assert torch.allclose(
            after.mean, before.mean @ model.encoder.alignment.T + model.encoder.offset, atol=1e-4
        )
        # latents without edges are not aligned
        assert torch.equal(after.mean[:, 2:], before.mean[:, 2:])
        assert not torch.allclose(after.mean[:, :2], before.mean[:, :2], atol=0.1)


def test_alignment_recovers_draws_of_the_prior_from_an_affine_map_of_them(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(data, restarts=1)
    truth = model.sem.sample(4000, seeded(0)).detach()[:, :2]
    mixed = truth @ torch.tensor([[0.3, 1.1], [-0.8, 0.4]]) + torch.tensor([2.0, -1.0])
    monkeypatch.setattr(curriculum, "coupled_means", lambda *_: mixed)
    align(model, data, 0)
    aligned = mixed @ model.encoder.alignment[:2, :2].T + model.encoder.offset[:2]
    for i in range(2):
        correlation = np.corrcoef(aligned[:, i], truth[:, i])[0, 1]
        # the parabola is symmetric in z0
        assert (abs(correlation) if i == 0 else correlation) > 0.99
    assert (aligned[:, 1] - aligned[:, 0].square()).std().item() == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    "scores",
    [(1.0, 3.0, 2.0, 0.0), (3.0, 1.0, 2.0, 0.0), (0.0, 1.0, 2.0, 3.0), (-5.0, -7.0, -6.0, -8.0)],
)
def test_best_starts_are_selected_and_then_one(
    data: Dataset, scores: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 4, "finalists": 2})
    mocked = iter([*scores, 1.0, 2.0])
    weights = [
        stacked_starts(model, "encoder").network_state(start)["network.layers.1.weight"]
        for start in range(4)
    ]
    assert len({float(weight.sum()) for weight in weights}) == 4
    monkeypatch.setattr(curriculum, "affine_score", lambda *_, **__: next(mocked))
    align(model, data, 0)
    best = np.argsort(scores)[::-1].tolist()
    selected = [stacked_starts(model, "encoder").network_state(start) for start in range(2)]
    assert [
        torch.equal(selected[start]["network.layers.1.weight"], weights[best[start]])
        for start in range(2)
    ] == [True, True]
    assert not torch.equal(
        selected[0]["alignment"], selected[1]["alignment"]
    )  # each has its own map
    assert model.scores.tolist() == sorted(scores, reverse=True)
    choose(model, data, 0)
    assert torch.equal(
        model.encoder.state_dict()["network.layers.1.weight"], weights[best[1]]
    )  # whose score after the trial was larger
    assert model.trial_scores.tolist() == [2.0, 1.0]
    assert len(stacked_starts(model, "encoder")) == len(stacked_starts(model, "decoder")) == 0


def test_trial_loss_is_the_sum_of_the_losses_of_the_finalists(data: Dataset) -> None:
    model, batch = make(data, restarts=3, finalists=2), batch_of(data)
    align(model, data, 0)
    terms = trial_loss(model, batch, seeded(0))
    noise, expected = torch.randn(2 * 16, 4, generator=seeded(0)), []
    for start in range(2):
        load_start(model, start)
        posterior, start_noise = (
            model.posterior(batch["images"]),
            noise[16 * start : 16 * (start + 1)],
        )
        kl = sem_divergence(
            "tangent",
            *posterior[:2],
            model.sem,
            z=posterior.draw(start_noise),
            noise=start_noise,
            log_det=posterior.log_det,
            pivots=1,
        )
        expected.append(
            (model.misfit(posterior.draw(start_noise), batch["images"]).mean() + kl.mean()).item()
        )
    assert terms["loss"].item() == pytest.approx(sum(expected), rel=1e-4)


def test_run_interrupted_after_the_trial_resumes(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "restarts": 3, "finalists": 2, "trial_epochs": 2}
    uninterrupted = CausalPriorVAE(data.spec, **settings)
    uninterrupted.fit(data, seed=4)

    class Stopped(Exception):  # noqa: N818
        pass

    def stop(*_: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(curriculum, "choose", stop)
        with pytest.raises(Stopped):
            CausalPriorVAE(data.spec, **settings).fit(data, seed=4, out=tmp_path / "run")
    model = CausalPriorVAE(data.spec, **settings)
    model.fit(data, seed=4, out=tmp_path / "run", resume=True)
    assert torch.equal(model.encode(data.test.images), uninterrupted.encode(data.test.images))


def test_collapsed_starts_rank_last_and_fail_only_if_all_collapsed(
    data: Dataset,
) -> None:
    model = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 3, "finalists": 2})

    def collapse(start: int) -> None:
        with torch.no_grad():
            for name, stack in stacked_starts(model, "encoder").stacks.items():
                if name.endswith("weight"):
                    stack[start] = 0.0

    collapse(0)
    align(model, data, 0)
    assert [score > -math.inf for score in model.scores.tolist()] == [True, True, False]
    collapse(0)
    collapse(1)
    aligned = stacked_starts(model, "encoder").network_state(0)["alignment"]
    choose(model, data, 0)  # after the trial the map of before stays
    assert model.trial_scores.tolist() == [-math.inf, -math.inf]
    assert torch.equal(model.encoder.alignment, aligned)
    model = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 2})
    collapse(0)
    collapse(1)
    with pytest.raises(
        TrainingError,
        match="no start vary in every direction after the first phase; raise first_epochs",
    ):
        align(model, data, 0)


def test_score_of_a_start_is_the_affine_score_of_its_latents(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curriculum, "RANKING_STEPS", 120)
    model = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 3})
    results = []
    for start in range(3):
        load_start(model, start)
        means = model.encode(data.train.images)[:, :2, 0]
        results.append(
            affine_score(means, model.sem, [0, 1], *fit_affine(means, model.sem, [0, 1]))
        )
    align(model, data, 0)
    assert model.scores.tolist() == pytest.approx(sorted(results, reverse=True), rel=1e-3, abs=1e-3)


def test_starts_train_independently(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise the starts share only the batches: start 1 of three trains as if alone."""
    positions = curriculum.positions_loss

    def without_noise(model: CausalPriorVAE, batch: Any, generator: Any = None) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn", lambda shape, **_: torch.zeros(shape))
            return positions(model, batch, generator)

    monkeypatch.setattr(curriculum, "positions_loss", without_noise)
    settings = {**SMALL, "first_epochs": 2}
    three, alone = (
        CausalPriorVAE(data.spec, **{**settings, "restarts": 3}),
        CausalPriorVAE(data.spec, **{**settings, "restarts": 1}),
    )
    for network in alone.starts:
        for name, stack in stacked_starts(alone, network).stacks.items():
            stack.data = stacked_starts(three, network).stacks[name].data[1:2].clone()
    for model in (three, alone):
        phase = model.phases()[0]
        stepper = Stepper(model, phase, data.train, 16, cuda_graph=False, bf16=False)
        stepper.run_epoch(0, 2, 5)
    for network in alone.starts:
        for name, tensor in stacked_starts(alone, network).network_state(0).items():
            assert torch.allclose(
                tensor, stacked_starts(three, network).network_state(1)[name], atol=1e-5
            )


def test_trained_model_stores_no_starts(data: Dataset, tmp_path: Path) -> None:
    model = make(data)
    model.fit(data, seed=1, out=tmp_path / "run")
    assert not any(
        tensor.numel() for name, tensor in model.state_dict().items() if name.startswith("starts.")
    )
    loaded = load_model(tmp_path / "run")
    assert torch.equal(loaded.encode(data.test.images), model.encode(data.test.images))


def test_phases_are_positions_alignment_trial_choice_prior_and_unmixing(data: Dataset) -> None:
    assert [phase.name for phase in make(data, unmix=True).phases()] == [
        "positions",
        "alignment",
        "trial",
        "choice",
        "prior",
        "unmixing",
    ]
    assert [phase.name for phase in make(data, finalists=1).phases()] == [
        "positions",
        "alignment",
        "prior",
    ]
    assert [phase.name for phase in make(data, curriculum=False, unmix=True).phases()] == ["prior"]
