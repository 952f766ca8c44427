"""The temporal causal-prior VAE against closed forms: its loss, the refit of its coefficients, and what do() and extrapolate() make of clips."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from intervae.causal.sem_divergence import divergence
from intervae.data.base import Batch, Dataset, Split
from intervae.data.simulators import Motion
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import TemporalCausalPriorVAE
from intervae.models.causal_prior_vae import gaussian_head

SMALL: dict[str, Any] = {"latents": 2, "widths": (16,), "background_size": 3, "epochs": 1, "refit_epochs": 1, "batch_size": 16, "warm_up": 8}
END = torch.tensor(math.inf)  # the step at which every schedule is over
BEFORE_LAST, LAST = slice(0, 4), slice(4, 6)  # of the 6 variables z1_0, z1_1, z2_0, z2_1, z3_0, z3_1


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(data: Dataset, edges: dict[tuple[str, str], float] | None = None, **settings: Any) -> TemporalCausalPriorVAE:
    """A model whose weights are far from their simple start; with `edges` these coefficients, and none else, are fixed."""
    model, generator = TemporalCausalPriorVAE(data.spec, **{**SMALL, **settings}), seeded(7)
    with torch.no_grad():
        for part in (model.frame_encoder, model.background_encoder, model.decoder):
            for parameter in part.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        model.bank.copy_(torch.randn(model.bank.shape, generator=generator))
        if edges is not None:
            model.is_fixed.fill_(1.0)
            for (cause, effect), weight in edges.items():
                place = model.latent_names.index(cause), model.latent_names.index(effect)
                model.fixed[place], model.sem.weights[place] = 1.0, weight
    return model


STEADY = {("z1_0", "z3_0"): -1.0, ("z2_0", "z3_0"): 2.0, ("z1_1", "z3_1"): -1.0, ("z2_1", "z3_1"): 2.0}  # constant velocity


def batch_of(data: Dataset, n: int = 16, step: Tensor = END) -> Batch:
    return {**data.train.batch(torch.arange(n)), "step": step}


@pytest.fixture
def data() -> Dataset:
    return Motion(size=12, backgrounds=4).dataset(samples=64)


@pytest.fixture
def longer() -> Dataset:
    return Motion(size=16, frames=5, backgrounds=4).dataset(samples=64)


# ---- the model ------------------------------------------------------------------------------------------------------
def test_every_frame_has_a_block_of_the_posterior_to_itself(data: Dataset) -> None:
    model, clips = make(data), batch_of(data)["images"]
    mean, factor, log_det = model.posterior(clips)
    for t in range(3):
        own, block, _ = gaussian_head(model.frame_encoder(clips[:, t]), 2)
        at = slice(2 * t, 2 * t + 2)
        assert torch.allclose(mean[:, at], own, atol=1e-6)
        assert torch.allclose(factor[:, at, at], block, atol=1e-6)
        assert factor[:, at, [i for i in range(6) if i // 2 != t]].abs().max() == 0
    assert torch.allclose(log_det, torch.linalg.slogdet(factor)[1], atol=1e-5)


def test_edges_go_forward_in_time_only(data: Dataset) -> None:
    model = make(data, latents=4)
    assert model.sem.allowed.sum() == 48  # the paper's candidates
    for j, i in model.sem.allowed.nonzero().tolist():
        assert j // 4 < i // 4
    fitted = make(data, selection="gumbel")
    fitted.fit(data)
    assert fitted.graph.edges
    assert all(cause[1] < effect[1] for cause, effect, _ in fitted.graph.edges)
    assert fitted.latent_names == ("z1_0", "z1_1", "z2_0", "z2_1", "z3_0", "z3_1", "b0", "b1", "b2")


def test_the_loss_is_the_papers_with_the_closed_form_divergence(data: Dataset) -> None:
    model, batch = make(data, STEADY, reconstruction_weight=4.0, beta=0.5), batch_of(data)
    with torch.no_grad():
        model.sem.log_scales.copy_(torch.linspace(-1, 0.5, 6))
    clips = batch["images"]
    mean, factor, _ = model.posterior(clips)
    z = mean + torch.einsum("bij,bj->bi", factor, torch.randn(16, 6, generator=seeded(1)))
    code = model.background_encoder(clips.median(1).values)
    foreseen = 2 * z[:, 2:4] - z[:, 0:2]  # from the draws, not from the means
    frames = [model.decoder(torch.cat([part, code], 1)) for part in (z[:, 0:2], z[:, 2:4], z[:, 4:6], foreseen)]
    errors = [((frame - clips[:, t]) ** 2).sum((1, 2, 3)).mean().item() for frame, t in zip(frames, (0, 1, 2, 2), strict=True)]
    mixing = torch.linalg.inv(torch.eye(6).double() - (model.fixed * model.sem.weights).detach().double().T)
    variances = torch.diag((2 * model.sem.log_scales.detach().double()).exp())
    prior = MultivariateNormal(torch.zeros(6).double(), mixing @ variances @ mixing.T)
    kl = kl_divergence(MultivariateNormal(mean.double(), scale_tril=factor.double()), prior).mean().item()
    terms = {key: value.item() for key, value in model.loss(batch, seeded(1)).items()}
    assert terms["reconstruction"] == pytest.approx(sum(errors[:3]), rel=1e-4)
    assert terms["prediction"] == pytest.approx(errors[3], rel=1e-4)
    assert terms["kl"] == pytest.approx(kl, rel=1e-4)
    assert terms["loss"] == pytest.approx(4.0 * sum(errors) + 0.5 * kl, rel=1e-4)  # fixed edges cost nothing


def test_beta_rises_and_the_penalty_starts_when_they_are_told(data: Dataset) -> None:
    model = make(data, selection="gumbel", sparsity=3.0, sparsity_from=4, warm_up=8, beta=2.0)
    for step, beta, sparsity in ((0, 0.0, 0.0), (2, 0.5, 0.0), (4, 1.0, 3.0), (8, 2.0, 3.0), (math.inf, 2.0, 3.0)):
        terms = {key: value.item() for key, value in model.loss(batch_of(data, step=torch.tensor(float(step))), seeded(0)).items()}
        assert terms["edges"] == pytest.approx(12 / (1 + math.exp(-2.0)), rel=1e-5)
        expected = 10 * (terms["reconstruction"] + terms["prediction"]) + beta * terms["kl"] + sparsity * terms["edges"]
        assert terms["loss"] == pytest.approx(expected, rel=1e-5)
    model.is_fixed.fill_(1.0)
    terms = {key: value.item() for key, value in model.loss(batch_of(data, step=torch.zeros(())), seeded(0)).items()}
    assert terms["loss"] == pytest.approx(10 * (terms["reconstruction"] + terms["prediction"]) + 2 * terms["kl"], rel=1e-5)


def test_the_prediction_teaches_the_coefficients(data: Dataset) -> None:
    model = make(data)
    model.loss(batch_of(data), seeded(0))["prediction"].backward()
    gradient = model.sem.weights.grad
    assert gradient is not None
    assert (gradient[BEFORE_LAST, LAST].abs() > 0).all()
    gradient[BEFORE_LAST, LAST] = 0
    assert gradient.abs().max() == 0


# ---- edges and coefficients -----------------------------------------------------------------------------------------
def give_latents(model: TemporalCausalPriorVAE, monkeypatch: pytest.MonkeyPatch, z: Tensor) -> None:
    """Let the model read these latents (N, 6) off any clips."""
    codes = torch.arange(3 * len(z)).reshape(len(z), 3) / 100
    monkeypatch.setattr(model, "encode", lambda images, **_: torch.cat([z, codes], dim=1)[: len(images), :, None])


def test_the_refit_recovers_the_coefficients_and_the_scales(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(data, STEADY)
    with torch.no_grad():
        model.sem.weights.mul_(0.6)  # as the penalty leaves them
    data = Motion(size=12).dataset(samples=4000)
    z = torch.randn(len(data.train), 6, generator=seeded(0)) * torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0, 1.0])
    z[:, 4] = 2 * z[:, 2] - z[:, 0]
    z[:, 5] = 2 * z[:, 3] - z[:, 1] + 0.3 * z[:, 5]
    give_latents(model, monkeypatch, z)
    model.refit(data, 0)
    found = {(cause, effect): weight for cause, effect, weight in model.graph.edges}
    assert found.keys() == STEADY.keys()
    assert [found[edge] for edge in STEADY][:2] == pytest.approx([-1.0, 2.0], abs=1e-4)
    assert [found[edge] for edge in STEADY][2:] == pytest.approx([-1.0, 2.0], abs=0.03)
    assert model.sem.log_scales.exp().tolist() == pytest.approx([1.0, 2.0, 0.5, 1.0, 1e-3, 0.3], rel=0.05)
    assert {tuple(row) for row in model.bank.tolist()} <= {tuple(row) for row in (torch.arange(3 * len(z)).reshape(-1, 3) / 100).tolist()}


def test_the_last_refit_leaves_the_scales_that_fit_the_posteriors_best(data: Dataset) -> None:
    model = make(data, STEADY)
    model.finish(data, 0)
    mean, factor, log_det = model.posterior(model._frames(data.train.images))

    def divergence_of_scales() -> float:
        kl = divergence("tangent", mean, factor, model.sem, edges=model.fixed, z=mean, generator=None, pivots=1, log_det=log_det)
        return kl.mean().item()

    best = divergence_of_scales()
    for index in range(6):
        for factor_of_scale in (0.9, 1.1):
            with torch.no_grad():
                model.sem.log_scales[index] += math.log(factor_of_scale)
                assert divergence_of_scales() > best
                model.sem.log_scales[index] -= math.log(factor_of_scale)
    model.refit(data, 0)  # from the means alone they are too narrow
    assert divergence_of_scales() > best


def test_steps_must_be_a_whole_number_of_frames(data: Dataset) -> None:
    model = make(data)
    for steps in (1.5, "3", -1, True):
        with pytest.raises(QueryError, match="must be a whole number of frames"):
            model.counterfactual(data.test.images[:1], {}, steps=steps)
    with pytest.raises(QueryError, match="must be a whole number of frames"):
        model.extrapolate(data.test.images[:1], 1.5)
    with pytest.raises(QueryError, match="1 step or more"):
        model.extrapolate(data.test.images[:1], 0)


def test_the_refit_survives_causes_that_say_the_same(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(data, {**STEADY, ("z2_1", "z3_0"): 1.0})
    z = torch.randn(len(data.train), 6, generator=seeded(0))
    z[:, 3] = z[:, 2] + 1e-6 * torch.randn(len(z), generator=seeded(1))
    z[:, 4] = 2 * z[:, 2] - z[:, 0]
    give_latents(model, monkeypatch, z)
    model.refit(data, 0)
    assert model.sem.weights[[0, 2, 3], 4].tolist() == pytest.approx([-1.0, 1.0, 1.0], abs=1e-3)  # shared between the two


def test_edges_more_probable_than_not_are_fixed_and_no_longer_drawn(data: Dataset) -> None:
    model = make(data, selection="gumbel", sparsity=5.0)
    with torch.no_grad():
        model.sem.edge_logits.copy_(-model.sem.allowed)
        for cause, effect in ((0, 4), (2, 4)):
            model.sem.edge_logits[cause, effect] = 0.5
    model.fix_edges(data, 0)
    assert [edge[:2] for edge in model.graph.edges] == [("z1_0", "z3_0"), ("z2_0", "z3_0")]
    assert torch.equal(model.edges, model.fixed)
    terms = model.loss(batch_of(data), seeded(0))
    with torch.no_grad():
        model.sem.edge_logits.mul_(-3)  # nothing looks at them any more
    again = model.loss(batch_of(data), seeded(0))
    assert all(torch.equal(terms[key], again[key]) for key in ("loss", "reconstruction", "prediction", "kl"))
    assert np.array(model.state_to_log()["adjacency"]).shape == (9, 9)


def test_the_alignment_changes_the_latents_and_no_picture(data: Dataset) -> None:
    model, clips = make(data, STEADY), data.test.images
    before, pictures = model.encode(clips), model.reconstruct(clips)
    model.align(data, 0)
    after = model.encode(clips)
    assert torch.allclose(model.reconstruct(clips), pictures, atol=1e-4)
    assert not torch.allclose(after[:, :6], before[:, :6], atol=1e-2)
    assert torch.equal(after[:, 6:], before[:, 6:])
    _, factor, log_det = model.posterior(clips.float() / 255)
    assert torch.allclose(log_det, torch.linalg.slogdet(factor)[1], atol=1e-4)
    early = model.encode(data.train.images)[:, :4, 0].reshape(-1, 2)
    assert early.mean(0).abs().max() < 1e-3
    again = model.alignment.clone()
    model.align(data, 0)  # what is aligned stays, but for signs
    assert torch.allclose(model.alignment.abs(), again.abs(), rtol=1e-2, atol=1e-3)


def test_edges_are_chosen_by_how_validation_frames_are_foreseen(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Latents that move by a known SEM; a decoder that shows them: the four true edges are found."""
    model = make(data)
    z = torch.randn(600, 6, generator=seeded(0))
    z[:, 4:] = 2 * z[:, 2:4] - z[:, :2] + 0.05 * z[:, 4:]
    clips = torch.zeros(600, 3, 1, 12, 12)
    clips[..., 0, 0, :2] = z.reshape(600, 3, 2) / 40 + 0.5  # two pixels are the latents
    train, held = (Split((part * 255).to(torch.uint8), torch.zeros(len(part), 6)) for part in (clips[:500], clips[500:]))
    many = replace(data, train=train, validation=held)

    def read(frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = (frames[:, :, 0, 0, :2].flatten(1) - 0.5) * 40
        return mean, 0.01 * torch.eye(6).expand(len(mean), 6, 6), torch.zeros(len(mean))

    def show(latents: Tensor, codes: Tensor) -> Tensor:
        pictures = torch.zeros(len(latents), 3, 1, 12, 12)
        pictures[..., 0, 0, :2] = latents / 40 + 0.5
        return pictures

    monkeypatch.setattr(model, "posterior", read)
    monkeypatch.setattr(model, "draw_frames", show)
    model.choose_edges(many, 0)
    found = {(cause, effect): weight for cause, effect, weight in model.graph.edges}
    assert found.keys() == STEADY.keys()
    assert [found[edge] for edge in STEADY] == pytest.approx(list(STEADY.values()), abs=0.02)


# ---- queries --------------------------------------------------------------------------------------------------------
def test_do_moves_a_frame_and_what_follows_from_it(data: Dataset) -> None:
    model, clips = make(data, STEADY), data.test.images
    latents, before = model.encode(clips), model.reconstruct(clips)
    for acted, moved in (("z1_0", [0, 2]), ("z2_1", [1, 2]), ("z3_0", [2]), ("b1", [0, 1, 2])):
        after = model.counterfactual(clips, {acted: 2.5})
        assert [t for t in range(3) if not torch.equal(after[:, t], before[:, t])] == moved, acted
    changed = model.intervene(latents, {"z1_0": 2.5, "z2_1": lambda v: v + 1})
    assert torch.allclose(changed[:, 4], latents[:, 4] - (2.5 - latents[:, 0]), atol=1e-5)
    assert torch.allclose(changed[:, 5], latents[:, 5] + 2, atol=1e-5)
    assert torch.equal(changed[:, [1, 2]], latents[:, [1, 2]])
    assert torch.equal(changed[:, 6:], latents[:, 6:])


@pytest.mark.parametrize("window", [2, 3])
def test_extrapolation_is_the_equations_step_by_step(data: Dataset, window: int) -> None:
    edges = STEADY if window == 3 else {("z1_0", "z2_0"): 0.9, ("z1_1", "z2_0"): 0.3, ("z1_1", "z2_1"): -0.7}
    model, clips = make(data, edges, window=window), data.test.images[:5].float() / 255
    known = [gaussian_head(model.frame_encoder(clips[:, t]), 2)[0] for t in range(3)]
    for _ in range(3):
        if window == 3:
            known.append(2 * known[-1] - known[-2])
        else:
            known.append(known[-1] @ torch.tensor([[0.9, 0.0], [0.3, -0.7]]))
    code = model.background_encoder(clips.median(1).values)
    expected = torch.stack([model.decoder(torch.cat([z, code], 1)) for z in known[3:]], 1).clamp(0, 1)
    assert torch.allclose(model.extrapolate(data.test.images[:5], 3), expected, atol=1e-5)
    assert torch.allclose(model.extrapolate(clips[0], 3)[0], expected[0], atol=1e-5)  # a single clip


def test_samples_are_noises_passed_through_the_equations_on_kept_backgrounds(data: Dataset) -> None:
    model = make(data, STEADY)
    noise = model.draw_noise(50, seeded(3))
    kept = {tuple(row) for row in model.bank.tolist()}
    assert all(tuple(row) in kept for row in noise[:, 6:, 0].tolist())
    z = noise.clone()
    z[:, LAST] += 2 * z[:, 2:4] - z[:, 0:2]
    assert torch.allclose(model.sample(50, seed=3), model.decode(z), atol=1e-5)


def test_do_at_any_time_travels_to_frames_that_are_yet_to_come(longer: Dataset) -> None:
    model, clips = make(longer, STEADY, background="given"), longer.test.images
    behind = longer.test.fields["background"]
    plain, future = model.reconstruct(clips, background=behind), model.extrapolate(clips, 3, background=behind)
    whole = torch.cat([plain, future], 1)
    for acted, moved in (("z2_0", range(1, 8)), ("z5_1", range(4, 8)), ("z7_0", (6, 7)), ("b2", range(8))):
        do = {acted: 1.5}
        after = [] if acted == "z7_0" else [model.counterfactual(clips, do, background=behind)]
        after = torch.cat([*(after or [plain]), model.extrapolate(clips, 3, background=behind, do=do)], 1)
        assert [t for t in range(8) if not torch.equal(after[:, t], whole[:, t])] == list(moved), acted
    z = [gaussian_head(model.frame_encoder(clips[:, t].float() / 255), 2)[0] for t in range(5)]
    shifts = torch.zeros(5 + 3)
    shifts[1] = 1.0  # frame 2 is moved by 1, frame 1 is not, so that later ones are moved by 2, 3, ...
    for t in range(2, 8):
        shifts[t] = 2 * shifts[t - 1] - shifts[t - 2]
    code = model.background_encoder(behind.float() / 255)
    moved_last = z[4] + torch.tensor([[float(shifts[4]), 0.0]])
    expected = model.decoder(torch.cat([moved_last, code], 1)).clamp(0, 1)
    found = model.counterfactual(clips, {"z2_0": lambda v: v + 1}, background=behind)
    assert torch.allclose(found[:, 4], expected, atol=1e-4)
    per_clip = model.counterfactual(clips, {"z2_0": z[1][:, 0].detach().numpy() + 1}, background=behind)
    assert torch.allclose(per_clip, found, atol=1e-4)
    with pytest.raises(QueryError, match="z9_0"):
        model.extrapolate(clips, 3, do={"z9_0": 1.0})


def test_latents_over_time_are_those_of_the_clip_and_what_the_equations_make_of_them(longer: Dataset) -> None:
    model, clips = make(longer, STEADY), longer.test.images
    plain = model.latents_over_time(clips, steps=2)
    assert list(plain) == [f"z{t}_{i}" for t in range(1, 8) for i in range(2)] + ["b0", "b1", "b2"]
    assert torch.allclose(torch.stack([plain[name] for name in model.latent_names], 1), model.encode(clips)[..., 0], atol=1e-5)
    assert torch.allclose(plain["z6_1"], 2 * plain["z5_1"] - plain["z4_1"], atol=1e-4)
    assert torch.allclose(plain["z7_1"], 2 * plain["z6_1"] - plain["z5_1"], atol=1e-4)
    after = model.latents_over_time(clips, {"z6_0": 1.5}, steps=2)
    assert [name for name in plain if not torch.equal(after[name], plain[name])] == ["z6_0", "z7_0"]
    assert torch.equal(after["z6_0"], torch.full((len(clips),), 1.5))
    assert torch.allclose(after["z7_0"], 3.0 - plain["z5_0"], atol=1e-4)
    drawn = model.draw_frames(
        torch.stack([torch.stack([after[f"z{t}_{i}"] for i in range(2)], 1) for t in range(1, 8)], 1), model.encode(clips)[:, 6:, 0]
    )
    assert torch.allclose(model.counterfactual(clips, {"z6_0": 1.5}, steps=2), drawn.clamp(0, 1), atol=1e-5)


# ---- longer clips ---------------------------------------------------------------------------------------------------
def test_reconstructions_and_counterfactuals_take_clips_of_any_length(longer: Dataset) -> None:
    model, clips, behind = make(longer, STEADY, background="given"), longer.test.images, longer.test.fields["background"]
    whole, short = (model.reconstruct(part, background=behind) for part in (clips, clips[:, :2]))
    assert torch.allclose(short, whole[:, :2], atol=1e-6)
    do = {"z2_0": 1.0}
    moved, short = (model.counterfactual(part, do, background=behind) for part in (clips, clips[:, :3]))
    assert torch.allclose(short, moved[:, :3], atol=1e-6)
    with pytest.raises(QueryError, match="frames"):
        model.reconstruct(clips[:, :0])


def test_longer_clips_are_cut_into_windows_of_successive_frames(longer: Dataset) -> None:
    model = make(longer)
    clips = torch.arange(5.0)[None, :, None, None, None].expand(300, 5, 1, 16, 16)
    cut = model._window(clips, seeded(0))[:, :, 0, 3, 3]
    assert torch.equal(cut - cut[:, :1], torch.tensor([0.0, 1.0, 2.0]).expand(300, 3))
    assert torch.bincount(cut[:, 0].long(), minlength=3).min() > 60  # 0, 1 and 2, about as often
    model.fit(longer)
    latents = model.encode(longer.test.images)
    assert latents.shape[1:] == (9, 1)
    assert model.decode(latents).shape[1:] == (3, 1, 16, 16)
    every = model.reconstruct(longer.test.images)
    assert every.shape == longer.test.images.shape
    assert torch.allclose(every[:, :3], model.decode(latents), atol=1e-5)


def test_extrapolation_goes_on_from_the_last_frames_of_clips_of_any_length(longer: Dataset) -> None:
    model = make(longer, STEADY, background="given")
    clips, behind = longer.test.images, longer.test.fields["background"]
    whole = model.extrapolate(clips, 4, background=behind)
    assert whole.shape[1:] == (4, 1, 16, 16)
    assert torch.allclose(whole, model.extrapolate(clips[:, 3:], 4, background=behind), atol=1e-6)
    assert not torch.allclose(whole, model.extrapolate(clips[:, :3], 4, background=behind), atol=1e-3)
    for frames, steps in ((clips[:, :1], 2), (clips, 0)):
        with pytest.raises(QueryError, match="2 frames at least and 1 step or more"):
            model.extrapolate(frames, steps)


# ---- backgrounds ----------------------------------------------------------------------------------------------------
def test_the_background_is_given_or_the_middle_value_over_the_frames(data: Dataset) -> None:
    given, median = make(data, background="given"), make(data)
    clips, behind = data.test.images, data.test.fields["background"]
    as_floats = behind.float() / 255
    found = given.encode(clips, background=behind)
    assert torch.allclose(found[:, 6:, 0], given.background_encoder(as_floats), atol=1e-6)
    assert torch.equal(found, given.encode(clips, background=as_floats))
    middle = given.background_encoder((clips.float() / 255).median(1).values)
    for other in (given.encode(clips), median.encode(clips), median.encode(clips, background=behind)):
        assert torch.allclose(other[:, 6:, 0], middle, atol=1e-6)
    assert not torch.allclose(middle, found[:, 6:, 0], atol=1e-3)
    assert torch.equal(found[:, :6], median.encode(clips)[:, :6])
    losses = [model.loss(batch_of(data), seeded(0))["loss"].item() for model in (given, median)]
    assert losses[0] != losses[1]
    blank = {**batch_of(data), "background": torch.zeros(16, 1, 12, 12)}
    assert given.loss(blank, seeded(0))["loss"].item() != losses[0]
    assert median.loss(blank, seeded(0))["loss"].item() == losses[1]


def test_training_on_given_backgrounds_needs_them(data: Dataset, make_data: Any) -> None:
    without = make_data((1, 12, 12), frames=3)
    with pytest.raises(DataError, match="background=median"):
        make(without, background="given").fit(without)
    make(data, background="given").fit(data)


# ---- wrong questions ------------------------------------------------------------------------------------------------
def test_a_clip_of_another_length_or_shape_is_told_what_is_wrong_with_it(data: Dataset, make_data: Any, make_model: Any) -> None:
    model, five = make(data), torch.zeros(2, 5, 1, 12, 12)
    for clips in (five, five[0]):
        with pytest.raises(
            QueryError, match=r"clips of shape \(3, 1, 12, 12\) \(frames, channels, height, width\).*encode takes 3 frames.*any number"
        ):
            model.encode(clips)
    with pytest.raises(QueryError, match=r"\(frames, channels, height, width\), not \(2, 3, 1, 12, 11\); resize or transpose"):
        model.encode(five[:, :3, ..., 1:])
    with pytest.raises(QueryError, match="a clip has frames"):
        model.encode(five[0, 0])
    with pytest.raises(QueryError, match=r"\(2, 5, 1, 12, 12\) is that of clips; give one frame of each.*temporal-causal-prior-vae"):
        make_model("vae", make_data((1, 12, 12))).encode(five)


def test_a_frame_beyond_those_asked_for_is_told(data: Dataset) -> None:
    model, clips = make(data, STEADY), data.test.images
    with pytest.raises(QueryError, match=r"do\(z9_0\): frame 9 is beyond the 4 frames asked for; raise steps to 6"):
        model.extrapolate(clips, 1, do={"z9_0": 1.0})
    model.extrapolate(clips, 6, do={"z9_0": 1.0})
    for name in ("z0_0", "z2_5", "z" + 5000 * "9" + "_0"):
        with pytest.raises(QueryError, match="unknown variable"):
            model.counterfactual(clips, {name: 1.0})


def test_the_words_for_clips_count_their_frames(data: Dataset) -> None:
    assert "clips of 3 frames of (1, 12, 12), variables" in repr(data)


def test_wrong_clips_and_backgrounds_are_refused_in_a_sentence(data: Dataset) -> None:
    model = make(data, background="given")
    good, behind = torch.full((2, 4, 1, 12, 12), 0.5), torch.full((2, 1, 12, 12), 0.5)
    nan, high = good.clone(), good.clone()
    nan[1, 2, 0, 3, 3], high[0, 0, 0, 0, 0] = float("nan"), 1.5
    for frames, words in (
        (nan, "NaN"),
        (high, r"\[0, 1\]"),
        (good[..., :-1], "must be"),
        (good[0, 0], "must be"),
        (good[:0], "must be"),
        ("a", "array"),
    ):
        with pytest.raises(QueryError, match=words):
            model.extrapolate(frames, 1)
    for background, words in ((nan[1, 2], "NaN"), (behind[:1], "one for each clip"), (behind[..., 1:], "one for each clip"), ("a", "array")):
        with pytest.raises(QueryError, match=words):
            model.encode(good[:, :3], background=background)
    assert torch.equal(model.encode(good[0, :3], background=behind[0]), model.encode(good[:1, :3], background=behind[:1]))


def test_images_short_clips_and_settings_that_make_no_model_are_refused(data: Dataset, make_data: Any) -> None:
    with pytest.raises(DataError, match="causal-prior-vae"):
        TemporalCausalPriorVAE(make_data((1, 12, 12)).spec)
    with pytest.raises(DataError, match="set window= lower"):
        TemporalCausalPriorVAE(data.spec, window=4)
    for settings in (
        {"window": 1},
        {"latents": 0},
        {"background_size": 0},
        {"warm_up": 0},
        {"scale": 0.0},
        {"rounds": 0},
        {"tolerance": 1.0},
        {"beta": -1.0},
    ):
        with pytest.raises(UsageError, match="must be"):
            TemporalCausalPriorVAE(data.spec, **settings)
