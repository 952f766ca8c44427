"""Settings that CausalVAE and its two reductions share; the paper's symbols are in brackets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from intervae.errors import UsageError
from intervae.models.phases import Schedule
from intervae.nets.images import Network
from intervae.nets.likelihood import Likelihood
from intervae.settings import check_minimum, setting

Decoder = Literal["joint", "per-concept", "layers"]
# settings that must be larger than 0
POSITIVE = ("dims", "latents", "scale", "prior_std", "rest_weight", "first_rest_weight")


@dataclass(frozen=True)
class ConceptSettings:
    """Settings of all three models: networks, pixel likelihood, optimisation."""

    renamed: ClassVar[Mapping[str, str]] = {"sharpness": "absolute_error_weight"}

    dims: int = setting(4, "dims per latent variable [k]")
    network: Network = setting("conv", "convolutional networks, or the authors' fully connected")
    channels: tuple[int, ...] = setting(
        (32, 32, 64, 64), "channels of the convolutions; each layer halves the image"
    )
    hidden: int = setting(256, "units of the dense layers of the conv network", advanced=True)
    decoder: Decoder = setting(
        "joint",
        "one decoder for all concepts, one per concept with averaged outputs, or painted layers",
    )
    likelihood: Likelihood = setting("bernoulli", "pixel likelihood")
    scale: float = setting(0.1, "scale of a gaussian or laplace likelihood", advanced=True)
    absolute_error_weight: float = setting(
        10.0, "weight of the absolute pixel error, added to -ELBO; the paper has 0"
    )
    epochs: int = setting(80, "maximum number of epochs")
    batch_size: int = setting(64, "images per step")
    learning_rate: float = setting(2e-3, "learning rate")
    schedule: Schedule = setting("cosine", "learning rate schedule", advanced=True)
    patience: int | None = setting(
        15, "epochs without a lower validation loss before stopping; none disables", advanced=True
    )

    def __post_init__(self) -> None:
        for name in POSITIVE:
            if getattr(self, name, 1) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")
        if getattr(self, "pixel_temperature", None) is not None:
            check_minimum(self, pixel_temperature=0)
        if not 0 <= getattr(self, "label_dropout", 0) < 1:
            raise UsageError("label_dropout must be 0 or more and less than 1.")


@dataclass(frozen=True)
class LabelSettings(ConceptSettings):
    """Settings of the models with labelled concepts: encoder inputs and the conditional prior."""

    encode_labels: bool = setting(
        False,
        "labels as a second input of the encoder [h(x, u)], dropped in `label_dropout` of images",
        advanced=True,
    )
    label_dropout: float = setting(
        0.5,
        "fraction of images encoded without their labels (encode_labels); the paper has 0",
        advanced=True,
    )
    prior_std: float = setting(
        0.03, "standard deviation of the conditional prior p(z | u) [lambda_2]; the paper has 1"
    )
    prior_weight: float = setting(1.0, "weight of KL(q(z) || p(z | u))", advanced=True)
    layers: str = setting(
        "auto", "variables of each layer, as a,b+c, or auto for a search (decoder=layers)"
    )
    layer_pixels: int | None = setting(
        256,
        "random pixels per step at which layers are evaluated; none for all",
        advanced=True,
    )
    rest: int = setting(
        0, "channels of the latent map for what no label names, kept under do(); 0 for none"
    )
    rest_width: int = setting(48, "width of the networks of that map", advanced=True)
    rest_weight: float = setting(
        0.05, "weight of KL(q(rest) || N(0, I)) at the end of training", advanced=True
    )
    first_rest_weight: float = setting(
        30.0, "weight of KL(q(rest) || N(0, I)) at the start of training", advanced=True
    )
    layer_rate: float = setting(5e-3, "learning rate of the layers", advanced=True)
    pixel_temperature: float | None = setting(
        None,
        "share of an image's own pixel noise that a counterfactual keeps, with decoder=layers "
        "where no changed layer paints; none: 1 with decoder=layers, else 0",
        advanced=True,
    )
    layer_hidden: int = setting(64, "width of the layers' networks", advanced=True)


@dataclass(frozen=True)
class CausalLayerSettings(ConceptSettings):
    """Settings of the models with a causal layer: mechanisms and the weights of their losses."""

    renamed: ClassVar[Mapping[str, str]] = {
        "mechanism_shapes_latents": "mechanism_gradient_to_latents"
    }

    mechanism_input: Literal["vector", "sum"] = setting(
        "vector",
        "input of g_i: all masked parents (paper), or their weighted sum (authors' code)",
        advanced=True,
    )
    mechanism_hidden: int = setting(64, "width of the mechanism networks g_i", advanced=True)
    noise_weight: float = setting(1.0, "weight of KL(q(eps) || N(0, I))", advanced=True)
    acyclicity_weight: float = setting(
        1.0, "weight of the acyclicity penalty H(A) [alpha]", advanced=True
    )
    mechanism_weight: float = setting(1.0, "weight of the mechanism fit l_m [gamma]", advanced=True)
    mechanism_gradient_to_latents: bool = setting(
        False, "gradients of l_m into the latents z; the paper has true", advanced=True
    )
    edge_threshold: float = setting(0.3, "minimum absolute weight in A for an edge", advanced=True)
