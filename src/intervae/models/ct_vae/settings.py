"""Settings of MCQ-VAE, VQ-VAE and CT-VAE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from intervae.errors import UsageError
from intervae.models.phases import Optimiser, Schedule
from intervae.nets.likelihood import Likelihood
from intervae.settings import check_minimum, setting

LARGEST_CODEBOOK = 2**15  # code numbers are stored in 16 bits


@dataclass(frozen=True)
class MCQVAESettings:
    """Settings of the quantised autoencoder."""

    codebooks: int = setting(4, "number of codebooks; each codes a part of the features [K]")
    codes: int = setting(64, "codes per codebook [S]")
    features: int = setting(128, "feature dims per position, split among the codebooks [D]")
    patch: int = setting(8, "patch size in pixels; each patch is one position of the code grid")
    filters: int = setting(256, "channels of encoder and decoder")
    blocks: int = setting(2, "residual blocks in encoder and in decoder", advanced=True)
    network: Literal["patches", "strided"] = setting(
        "patches",
        "encoder and decoder: a dense layer per patch, or convolutions of stride 2 (authors' code; "
        "patch is then a power of 2, and reach is wide)",
        advanced=True,
    )
    reach: Literal["local", "near", "wide"] = setting(
        "local",
        "receptive field of a code: its patch, also the adjacent ones, or all of them",
        advanced=True,
    )
    commitment: float = setting(
        0.25, "weight of the commitment loss, in units of squared pixel error", advanced=True
    )
    code_update: Literal["average", "gradient"] = setting(
        "average",
        "codes as moving averages of the features, or moved by the codebook loss (VQ-VAE)",
        advanced=True,
    )
    code_decay: float = setting(0.99, "decay of the codes' moving averages", advanced=True)
    restart: float = setting(
        0.1, "fraction of mean usage below which a code restarts; 0 for never", advanced=True
    )
    likelihood: Likelihood = setting("bernoulli", "pixel likelihood", advanced=True)
    scale: float = setting(0.1, "scale of a gaussian or laplace likelihood", advanced=True)
    epochs: int = setting(20, "epochs of encoder, decoder and codebooks")
    batch_size: int = setting(64, "images per step")
    learning_rate: float = setting(3e-3, "learning rate of encoder and decoder")
    schedule: Schedule = setting("cosine", "learning rate schedule", advanced=True)
    decay: float = setting(
        1.0, "learning rate factor per epoch with schedule=exponential", advanced=True
    )
    clip: float | None = setting(10.0, "maximum gradient norm; none disables", advanced=True)

    def __post_init__(self) -> None:
        check_minimum(self, codebooks=1, codes=2, features=1, patch=1)
        check_minimum(self, filters=1, blocks=0, commitment=0, restart=0)
        if self.codes > LARGEST_CODEBOOK:
            raise UsageError(
                f"codes={self.codes}: a codebook holds {LARGEST_CODEBOOK} codes at most."
            )
        if self.features % self.codebooks:
            raise UsageError(
                f"features={self.features} is not divisible by codebooks={self.codebooks}; "
                "use a multiple of codebooks."
            )
        if self.scale <= 0 or (self.clip is not None and self.clip <= 0):
            raise UsageError(f"scale={self.scale} and clip={self.clip} must be larger than 0.")
        if self.network == "strided" and self.patch & (self.patch - 1):
            raise UsageError(f"patch={self.patch} must be a power of 2 with network=strided.")
        if not 0 <= self.code_decay < 1:
            raise UsageError(f"code_decay={self.code_decay} must be at least 0 and below 1.")


@dataclass(frozen=True)
class VQVAESettings(MCQVAESettings):
    """Settings of the VQ-VAE, which has one codebook."""

    codebooks: int = setting(1, "number of codebooks, 1 for vq-vae [K]", advanced=True)
    codes: int = setting(512, "codes in the codebook [S]")


@dataclass(frozen=True)
class CTVAESettings(MCQVAESettings):
    """Settings of the codebooks (see `MCQVAESettings`) and of the transition layer."""

    renamed: ClassVar[Mapping[str, str]] = {
        "attribution": "attribution_weight",
        "standard": "standard_weight",
        "identity": "identity_weight",
        "picture_epochs": "decoder_epochs",
        "picture_rate": "decoder_rate",
    }
    removed: ClassVar[Mapping[str, Any]] = {
        "temperature": 1.0,
        "mask_norm": 0.0,
        "exchange": 0.0,
    }

    codebooks: int = setting(
        1, "number of codebooks; each codes a part of the features [K]", advanced=True
    )
    codes: int = setting(512, "codes per codebook [S]")
    features: int = setting(
        128, "feature dims per position, split among the codebooks [D]", advanced=True
    )
    filters: int = setting(256, "channels of encoder and decoder", advanced=True)
    learning_rate: float = setting(3e-3, "learning rate of encoder and decoder", advanced=True)
    width: int = setting(128, "features per node of the transition layer")
    heads: int = setting(4, "attention heads", advanced=True)
    rounds: int = setting(2, "attention layers from each predicted code to its parents")
    hidden: int = setting(
        2, "hidden units of the feed-forward layers, in multiples of width", advanced=True
    )
    edge_network: Literal["product", "mlp"] = setting(
        "product",
        "edge scores: the product of two linear maps, or an MLP of each pair of nodes (Eq. 3)",
        advanced=True,
    )
    edge_width: int = setting(
        32, "features of the edge networks; hidden units with edge_network=mlp", advanced=True
    )
    graph_samples: int = setting(
        0, "sampled graphs that queries average over; 0 for the expected graph", advanced=True
    )
    noise: int = setting(
        0, "noise dims per node; 0 if an action has only one outcome [z]", advanced=True
    )
    causal_share: float = setting(
        0.25,
        "fraction of each batch scored under all actions; the rest only under the true one",
        advanced=True,
    )
    attribution_weight: float = setting(0.3, "weight of the causal mode, Eq. 10", advanced=True)
    standard_weight: float = setting(0.1, "weight of the standard mode, Eq. 6", advanced=True)
    identity_weight: float = setting(
        1e-3, "weight of the identity losses, Eq. 7 and 8", advanced=True
    )
    edge_prior: float = setting(0.5, "prior probability of an edge", advanced=True)
    edge_kl: float = setting(
        1e-3, "weight of the KL divergence from the edge prior, Eq. 11-13", advanced=True
    )
    edge_norm: float = setting(1e-3, "weight of the number of edges, Eq. 14", advanced=True)
    dependency: float = setting(
        0.1, "weight of the at-least-one-parent loss, Eq. 15", advanced=True
    )
    dependency_form: Literal["log", "squared"] = setting(
        "log",
        "at-least-one-parent loss: -log P(a parent), or P(no parent)^2 as printed in Eq. 15",
        advanced=True,
    )
    masked_action: bool = setting(
        False,
        "whether an action reaches only the variables whose intervention mask is open",
        advanced=True,
    )
    sparse_epochs: int = setting(
        0,
        "epochs that close edges and masks to their shares; queries then use graphs of 0 and 1",
        advanced=True,
    )
    edge_share: float = setting(
        0.1, "largest mean fraction of open edges after the sparse epochs", advanced=True
    )
    mask_share: float | None = setting(
        None,
        "largest mean fraction of open masks after them; none: that of the codes that change",
        advanced=True,
    )
    gate_rate: float = setting(
        0.05, "learning rate of the biases of edges and masks in these epochs", advanced=True
    )
    transition_epochs: int = setting(40, "epochs of the transition layer")
    transition_batch: int = setting(128, "pairs per step of the transition layer")
    transition_optimiser: Optimiser = setting(
        "muon", "optimiser of the transition layer", advanced=True
    )
    transition_rate: float = setting(0.012, "learning rate of the transition layer", advanced=True)
    transition_schedule: Schedule = setting(
        "cosine", "learning rate schedule of the transition layer", advanced=True
    )
    transition_decay: float = setting(
        1.0, "its learning rate factor per epoch (transition_schedule=exponential)", advanced=True
    )
    weight_decay: float = setting(0.01, "weight decay of the transition layer", advanced=True)
    mirror: tuple[str, ...] = setting(
        (), "factors whose two actions swap in a mirror image; enables mirrored training pairs"
    )
    shift: int = setting(0, "shift of augmented training pairs, in pixels", advanced=True)
    decoded_codes: Literal["mean", "probable"] = setting(
        "mean",
        "codes that act() decodes: their expected vectors, or the most probable codes",
        advanced=True,
    )
    decoder_epochs: int = setting(2, "epochs that train the decoder on predicted codes")
    decoder_rate: float = setting(
        5e-4, "learning rate of the decoder on predicted codes", advanced=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, width=1, heads=1, rounds=0, hidden=1, edge_width=1, noise=0)
        check_minimum(self, attribution_weight=0, standard_weight=0, identity_weight=0)
        check_minimum(self, edge_kl=0, edge_norm=0, dependency=0, graph_samples=0)
        check_minimum(self, transition_batch=1, weight_decay=0, shift=0, decoder_epochs=0)
        check_minimum(self, sparse_epochs=0)
        for name in ("edge_share", "mask_share"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise UsageError(f"{name}={share} must be above 0 and at most 1.")
        if self.width % self.heads:
            raise UsageError(
                f"width={self.width} is not divisible by heads={self.heads}; "
                "use a multiple of heads."
            )
        if not 0 < self.causal_share <= 1:
            raise UsageError(f"causal_share={self.causal_share} must be above 0 and at most 1.")
        if not 0 < self.edge_prior < 1:
            raise UsageError(f"edge_prior={self.edge_prior} must lie between 0 and 1.")
