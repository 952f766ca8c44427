"""CT-VAE on images of squares: accuracy after training, codes, and errors for unsuitable input."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from intervae.data import Dataset
from intervae.data.build_transitions import with_transitions
from intervae.errors import DataError, UsageError
from intervae.evaluation import evaluate
from intervae.models import create
from intervae.models.ct_vae.graph import NO_ACTION
from intervae.models.ct_vae.model import CTVAE
from intervae.models.ct_vae.settings import CTVAESettings
from intervae.settings import describe_settings
from squares import tiny


# ---- after training ------------------------------------------------------------------------------
def test_action_accuracy_is_far_above_the_majority(trained: CTVAE, data: Dataset) -> None:
    accuracy = {m.metric: m.value for m in evaluate(trained, data, ["actions"])}
    assert accuracy["majority_accuracy"] < 0.25
    assert accuracy["action_accuracy"] > 0.9
    assert accuracy["factor_accuracy"] > 0.9


def test_codes_are_not_evaluated_as_variables(trained: CTVAE, data: Dataset) -> None:
    measured = {m.metric for m in evaluate(trained, data)}
    assert {"reconstruction_pixel_mae", "action_accuracy", "factor_majority_accuracy"} <= measured
    assert not measured & {"mic", "mig", "dci_disentanglement", "sap"}
    with pytest.raises(UsageError, match="latents are variables"):
        evaluate(trained, data, ["mic"])


def test_act_predicts_the_image_after_the_action(trained: CTVAE, data: Dataset) -> None:
    assert data.transitions is not None
    pairs, images = data.transitions.test, data.test.images.float() / 255
    to_after, to_before = [], []
    for number, action in enumerate(data.actions):
        own = pairs[pairs.action == number]
        acted = trained.act(data.test.images[own.before], action)
        to_after.append((acted - images[own.after]).abs().mean((1, 2, 3)))
        to_before.append((acted - images[own.before]).abs().mean((1, 2, 3)))
    # a model that changes nothing scores nearly 0
    assert (torch.cat(to_after) < torch.cat(to_before)).float().mean() > 0.85


def test_no_action_changes_nothing(trained: CTVAE, data: Dataset) -> None:
    codes = trained.codes(data.test.images)
    layer, none = trained.transition, torch.full((len(codes),), NO_ACTION)
    nodes = layer.nodes(codes)
    after = layer.logits(codes, nodes, layer.graph(nodes, none).edges, none).argmax(-1)[:, 0]
    assert (after == codes).float().mean() > 0.99


def test_reconstructions_are_accurate(trained: CTVAE, data: Dataset) -> None:
    images = data.train.images[:100]
    error = (trained.reconstruct(images) - images.float() / 255).square().mean().item()
    assert -10 * math.log10(error) > 30  # dB; the mean image has about 17


def test_code_usage_equals_that_of_the_training_images(trained: CTVAE, data: Dataset) -> None:
    used, perplexity = trained.code_usage()
    counts = np.bincount(trained.codes(data.train.images).flatten().numpy(), minlength=64)
    share = counts[counts > 0] / counts.sum()
    assert used.item() == (counts > 0).mean()
    assert perplexity.item() == pytest.approx(math.exp(-(share * np.log(share)).sum()), rel=1e-4)
    assert used > 0.3


def test_vectors_decode_as_their_nearest_code(trained: CTVAE, data: Dataset) -> None:
    latents = trained.encode(data.test.images[:3])
    assert torch.equal(trained.decode(latents + 1e-4), trained.decode(latents))


def test_sampled_codes_have_the_frequencies_of_the_training_images(
    trained: CTVAE, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Tensor] = []

    def record(codes: Tensor) -> Tensor:
        batches.append(codes)
        return torch.zeros(len(codes), 3, 16, 16)

    monkeypatch.setattr(trained, "decode_codes", record)
    trained.sample(4000, seed=0)
    codes = torch.cat(batches)
    frequencies = torch.stack([(codes == c).float().mean(0) for c in range(64)], dim=1)
    assert torch.allclose(frequencies, trained.marginals, atol=0.04)


def test_each_codebook_has_its_own_positions(random_data: Dataset) -> None:
    model = tiny(random_data, codebooks=4)
    assert model.positions == 4 * 16 == len(model.latent_names)
    model.fit(random_data, seed=0)
    images = random_data.test.images[:3]
    assert model.attribute(images, images).shape == (3, 4)
    assert model.encode(images).shape == (3, 64, 2)


# ---- before training -----------------------------------------------------------------------------
def test_notes_on_few_steps_and_coarse_patches(random_data: Dataset) -> None:
    assert random_data.transitions is not None
    images, pairs = len(random_data.train) // 16, len(random_data.transitions.train) // 16
    settings = {"batch_size": 16, "transition_batch": 16}
    model = CTVAE(random_data.spec, transition_epochs=1, **settings)
    coarse, codebook_steps, transition_steps = model.notes(random_data)
    assert coarse[:2] == ("coarse-patch", "patch")
    assert coarse.text.startswith("patch=8 gives a coarse grid of 2 x 2 codes")
    assert codebook_steps[:3] == (
        "few-steps",
        "epochs",
        f"epochs=20 gives only {20 * images} steps on data this small; epochs=250 would give 500",
    )
    assert transition_steps[:2] == ("few-steps", "transition_epochs")
    assert transition_steps.text.startswith(f"transition_epochs=1 gives only {pairs} steps")
    enough = {"patch": 4, "epochs": 100, "transition_epochs": -(-200 // pairs)}
    assert CTVAE(random_data.spec, **settings, **enough).notes(random_data) == []


def test_data_without_actions_or_pairs_raises(data: Dataset) -> None:
    with pytest.raises(DataError, match=r"actions between images.*transitions=True"):
        create("ct-vae", replace(data, actions=()))
    with pytest.raises(DataError, match=r"pairs of images.*transitions=True"):
        tiny(data).fit(replace(data, transitions=None))


@pytest.mark.parametrize("decoder_epochs", [0, 1])
def test_fewer_pairs_than_a_batch_raise_before_training(
    decoder_epochs: int, random_data: Dataset, tmp_path: Path
) -> None:
    assert random_data.transitions is not None
    pairs = len(random_data.transitions.train)
    settings = {"batch_size": 8, "decoder_epochs": decoder_epochs}
    model = tiny(random_data, transition_batch=pairs + 1, **settings)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    words = f"there are {pairs} training pairs, fewer than one transition_batch of {pairs + 1}; "
    with pytest.raises(DataError, match=f"{words}set transition_batch={pairs} or less"):
        model.fit(random_data, seed=0, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    tiny(random_data, transition_batch=pairs, **settings).fit(random_data, seed=0)


def test_picture_phase_refuses_pairs_that_differ_in_more_than_the_action(data: Dataset) -> None:
    ambiguous = with_transitions(data, factors="colour", unique=False)
    with pytest.raises(UsageError, match=r"decoder_epochs=2.*unique=False.*set decoder_epochs=0"):
        tiny(ambiguous).fit(ambiguous, seed=0)
    tiny(ambiguous, decoder_epochs=0).fit(ambiguous, seed=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"features": 10, "codebooks": 4}, "features=10 is not divisible by codebooks=4"),
        ({"width": 10, "heads": 4}, "width=10 is not divisible by heads=4"),
        ({"edge_prior": 1.0}, "edge_prior"),
        ({"causal_share": 0.0}, "causal_share"),
        ({"codes": 40000}, "32768 codes at most"),
        ({"patch": 17}, "larger than the images of 16 x 16"),
        ({"code_decay": 1.0}, "code_decay"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"temperature": 1.0}, "setting 'temperature' was removed"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], words: str, data: Dataset) -> None:
    with pytest.raises(UsageError, match=words):
        create("ct-vae", data, **settings)


def test_ten_settings_are_not_advanced() -> None:
    assert sum(not setting["advanced"] for setting in describe_settings(CTVAESettings)) == 10


def test_vq_vae_has_one_codebook(data: Dataset) -> None:
    with pytest.raises(UsageError, match="use mcq-vae"):
        create("vq-vae", data, codebooks=2)
