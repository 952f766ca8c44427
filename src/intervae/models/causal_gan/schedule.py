"""Training of CausalGAN: the controller on labels alone, then the images."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from intervae.data import Dataset, Split
from intervae.models.phases import Phase, Player
from intervae.nets.norm import update_statistics

if TYPE_CHECKING:
    from intervae.models.causal_gan.model import CausalGAN

CONTROLLER_BETAS = (0.5, 0.9)  # of Adam for the controller and its critic


def training_phases(model: CausalGAN) -> list[Phase]:
    """Return the phase of the controller, then that of the images with a fixed controller."""
    settings, betas = model.settings, (model.settings.momentum, 0.999)
    critic = Player(
        model.critic_loss,
        ("critic.",),
        "critic",
        learning_rate=settings.controller_rate,
        betas=CONTROLLER_BETAS,
        steps=settings.critic_steps,
    )
    controller = Player(
        model.controller_loss,
        ("controller.",),
        "controller",
        learning_rate=settings.controller_rate,
        betas=CONTROLLER_BETAS,
    )
    rows = settings.controller_batches * settings.controller_batch
    labels = Phase(
        "labels",
        (critic, controller),
        epochs=settings.controller_epochs,
        batch_size=settings.controller_batch,
        schedule="cosine",
        prepare=lambda data, seed: labels_only(data, rows),
        replaces_data=True,
    )
    discriminators = Player(
        model.discriminators_loss,
        ("discriminator.", "labeler.", "anti_labeler."),
        "readers",  # the key in the metrics.jsonl of earlier runs
        learning_rate=settings.discriminator_rate,
        betas=betas,
    )
    generator = Player(
        model.loss,
        ("generator.",),
        "generator",
        learning_rate=settings.generator_rate,
        betas=betas,
        steps=settings.generator_steps,
    )
    images = Phase(
        "pictures",
        (discriminators, generator),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        after_step=lambda: update_statistics(model.generator),
    )
    return [labels, images]


def labels_only(data: Dataset, rows: int) -> Dataset:
    """Return data without images, its training labels repeated to at least `rows` rows."""
    repeats = math.ceil(rows / len(data.train))
    return replace(
        data,
        train=Split(labels=data.train.labels.repeat(repeats, 1)),
        validation=Split(labels=data.validation.labels),
    )
