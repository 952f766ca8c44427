"""Settings of the Ladder VAE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from intervae.errors import UsageError
from intervae.models.phases import Schedule
from intervae.nets.likelihood import Likelihood
from intervae.settings import check_minimum, setting


@dataclass(frozen=True)
class LadderVAESettings:
    """Settings of the Ladder VAE; sizes are listed from the image upwards, symbols in brackets."""

    renamed: ClassVar[Mapping[str, str]] = {
        "share": "share_generative",
        "upward": "upward_input",
    }

    latents: tuple[int, ...] = setting((64, 32, 16, 8, 4), "latent units of each layer")
    widths: tuple[int, ...] = setting(
        (512, 256, 128, 64, 32), "hidden units of the networks of each layer"
    )
    inference: Literal["ladder", "bottom-up"] = setting(
        "ladder", "inference model; bottom-up is the hierarchical VAE"
    )
    batch_norm: bool = setting(True, "batch normalisation after every dense layer")
    warm_up: int = setting(
        200, "epochs over which the weight of the KL rises from 0 to 1; 0: no warm-up [N_t]"
    )
    share_generative: bool = setting(
        True,
        "merge q with the generative p; false: with separate top-down networks",
        advanced=True,
    )
    upward_input: Literal["hidden", "mean"] = setting(
        "hidden",
        "input of the next layer up: hidden units (Eq. 19) or means (authors' commands)",
        advanced=True,
    )
    network: Literal["mlp", "conv"] = setting("mlp", "network between image and z_1")
    channels: tuple[int, ...] = setting((32, 32, 64, 64), "channels of the conv network")
    binarise: bool = setting(
        False, "pixels drawn as 0 or 1 with their grey value as probability, anew at every step"
    )
    likelihood: Likelihood = setting("bernoulli", "pixel likelihood")
    scale: float = setting(
        0.1, "scale of a gaussian or laplace likelihood; 0: learned gaussian variances"
    )
    activation: Literal["leaky", "tanh"] = setting(
        "leaky", "activation of the hidden units", advanced=True
    )
    importance_samples: int = setting(
        1, "importance samples of the training bound [IW]", advanced=True
    )
    monte_carlo_samples: int = setting(
        1, "Monte Carlo samples of the training bound [MC]", advanced=True
    )
    fine_tuning_epochs: int = setting(
        0, "epochs of a second training phase, without warm-up; 0: no such phase"
    )
    fine_tuning_rate: float = setting(
        1e-3, "learning rate at the start of the fine-tuning", advanced=True
    )
    fine_tuning_decay: float = setting(
        0.99856,
        "learning rate factor per epoch of the fine-tuning; 0.75 after 200 epochs",
        advanced=True,
    )
    fine_tuning_importance_samples: int = setting(
        1, "importance samples of the fine-tuning [IW]", advanced=True
    )
    fine_tuning_monte_carlo_samples: int = setting(
        10, "Monte Carlo samples of the fine-tuning [MC]", advanced=True
    )
    epochs: int = setting(600, "maximum number of epochs")
    batch_size: int = setting(256, "images per step")
    learning_rate: float = setting(1e-3, "learning rate")
    schedule: Schedule = setting("cosine", "learning rate schedule", advanced=True)
    decay: float = setting(
        1.0, "learning rate factor per epoch with schedule=exponential", advanced=True
    )
    epsilon: float = setting(1e-8, "epsilon of Adam; the authors' code has 1e-4", advanced=True)
    clip: float | None = setting(None, "maximum gradient norm; none disables", advanced=True)

    def __post_init__(self) -> None:
        if (
            not self.latents
            or min(self.latents) < 1
            or len(self.widths) < len(self.latents)
            or min(self.widths) < 1
        ):
            raise UsageError(
                f"latents={self.latents} and widths={self.widths}: "
                "give one size above 0 for each layer, in both."
            )
        check_minimum(self, warm_up=0, importance_samples=1, monte_carlo_samples=1)
        check_minimum(
            self,
            fine_tuning_epochs=0,
            fine_tuning_rate=0,
            fine_tuning_importance_samples=1,
            fine_tuning_monte_carlo_samples=1,
        )
        if self.scale < 0 or (self.scale == 0 and self.likelihood != "gaussian"):
            raise UsageError(
                f"scale={self.scale} must be larger than 0, "
                "or 0 for a gaussian likelihood with learned variances."
            )
