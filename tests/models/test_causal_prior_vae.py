"""The causal-prior VAE against closed forms and Monte Carlo: its divergence, its curriculum, and its queries; and the recipe on the parabola."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

import intervae.models.causal_prior_vae as module
from intervae.causal.sem_alignment import affine_score, fit_affine
from intervae.data.base import Batch, Dataset
from intervae.data.simulators import Parabola
from intervae.errors import DataError, QueryError, TrainingError, UsageError
from intervae.models import CausalPriorVAE
from intervae.models.causal_prior_vae import Posterior, allowed_edges
from intervae.models.storage import load_model
from intervae.training.stepper import Stepper

SMALL: dict[str, Any] = {
    "latents": 4,
    "widths": (16, 12),
    "epochs": 1,
    "first_epochs": 1,
    "restarts": 2,
    "trial_epochs": 1,
    "batch_size": 16,
    "gate_steps": 8,
}
END = torch.tensor(math.inf)  # the step at which every schedule is over
NAMES = ("z0", "z1", "z2", "z3")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(data: Dataset, **settings: Any) -> CausalPriorVAE:
    """A model whose weights are far from their simple start, so that posteriors differ and are full."""
    model, generator = CausalPriorVAE(data.spec, **{**SMALL, **settings}), seeded(7)
    with torch.no_grad():
        for part in (model.encoder, model.decoder):
            for parameter in part.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        for part in model.starts:  # of which the model is the first
            model._start(part).put(0, getattr(model, part))
    return model


def align_at_random(model: CausalPriorVAE, seed: int = 0) -> None:
    """An alignment that mixes all latents, so that the posterior's factor is not triangular."""
    d = model.settings.latents
    model.encoder.alignment.copy_(torch.eye(d) + 0.4 * torch.randn(d, d, generator=seeded(seed)))
    model.encoder.offset.copy_(torch.randn(d, generator=seeded(seed + 1)))
    model.encoder.log_det.copy_(torch.linalg.slogdet(model.encoder.alignment)[1])


def batch_of(data: Dataset, n: int = 16, step: Tensor = END) -> Batch:
    return {**data.train.batch(torch.arange(n)), "step": step}


def distribution(posterior: Posterior) -> MultivariateNormal:
    return MultivariateNormal(posterior.mean.double(), (posterior.factor @ posterior.factor.mT).double() + 1e-9 * torch.eye(posterior.mean.shape[1]))


def standard(d: int) -> MultivariateNormal:
    return MultivariateNormal(torch.zeros(d).double(), torch.eye(d).double())


@pytest.fixture
def data(make_data: Any) -> Dataset:
    return make_data((1, 6, 6))


# ---- the loss -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_without_edges_it_is_a_vae_with_that_covariance(data: Dataset, covariance: str) -> None:
    model, batch = make(data, edges=(), covariance=covariance, reconstruction_weight=3.0, beta=0.7), batch_of(data)
    assert [phase.name for phase in model.phases()] == ["prior"]
    posterior = model.posterior(batch["images"])
    off_diagonal = posterior.factor - torch.diag_embed(posterior.factor.diagonal(dim1=1, dim2=2))
    assert (off_diagonal.abs().max() > 0.01) == (covariance == "full")
    terms = model.loss(batch, seeded(1))
    kl = kl_divergence(distribution(posterior), standard(4)).mean()
    assert terms["kl"].item() == pytest.approx(kl.item(), rel=1e-4)
    z = posterior.mean + torch.einsum("bij,bj->bi", posterior.factor, torch.randn(16, 4, generator=seeded(1)))
    error = ((model.decoder(z) - batch["images"]) ** 2).sum((1, 2, 3)).mean()
    assert terms["reconstruction"].item() == pytest.approx(error.item(), rel=1e-5)
    assert terms["loss"].item() == pytest.approx(3.0 * error.item() + 0.7 * kl.item(), rel=1e-4)


def test_the_isotropic_control_is_charged_for_the_standard_normal_in_the_coordinates_of_the_alignment(data: Dataset) -> None:
    model = make(data, isotropic=True)
    align_at_random(model)
    posterior = model.posterior(batch_of(data)["images"])
    assert model.loss(batch_of(data))["kl"].item() == pytest.approx(kl_divergence(distribution(posterior), standard(4)).mean().item(), rel=1e-4)
    assert [phase.name for phase in model.phases()] == [phase.name for phase in make(data).phases()]  # the same recipe but for the prior


def test_the_divergence_from_linear_equations_is_the_closed_form_with_any_alignment(data: Dataset) -> None:
    model = make(data, form="linear", edges=("all",), scales=(1.0, 0.5, 2.0, 0.3))
    align_at_random(model)
    with torch.no_grad():
        model.sem.weights.copy_(torch.randn(4, 4, generator=seeded(3)).triu(1))
    mixing = torch.linalg.inv(torch.eye(4).double() - model.sem.weights.detach().double().T)
    prior = MultivariateNormal(torch.zeros(4).double(), mixing @ torch.diag(torch.tensor([1.0, 0.25, 4.0, 0.09]).double()) @ mixing.T)
    posterior = model.posterior(batch_of(data)["images"])
    assert posterior.factor.triu(1).abs().max() > 0.1
    expected = kl_divergence(distribution(posterior), prior).mean().item()
    assert model.loss(batch_of(data))["kl"].item() == pytest.approx(expected, rel=1e-4)


def test_the_loss_is_the_negative_elbo_of_log_weights(data: Dataset) -> None:
    """With the divergence at a draw they are the same number for the same draw; in the mean over draws for linear equations' closed form too."""
    model, images = make(data, divergence="mc", curriculum=False), batch_of(data)["images"]
    align_at_random(model)
    constant = 0.5 * 36 * math.log(math.pi)
    for seed in range(3):
        found = model.log_weights(images, None, 1, seeded(seed)).mean().item() + constant
        assert -model.loss(batch_of(data), seeded(seed))["loss"].item() == pytest.approx(found, rel=1e-5)
    linear = make(data, form="linear", edges=("all",), curriculum=False, scales=(1.0, 0.5))
    with torch.no_grad():
        linear.sem.weights.copy_(torch.randn(4, 4, generator=seeded(3)).triu(1))
    weights = linear.log_weights(images, None, 4000, seeded(0)).mean(1) + constant
    losses = torch.stack([linear.loss(batch_of(data), seeded(seed))["loss"].detach() for seed in range(400)])
    spread = (weights.var() / len(weights) + losses.var() / len(losses)).sqrt()
    assert (weights.mean() + losses.mean()).abs() < 4 * spread


@pytest.mark.parametrize(("form", "learn_edges"), [("linear", True), ("quadratic", True), ("mlp", True), ("mlp", False)])
def test_every_form_of_equations_trains(data: Dataset, form: str, learn_edges: bool) -> None:
    model = CausalPriorVAE(data.spec, form=form, edges=("all",), learn_edges=learn_edges, learn_scales=True, sparsity=0.1, **{**SMALL, "restarts": 1})
    start = {key: tensor.detach().clone() for key, tensor in model.sem.named_parameters()}
    last = model.fit(data).history[-1]["train"]
    assert all(math.isfinite(value) for value in last.values())
    assert all(not torch.equal(start[key], tensor) for key, tensor in model.sem.named_parameters())
    assert ("edges" in last) == learn_edges


def test_the_expected_number_of_edges_is_charged(data: Dataset) -> None:
    model = make(data, edges=("all",), learn_edges=True, sparsity=2.5)
    terms = model.loss(batch_of(data), seeded(0))
    assert terms["edges"].item() == pytest.approx(6 * torch.sigmoid(torch.tensor(2.0)).item(), rel=1e-5)
    assert terms["loss"].item() == pytest.approx((terms["reconstruction"] + terms["kl"] + 2.5 * terms["edges"]).item(), rel=1e-5)


# ---- the curriculum -------------------------------------------------------------------------------------------------
def shift_latent(model: CausalPriorVAE, index: int, by: float) -> None:
    last = model.encoder.network.layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.bias[index] += by
        for stack in model._start("encoder").stacks.values() if model.starts else ():
            if stack.shape[1:] == last.bias.shape:
                stack[:, index] += by


def test_in_the_first_phase_only_latents_with_edges_reach_the_picture(data: Dataset) -> None:
    model, batch = make(data), batch_of(data)
    before = model.first_loss(batch, seeded(0))
    shift_latent(model, 2, 3.0)
    after = model.first_loss(batch, seeded(0))
    assert torch.equal(before["reconstruction"], after["reconstruction"])
    assert after["kl"] > before["kl"] + 1
    shift_latent(model, 1, 3.0)
    assert not torch.equal(before["reconstruction"], model.first_loss(batch, seeded(0))["reconstruction"])


def test_the_first_phase_has_an_isotropic_prior_of_small_weight(data: Dataset) -> None:
    model, batch = make(data, first_beta=0.05, reconstruction_weight=2.0, restarts=1), batch_of(data)
    terms = model.first_loss(batch, seeded(0))
    kl = kl_divergence(distribution(model.posterior(batch["images"])), standard(4)).mean().item()
    assert terms["kl"].item() == pytest.approx(kl, rel=1e-4)
    assert terms["loss"].item() == pytest.approx(2 * terms["reconstruction"].item() + 0.05 * kl, rel=1e-4)


def test_the_gate_opens_over_gate_steps(data: Dataset) -> None:
    model = make(data, gate_steps=8, finalists=1)
    posterior = model.posterior(batch_of(data)["images"])
    z = posterior.draw(torch.randn(16, 4, generator=seeded(0)))
    for step, open_by in ((0.0, 0.0), (2.0, 0.25), (8.0, 1.0), (math.inf, 1.0)):
        gated = z * torch.tensor([1.0, 1.0, open_by, open_by])
        expected = model.misfit(gated, batch_of(data)["images"]).mean().item()
        assert model.loss(batch_of(data, step=torch.tensor(step)), seeded(0))["reconstruction"].item() == pytest.approx(expected, rel=1e-5)
    free = make(data, curriculum=False)
    assert torch.equal(free.loss(batch_of(data, step=torch.zeros(())), seeded(0))["loss"], free.loss(batch_of(data), seeded(0))["loss"])


def test_alignment_moves_the_latents_and_no_picture(data: Dataset) -> None:
    model = make(data, restarts=1)
    images, noise = batch_of(data, 32)["images"], torch.randn(32, 4, generator=seeded(0))
    before = model.posterior(images)
    pictures, drawn = model.reconstruct(data.test.images), model.decoder(before.draw(noise)).detach()
    for turn in range(2):  # a second one is put on top of the first
        if turn:
            model.place([0, 1], torch.tensor([[0.5, 1.0], [-2.0, 0.3]]), torch.tensor([1.0, -1.0]))
        else:
            model.align(data, 0)
        after = model.posterior(images)
        assert torch.allclose(model.reconstruct(data.test.images), pictures, atol=1e-4)
        assert torch.allclose(model.decoder(after.draw(noise)), drawn, atol=1e-4)
        assert torch.allclose(after.log_det, torch.linalg.slogdet(after.factor)[1], atol=1e-4)
        assert torch.allclose(after.log_det - before.log_det, torch.linalg.slogdet(model.encoder.alignment)[1], atol=1e-4)
        assert torch.allclose(after.mean, before.mean @ model.encoder.alignment.T + model.encoder.offset, atol=1e-4)
        assert torch.equal(after.mean[:, 2:], before.mean[:, 2:])  # without edges there is nowhere to go
        assert not torch.allclose(after.mean[:, :2], before.mean[:, :2], atol=0.1)


def test_alignment_places_latents_that_are_an_affine_map_of_draws_of_the_prior(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(data, restarts=1)
    truth = model.sem.sample(4000, seeded(0)).detach()[:, :2]
    mixed = truth @ torch.tensor([[0.3, 1.1], [-0.8, 0.4]]) + torch.tensor([2.0, -1.0])
    monkeypatch.setattr(model, "_coupled_means", lambda *_: mixed)
    model.align(data, 0)
    placed = mixed @ model.encoder.alignment[:2, :2].T + model.encoder.offset[:2]
    for i in range(2):
        found = np.corrcoef(placed[:, i], truth[:, i])[0, 1]
        assert (abs(found) if i == 0 else found) > 0.99  # the parabola has no left and right
    assert (placed[:, 1] - placed[:, 0].square()).std().item() == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("scores", [(1.0, 3.0, 2.0, 0.0), (3.0, 1.0, 2.0, 0.0), (0.0, 1.0, 2.0, 3.0), (-5.0, -7.0, -6.0, -8.0)])
def test_of_the_starts_the_best_are_kept_and_then_one(data: Dataset, scores: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 4, "finalists": 2}), iter([*scores, 1.0, 2.0])
    weights = [model._start("encoder").network(turn)["network.layers.1.weight"] for turn in range(4)]
    assert len({float(weight.sum()) for weight in weights}) == 4
    monkeypatch.setattr(module, "affine_score", lambda *_, **__: next(given))
    model.align(data, 0)
    best = np.argsort(scores)[::-1].tolist()
    kept = [model._start("encoder").network(turn) for turn in range(2)]
    assert [torch.equal(kept[turn]["network.layers.1.weight"], weights[best[turn]]) for turn in range(2)] == [True, True]
    assert not torch.equal(kept[0]["alignment"], kept[1]["alignment"])  # each has a map of its own
    assert model.scores.tolist() == sorted(scores, reverse=True)
    model.choose(data, 0)
    assert torch.equal(model.encoder.state_dict()["network.layers.1.weight"], weights[best[1]])  # whose score after the trial was larger
    assert model.trial_scores.tolist() == [2.0, 1.0]
    assert len(model._start("encoder")) == len(model._start("decoder")) == 0


def test_the_trial_charges_each_finalist_what_the_last_phase_charges_one(data: Dataset) -> None:
    model, batch = make(data, restarts=3, finalists=2), batch_of(data)
    model.align(data, 0)
    terms = model.trial_loss(batch, seeded(0))
    noise, expected = torch.randn(2 * 16, 4, generator=seeded(0)), []
    for turn in range(2):
        model._take(turn)
        posterior, own = model.posterior(batch["images"]), noise[16 * turn : 16 * (turn + 1)]
        kl = module.divergence("tangent", *posterior[:2], model.sem, z=posterior.draw(own), noise=own, log_det=posterior.log_det, pivots=1)
        expected.append((model.misfit(posterior.draw(own), batch["images"]).mean() + kl.mean()).item())
    assert terms["loss"].item() == pytest.approx(sum(expected), rel=1e-4)


def test_a_run_stored_in_the_middle_of_the_trial_goes_on(data: Dataset, tmp_path: Path) -> None:
    settings = {**SMALL, "restarts": 3, "finalists": 2, "trial_epochs": 2}
    whole = CausalPriorVAE(data.spec, **settings)
    whole.fit(data, seed=4)

    class Stopped(Exception):  # noqa: N818
        pass

    class Stops(CausalPriorVAE):
        def choose(self, data: Dataset, seed: int) -> None:
            raise Stopped

    with pytest.raises(Stopped):
        Stops(data.spec, **settings).fit(data, seed=4, out=tmp_path / "run")
    model = CausalPriorVAE(data.spec, **settings)
    model.fit(data, seed=4, out=tmp_path / "run", resume=True)
    assert torch.equal(model.encode(data.test.images), whole.encode(data.test.images))


def test_a_start_that_collapsed_comes_last_and_only_a_first_phase_without_any_other_fails(data: Dataset) -> None:
    model = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 3, "finalists": 2})

    def collapse(turn: int) -> None:
        with torch.no_grad():
            for name, stack in model._start("encoder").stacks.items():
                if name.endswith("weight"):
                    stack[turn] = 0.0

    collapse(0)
    model.align(data, 0)
    assert [score > -math.inf for score in model.scores.tolist()] == [True, True, False]
    collapse(0)
    collapse(1)
    placed = model._start("encoder").network(0)["alignment"]
    model.choose(data, 0)  # after the trial the map of before stays
    assert model.trial_scores.tolist() == [-math.inf, -math.inf]
    assert torch.equal(model.encoder.alignment, placed)
    model = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 2})
    collapse(0)
    collapse(1)
    with pytest.raises(TrainingError, match="the latents of no start vary in every direction after the first phase; raise first_epochs"):
        model.align(data, 0)


def test_the_score_of_a_start_is_that_of_its_latents(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANKED_STEPS", 120)
    model = CausalPriorVAE(data.spec, **{**SMALL, "restarts": 3})
    found = []
    for turn in range(3):
        model._take(turn)
        means = model.encode(data.train.images)[:, :2, 0]
        found.append(affine_score(means, model.sem, [0, 1], *fit_affine(means, model.sem, [0, 1])))
    model.align(data, 0)
    assert model.scores.tolist() == pytest.approx(sorted(found, reverse=True), rel=1e-3, abs=1e-3)


def test_starts_are_trained_as_if_each_were_alone(data: Dataset) -> None:
    """With the noise switched off (all draws 0) the starts share nothing but the batches, so start 1 of three is the only start of another model."""

    class Quiet(CausalPriorVAE):
        def first_loss(self, batch: Any, generator: Any = None) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch, "randn", lambda shape, **_: torch.zeros(shape))
                return super().first_loss(batch, generator)

    settings = {**SMALL, "first_epochs": 2}
    three, alone = Quiet(data.spec, **{**settings, "restarts": 3}), Quiet(data.spec, **{**settings, "restarts": 1})
    for part in alone.starts:
        for name, stack in alone._start(part).stacks.items():
            stack.data = three._start(part).stacks[name].data[1:2].clone()
    for model in (three, alone):
        phase = model.phases()[0]
        stepper = Stepper(model, phase, data.train, 16, cuda_graph=False, bf16=False)
        stepper.run_epoch(0, 2, 5)
    for part in alone.starts:
        for name, tensor in alone._start(part).network(0).items():
            assert torch.allclose(tensor, three._start(part).network(1)[name], atol=1e-5)


def test_a_trained_model_keeps_no_starts_but_the_chosen(data: Dataset, tmp_path: Path) -> None:
    model = make(data)
    model.fit(data, seed=1, out=tmp_path / "run")
    assert not any(tensor.numel() for name, tensor in model.state_dict().items() if name.startswith("starts."))
    again = load_model(tmp_path / "run")
    assert torch.equal(again.encode(data.test.images), model.encode(data.test.images))


def test_the_phases_are_positions_alignment_trial_choice_and_the_prior(data: Dataset) -> None:
    assert [phase.name for phase in make(data).phases()] == ["positions", "alignment", "trial", "choice", "prior"]
    assert [phase.name for phase in make(data, finalists=1).phases()] == ["positions", "alignment", "prior"]
    assert [phase.name for phase in make(data, curriculum=False).phases()] == ["prior"]


# ---- queries --------------------------------------------------------------------------------------------------------
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


def test_a_traversal_of_the_noises_follows_the_equations(data: Dataset) -> None:
    model = make(data)
    noises = torch.randn(5, 4, generator=seeded(0))
    z = noises.clone()
    z[:, 1] = noises[:, 1] + noises[:, 0].square()
    assert torch.allclose(model.traverse(noises), model.decode(z[..., None]), atol=1e-5)
    with pytest.raises(QueryError, match=r"\(B, 4\)"):
        model.traverse(noises[:, :3])


def test_encode_with_spread_draws_from_the_posterior(data: Dataset) -> None:
    model = make(data)
    align_at_random(model)
    image = data.test.images[:1]
    posterior = model.posterior(image.float() / 255)
    draws = model.encode_with_spread(image.expand(40_000, -1, -1, -1))
    covariance = (posterior.factor @ posterior.factor.mT)[0].detach()
    assert torch.allclose(draws.mean(0), posterior.mean[0], atol=0.03 * covariance.diagonal().max().sqrt().item())
    assert torch.allclose(draws.mT.cov(), covariance, atol=0.04 * covariance.abs().max().item())


# ---- wrong settings -------------------------------------------------------------------------------------------------
def test_edges_are_words_from_an_earlier_to_a_later_latent() -> None:
    assert torch.equal(allowed_edges(("z0->z1", " z1 -> z3 "), NAMES).nonzero(), torch.tensor([[0, 1], [1, 3]]))
    assert torch.equal(allowed_edges(("all",), NAMES), torch.ones(4, 4).triu(1))
    assert not allowed_edges((), NAMES).any()


@pytest.mark.parametrize("edge", ["z1->z0", "z0->z0", "z0-z1", "z0->z9", "up->z1", "", "all"])
def test_an_edge_that_cannot_be_is_refused_with_the_names_that_can(edge: str) -> None:
    with pytest.raises(UsageError, match=r"must be like z0->z1, from an earlier to a later one of z0, z1, z2, z3"):
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
def test_settings_that_make_no_model_are_refused(data: Dataset, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        CausalPriorVAE(data.spec, **{**SMALL, **settings})


def test_clips_are_sent_to_the_model_for_clips(make_data: Any) -> None:
    with pytest.raises(DataError, match="temporal-causal-prior-vae"):
        CausalPriorVAE(make_data((1, 6, 6), frames=3).spec)


def test_the_control_answers_for_the_prior_that_it_was_trained_under(data: Dataset) -> None:
    model = make(data, isotropic=True)
    assert not model.graph.edges
    assert not model.edges.any()
    draws = model.draw_latents(20_000, seeded(0))
    assert torch.allclose(draws.std(0), torch.ones(4), atol=0.03)
    images = data.test.images[:4]
    z = model.encode(images)
    moved = model.counterfactual(images, do={"z0": 2.0})
    z[:, 0] = 2.0
    assert torch.allclose(moved, model.decode(z), atol=1e-5)  # nothing follows from it
    plain = make(data, edges=())
    plain.encoder.load_state_dict(model.encoder.state_dict())
    plain.decoder.load_state_dict(model.decoder.state_dict())
    weights = [one.log_weights(images, None, 2, seeded(0)) for one in (model, plain)]
    assert torch.allclose(*weights, atol=1e-4)


def test_noises_may_be_lists_and_arrays_of_any_number_type(data: Dataset) -> None:
    model = make(data)
    expected = model.traverse(torch.ones(2, 4))
    for given in ([[1, 1, 1, 1]] * 2, np.ones((2, 4)), torch.ones(2, 4, dtype=torch.int64)):
        assert torch.equal(model.traverse(given), expected)
    for bad in (torch.ones(4), [[1.0, float("nan"), 0.0, 0.0]], "noise"):
        with pytest.raises(QueryError):
            model.traverse(bad)


def test_equations_whose_draws_run_away_are_refused_before_training(data: Dataset) -> None:
    with pytest.raises(UsageError, match=r"grow beyond 1e\+06; use fewer edges or form=mlp"):
        CausalPriorVAE(data.spec, **{**SMALL, "latents": 5, "edges": ("all",)})
    with pytest.raises(UsageError, match="edges=all needs two latents or more"):
        CausalPriorVAE(data.spec, **{**SMALL, "latents": 1, "edges": ("all",), "scales": (1.0,)})


# ---- the parabola ---------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_recipe_places_the_position_of_an_oval_in_the_first_two_latents() -> None:
    data = Parabola().dataset(size=16, samples=20_000)
    model = CausalPriorVAE(data.spec, reconstruction_weight=16.0, restarts=3, first_epochs=6, epochs=6)
    model.fit(data, seed=0)
    z, labels = model.encode(data.test.images)[..., 0].numpy(), data.test.labels.numpy()
    x, y = labels[:, 0], labels[:, 1]
    assert np.corrcoef(z[:, 0], x)[0, 1] ** 2 > 0.5
    assert np.corrcoef(z[:, 1], y)[0, 1] ** 2 > 0.5
