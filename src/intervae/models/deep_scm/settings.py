"""Settings of the deep structural causal model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intervae.errors import UsageError
from intervae.nets.hierarchical_vae import LatentNoise
from intervae.nets.likelihood import PixelFamily
from intervae.nets.pictures import Picture
from intervae.settings import check_minimum, setting

GraphSource = Literal[
    "auto", "independence", "lagrangian", "notears-mlp", "ges-generalised", "empty", "given"
]


@dataclass(frozen=True)
class DeepSCMSettings:
    """Settings of DeepSCM: graph, picture mechanism, temperatures of queries, optimisation."""

    # the constructor resolves "auto"; a run stores the resolved method
    graph: GraphSource = setting(
        "auto",
        "source of the graph: a discovery method, no edges (empty), or known (given); auto: "
        "independence, or lagrangian with binary labels",
    )
    picture: Picture = setting(
        "vae",
        "picture mechanism: one vector latent, a hierarchy of latent maps, or a flow between "
        "noise and picture",
    )
    latents: int = setting(16, "dims of z (vae), channels of z in every layer (hvae)")
    latent_temperature: float = setting(
        0.0,
        "spread of the abducted z in counterfactuals, relative to its posterior; 0: its mean; "
        "nothing is drawn with a flow",
    )
    pixel_temperature: float = setting(
        0.0, "share of the abducted pixel noise in counterfactuals; 1 returns pictures exactly"
    )
    epochs: int = setting(100, "maximum number of epochs")
    batch_size: int = setting(64, "images per step")
    learning_rate: float = setting(1e-3, "learning rate")
    kl_weight: float = setting(1.0, "weight of KL(q(z) || p(z)) after the warm-up")
    first_kl_weight: float = setting(
        1.0, "weight of KL(q(z) || p(z)) at the start of training", advanced=True
    )
    first_fine_kl_factor: float = setting(
        1.0,
        "times the weight of the finest latents of the hvae at the start; geometric in between",
        advanced=True,
    )
    warm_up: float = setting(
        0.5, "fraction of the training over which the weight of the KL changes", advanced=True
    )
    counterfactual_weight: float = setting(
        0.0,
        "weight of reading the new values on pictures under do(); 0 for none",
        advanced=True,
    )
    counterfactual_start: float = setting(
        0.1, "fraction of the training before that weight counts", advanced=True
    )
    channels: tuple[int, ...] = setting(
        (32, 32, 64, 64), "channels of the convolutions of the vae and the predictor", advanced=True
    )
    hidden: int = setting(
        256, "units of the dense layers of the vae and the predictor", advanced=True
    )
    widths: tuple[int, ...] = setting(
        (16, 32, 64, 160, 320), "channels per resolution of the hvae, finest first", advanced=True
    )
    layers: tuple[int, ...] = setting(
        (4,), "stochastic layers per resolution of the hvae, finest first", advanced=True
    )
    encoder_blocks: tuple[int, ...] = setting(
        (3,), "encoder blocks per resolution of the hvae, finest first", advanced=True
    )
    patch: int | None = setting(
        None,
        "side of the squares of pixels in the finest maps of hvae and flow; 2 is faster than 1; "
        "none: 1 (hvae), 2 (flow)",
        advanced=True,
    )
    parent_scales: bool = setting(
        False, "variables also scale the channels of the hvae, not only add to them", advanced=True
    )
    dense_coarsest: bool = setting(
        False,
        "dense layers between the 1x1 maps of the hvae and the next, so that classes have shapes "
        "early; not in the papers",
        advanced=True,
    )
    latent_noise: LatentNoise = setting(
        "standardised",
        "what do() keeps of a latent of the hvae: its noise under the prior, or its value (papers)",
        advanced=True,
    )
    flow_widths: tuple[int, ...] = setting(
        (32, 64, 128), "channels per resolution of the flow, finest first", advanced=True
    )
    flow_steps: int = setting(
        20, "steps of the flow's solver between noise and picture", advanced=True
    )
    flow_noise_share: float = setting(
        0.02, "share of noise in a picture at the start of the flow's abduction", advanced=True
    )
    flow_guidance: float = setting(
        1.0, "factor of what a class that do() changed adds to the flow's velocity; 1 for none"
    )
    flow_hidden_classes: float = setting(
        0.0,
        "share of training pictures in which a class is hidden from the flow; guidance needs some",
        advanced=True,
    )
    flow_confidence: float = setting(
        0.0,
        "probability of the new classes, by the predictor, at which the guidance of a picture "
        "stops to rise from 1 to flow_guidance; 0: flow_guidance at once",
    )
    corrections: int = setting(
        0,
        "times that the predictor reads the numbers of a picture under do(), and the picture is "
        "made again with what is missing added; each takes a prediction more",
    )
    mirrored: bool = setting(
        False, "mirrors half of the training pictures; only where left and right mean nothing"
    )
    likelihood: PixelFamily = setting("logistic", "distribution of the pixel noise", advanced=True)
    pixel_scale: Literal["channel", "pixel"] = setting(
        "channel", "scale of the pixel noise: one per channel, or one per pixel", advanced=True
    )
    picture_parents: tuple[str, ...] = setting(
        (), "variables that the picture depends on directly; none named: all", advanced=True
    )
    predictor_dropout: float | None = setting(
        None,
        "share of the predictor's features dropped in training; none: 0.5 if all variables are "
        "classes, else 0",
        advanced=True,
    )
    mechanism_hidden: int = setting(64, "units of each layer of the mechanisms", advanced=True)
    mechanism_layers: int = setting(2, "hidden layers of the mechanisms", advanced=True)
    bins: int = setting(8, "bins of the spline of a continuous variable", advanced=True)
    weight_decay: float = setting(0.01, "weight decay of AdamW", advanced=True)
    clip: float = setting(
        200.0, "largest gradient norm of pictures, predictor and variables, each", advanced=True
    )
    averaging: float = setting(
        0.999, "decay of the averaged weights that queries use; 0 for none", advanced=True
    )
    patience: int | None = setting(
        None, "epochs without a lower validation loss before stopping; none disables", advanced=True
    )

    def __post_init__(self) -> None:
        check_minimum(self, latents=1, hidden=1, mechanism_hidden=1, mechanism_layers=0, bins=2)
        check_minimum(self, latent_temperature=0, pixel_temperature=0, warm_up=0)
        check_minimum(self, weight_decay=0, counterfactual_weight=0, counterfactual_start=0)
        check_minimum(self, corrections=0)
        for name in ("clip", "kl_weight", "first_kl_weight", "first_fine_kl_factor"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")
        for name in ("averaging", "flow_confidence", "predictor_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UsageError(f"{name}={value} must be at least 0 and below 1.")
