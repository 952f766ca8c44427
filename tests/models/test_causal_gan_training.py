"""CausalGAN on small images: finite losses, no collapse, labels under do() and evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Variable, build_dataset
from intervae.metrics.sample_diversity import diversity, mode_shares
from intervae.models import CausalGAN

TINY: dict[str, Any] = {
    "noise": 4,
    "channels": (8,),
    "hidden": 16,
    "controller_hidden": 8,
    "critic_hidden": 8,
}
SIDE_TALL = CausalGraph.from_edges(["side", "tall"], [("side", "tall")])


MODES = np.zeros((4, 1, 8, 8))  # short and tall on the left, short and tall on the right
MODES[0, :, 5:, :4], MODES[1, :, 1:, :4], MODES[2, :, 5:, 4:], MODES[3, :, 1:, 4:] = (
    0.8,
    0.8,
    0.8,
    0.8,
)


@pytest.fixture(scope="module")
def blocks() -> Dataset:
    """400 images of a block: side -> tall, P(side) = 0.4, P(tall | side) = 0.8 or 0.2."""
    rng = np.random.default_rng(0)
    side = (rng.random(400) < 0.4).astype(int)
    tall = (rng.random(400) < np.where(side, 0.8, 0.2)).astype(int)
    pictures = MODES[2 * side + tall] * rng.uniform(0.75, 1.25, size=(400, 1, 1, 1))
    labels = np.stack([side, tall], axis=1).astype(float)
    return build_dataset(
        "blocks",
        (255 * pictures).astype(np.uint8),
        labels,
        [Variable("side", "binary"), Variable("tall", "binary")],
        test=0.1,
    )


@pytest.fixture(scope="module")
def trained(blocks: Dataset) -> tuple[CausalGAN, list[dict[str, Any]]]:
    settings = {
        "noise": 8,
        "channels": (16,),
        "hidden": 64,
        "epochs": 60,
        "controller_epochs": 12,
        "controller_batches": 16,
        "anti_labeler_steps": 300.0,
    }
    model = CausalGAN(blocks.spec, graph=SIDE_TALL, **settings)
    return model, model.fit(blocks, seed=3).history


def cells(labels: Tensor) -> np.ndarray:
    """Return the frequencies of the four values of (side, tall)."""
    return np.bincount((labels @ torch.tensor([2.0, 1.0])).long().numpy(), minlength=4) / len(
        labels
    )


def check_not_collapsed(pictures: Tensor, data: Dataset) -> None:
    """Assert 70% of the diversity of the data, and a third of the frequency of each mode."""
    assert float(diversity(pictures.numpy(), data.train.images.numpy() / 255)) > 0.7
    shares = np.array(list(mode_shares(pictures.numpy(), MODES).per_variable.values()))
    assert (shares > cells(data.train.labels) / 3).all()


def test_the_losses_of_all_players_stay_finite(trained: Any) -> None:
    _, history = trained
    assert [line["phase"] for line in history] == ["labels"] * 12 + ["pictures"] * 60
    for line in history:
        assert np.isfinite([*line["train"].values(), *line["validation"].values()]).all()
    assert {"critic.penalty", "controller.loss"} <= set(history[0]["train"])
    assert {
        "readers.labeler",
        "readers.anti_labeler",
        "generator.labeler",
        "generator.anti_labeler",
    } <= set(history[-1]["train"])


def test_the_controller_learns_the_distribution_of_the_labels(
    trained: Any, blocks: Dataset
) -> None:
    """Total variation to the training labels, also of an untrained controller."""
    model, _ = trained

    def total_variation(model: CausalGAN) -> float:
        return float(
            np.abs(cells(model.sample_labels(20000, seed=0)) - cells(blocks.train.labels)).sum() / 2
        )

    assert total_variation(model) < 0.05
    assert total_variation(CausalGAN(blocks.spec, graph=SIDE_TALL, **TINY)) > 0.2


def test_the_learned_controller_answers_do_and_evidence(trained: Any, blocks: Dataset) -> None:
    model, labels = trained[0], blocks.train.labels
    before = model.sample_labels(10000, seed=0)
    for side in (0, 1):
        expected = (
            labels[labels[:, 0] == side, 1].mean().item()
        )  # P(tall | side) = P(tall | do(side))
        assert model.sample_labels(10000, {"side": side}, seed=0)[
            :, 1
        ].mean().item() == pytest.approx(expected, abs=0.08)
    assert torch.equal(model.sample_labels(10000, {"tall": 1}, seed=0)[:, 0], before[:, 0])
    frequency = model.sample_labels(10000, evidence={"tall": 1}, seed=0)[:, 0].mean().item()
    assert frequency == pytest.approx(
        before[before[:, 1] == 1, 0].mean().item(), abs=0.03
    )  # Bayes on the controller's distribution


def test_the_generator_does_not_collapse(trained: Any, blocks: Dataset) -> None:
    check_not_collapsed(trained[0].sample(400, seed=0), blocks)


def test_a_collapsed_generator_fails_the_check(trained: Any, blocks: Dataset) -> None:
    pictures = trained[0].sample(400, seed=0)
    tall_on_the_left = trained[0].sample_labels(400, seed=0) @ torch.tensor([2.0, 1.0]) == 1
    for collapsed in (
        pictures[:1].expand(400, -1, -1, -1),
        pictures[~tall_on_the_left],
    ):  # one image; a missing mode
        with pytest.raises(AssertionError):
            check_not_collapsed(collapsed, blocks)


def test_images_follow_their_labels_under_do(trained: Any, blocks: Dataset) -> None:
    """The nearest mode of an image is that of its labels."""
    model, _ = trained
    for do in ({}, {"side": 1}, {"side": 0, "tall": 1}):
        shown = (
            ((model.sample(400, do, seed=3)[:, None] - torch.as_tensor(MODES)) ** 2)
            .sum((2, 3, 4))
            .argmin(1)
        )
        expected = model.sample_labels(400, do, seed=3) @ torch.tensor([2.0, 1.0])
        assert (shown == expected).float().mean() > 0.9, do
    estimates = model.encode(blocks.test.images)[..., 0]
    assert estimates.abs().max() <= 1
    assert ((estimates > 0) == (blocks.test.labels > 0.5)).float().mean() > 0.95


def test_training_on_images_does_not_change_the_controller(blocks: Dataset) -> None:
    states = []
    for epochs in (0, 1):
        model = CausalGAN(
            blocks.spec,
            graph=SIDE_TALL,
            **TINY,
            epochs=epochs,
            controller_epochs=1,
            controller_batches=2,
        )
        model.fit(blocks, seed=0)
        states.append(model.controller.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
