"""Settings of CausalGAN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from intervae.errors import UsageError
from intervae.settings import check_minimum, setting


@dataclass(frozen=True)
class CausalGANSettings:
    """Settings of CausalGAN; the paper's symbols in brackets."""

    renamed: ClassVar[Mapping[str, str]] = {"reader_rate": "discriminator_rate"}

    controller_noise: int = setting(
        10, "noise inputs of each label's network, uniform in (-1, 1)", advanced=True
    )
    controller_layers: int = setting(
        2, "hidden layers of the label networks and of the critic", advanced=True
    )
    controller_hidden: int = setting(32, "hidden units of the label networks", advanced=True)
    critic_hidden: int = setting(64, "hidden units of the critic", advanced=True)
    critic_steps: int = setting(5, "critic steps per controller step", advanced=True)
    penalty_weight: float = setting(
        0.1, "weight of the critic's gradient penalty [lambda]", advanced=True
    )
    controller_rate: float = setting(3e-3, "learning rate of the controller and its critic")
    controller_batch: int = setting(128, "rows of labels per controller step", advanced=True)
    controller_batches: int = setting(
        32, "minimum batches per controller epoch; few labels are repeated", advanced=True
    )
    controller_epochs: int = setting(40, "epochs of the controller, before those of the images")
    noise: int = setting(100, "noise inputs of the generator, uniform in (-1, 1) [z]")
    channels: tuple[int, ...] = setting(
        (64, 128, 256, 512),
        "channels of the discriminator and the labelers; the generator mirrors them",
    )
    hidden: int = setting(512, "units of the dense layers")
    anti_labeler_steps: float = setting(
        3000.0, "steps after which the weight of the anti-labeler is 1 / e", advanced=True
    )
    generator_steps: int = setting(1, "generator steps per discriminator step", advanced=True)
    epochs: int = setting(100, "maximum number of epochs")
    batch_size: int = setting(64, "images per step")
    generator_rate: float = setting(1e-3, "learning rate of the generator")
    discriminator_rate: float = setting(2e-4, "learning rate of the discriminator and the labelers")
    momentum: float = setting(0.5, "beta_1 of Adam", advanced=True)

    def __post_init__(self) -> None:
        check_minimum(
            self,
            controller_noise=1,
            controller_layers=1,
            controller_hidden=1,
            critic_hidden=1,
            critic_steps=1,
            controller_batches=1,
        )
        check_minimum(self, noise=1, generator_steps=1, penalty_weight=0)
        if self.anti_labeler_steps <= 0:
            raise UsageError(f"anti_labeler_steps={self.anti_labeler_steps} must be larger than 0.")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum={self.momentum} must be at least 0 and below 1.")
