"""Settings of the causal-prior VAE and its temporal form; the paper's symbols are in brackets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from intervae.causal.sem import DivergenceKind
from intervae.errors import UsageError
from intervae.models.phases import Optimiser, Schedule
from intervae.settings import check_minimum, setting


@dataclass(frozen=True)
class CausalPriorVAESettings:
    """Settings of the causal-prior VAE; the default prior is the parabola z1 = z0^2 + n1."""

    latents: int = setting(5, "number of latent variables [d]")
    form: Literal["linear", "quadratic", "mlp"] = setting("quadratic", "form of the mechanisms f_i")
    edges: tuple[str, ...] = setting(
        ("z0->z1",), "allowed edges; all: every edge to a later latent; none: prior N(0, I)"
    )
    learn_edges: bool = setting(False, "learned edge probabilities (Gumbel masks)")
    sparsity: float = setting(0.0, "weight of the expected number of edges [lambda]")
    scales: tuple[float, ...] = setting(
        (1.0, 0.5), "standard deviations of the noises, 1 for the remaining latents [sigma]"
    )
    learn_scales: bool = setting(False, "learned noise scales", advanced=True)
    divergence: DivergenceKind = setting("tangent", "estimator of KL(q || SEM)")
    pivots: int = setting(
        300, "number of pivots of the local and mixture estimators", advanced=True
    )
    covariance: Literal["full", "diagonal"] = setting(
        "full", "covariance of the posterior", advanced=True
    )
    widths: tuple[int, ...] = setting(
        (64, 64, 64), "hidden layer widths of encoder and decoder", advanced=True
    )
    reconstruction_weight: float = setting(
        1.0,
        "weight of the squared error; use (64 / size)^2 to make beta comparable across image sizes",
    )
    beta: float = setting(1.0, "weight of KL(q || SEM)")
    first_beta: float = setting(
        0.05,
        "weight of KL(q || N(0, I)) in the positions phase, the first of the curriculum",
        advanced=True,
    )
    curriculum: bool = setting(
        True,
        "phases before the SEM prior: positions (several networks, isotropic prior, only latents "
        "with edges) and alignment (affine map onto the SEM); the paper has false",
        advanced=True,
    )
    isotropic: bool = setting(
        False, "control: N(0, I) instead of the SEM as prior after the alignment", advanced=True
    )
    gate_steps: int = setting(
        400, "steps over which latents without edges are faded in", advanced=True
    )
    restarts: int = setting(24, "networks trained in the positions phase", advanced=True)
    first_epochs: int = setting(6, "epochs of the positions phase", advanced=True)
    finalists: int = setting(6, "networks trained in the trial phase", advanced=True)
    trial_epochs: int = setting(6, "epochs of the trial phase", advanced=True)
    epochs: int = setting(24, "epochs of the last phase, with the SEM prior")
    unmix: bool = setting(
        False,
        "noises of latents without effects rotated to independent ones after a training with the "
        "curriculum",
        advanced=True,
    )
    batch_size: int = setting(100, "images per step")
    optimiser: Optimiser = setting("adam", "optimiser; the paper has adagrad", advanced=True)
    learning_rate: float = setting(2e-3, "learning rate; the paper has 3e-3")
    schedule: Schedule = setting("cosine", "learning rate schedule", advanced=True)

    def __post_init__(self) -> None:
        counts = (self.latents, self.pivots, self.gate_steps, self.restarts, self.finalists)
        if min(counts) < 1 or any(scale <= 0 for scale in self.scales):
            raise UsageError(
                "latents, pivots, gate_steps, restarts and finalists must be 1 or more, "
                "and scales larger than 0."
            )
        if min(self.beta, self.first_beta, self.sparsity, self.reconstruction_weight) < 0:
            raise UsageError(
                "beta, first_beta, sparsity and reconstruction_weight are weights of a loss "
                "and must not be negative."
            )
        # without edges the prior is N(0, I) and `scales` is not used
        if self.edges and len(self.scales) > self.latents:
            raise UsageError(
                f"{len(self.scales)} scales were given for {self.latents} latents; "
                "give one each at most."
            )


@dataclass(frozen=True)
class TemporalCausalPriorVAESettings:
    """Settings of the temporal causal-prior VAE."""

    removed: ClassVar[Mapping[str, Any]] = {"sparsity_from": 0, "temperature": 0.5, "scale": 1.0}

    latents: int = setting(4, "latent variables per frame [k]")
    window: int = setting(3, "frames of the SEM [W]")
    background: Literal["given", "median"] = setting(
        "median", "background image: the field `background` of the data, or the pixelwise median"
    )
    intercepts: bool = setting(
        False, "a constant in each equation, as acceleration needs; the paper has none"
    )
    background_size: int = setting(8, "length of the background code [c]", advanced=True)
    network: Literal["mlp", "conv"] = setting("mlp", "type of the encoders and the decoder")
    widths: tuple[int, ...] = setting((128, 128), "hidden layer widths of the mlp", advanced=True)
    channels: tuple[int, ...] = setting(
        (32, 32, 64, 64), "channels of the convolutions; each layer halves the image", advanced=True
    )
    hidden: int = setting(128, "units of the dense layer of the conv network", advanced=True)
    reconstruction_weight: float = setting(10.0, "weight of the squared errors")
    beta: float = setting(1.0, "weight of KL(q || SEM) after the warm-up")
    warm_up: int = setting(1500, "steps over which beta rises from 0; 0: none", advanced=True)
    divergence: Literal["exact", "local_min"] = setting(
        "exact", "KL(q || SEM): exact, as the SEM is linear, or the paper's closest local Gaussian"
    )
    pivots: int = setting(100, "number of pivots of local_min", advanced=True)
    selection: Literal["path", "gumbel"] = setting(
        "path", "graph selection: pruning path of one training, or the paper's Gumbel masks"
    )
    tolerance: float = setting(
        0.1,
        "fraction of the edges' total error reduction that a sparser graph may lose (path)",
        advanced=True,
    )
    rounds: int = setting(2, "rounds of graph selection and refitting (path)", advanced=True)
    sparsity: float = setting(5.0, "weight of the expected number of edges [lambda] (gumbel)")
    epochs: int = setting(60, "epochs with all edges, or with Gumbel masks")
    refit_epochs: int = setting(10, "epochs with fixed edges, per round; 0 for none")
    refit_coefficients: bool = setting(
        True,
        "coefficients and noise scales fitted to the latents once the edges are fixed; the paper "
        "has false",
        advanced=True,
    )
    batch_size: int = setting(100, "clips per step")
    optimiser: Optimiser = setting("adam", "optimiser; the paper has adagrad", advanced=True)
    learning_rate: float = setting(2e-3, "learning rate")
    schedule: Schedule = setting("constant", "learning rate schedule", advanced=True)

    def __post_init__(self) -> None:
        if min(self.latents, self.window - 1, self.background_size, self.pivots) < 1:
            raise UsageError(
                "latents, background_size and pivots must be 1 or more, window 2 or more."
            )
        check_minimum(self, warm_up=0, refit_epochs=0)
        weights = (self.beta, self.sparsity, self.reconstruction_weight)
        if self.rounds < 1 or not 0 <= self.tolerance < 1 or min(weights) < 0:
            raise UsageError(
                "rounds must be 1 or more, tolerance from 0 to less than 1, "
                "and beta, sparsity and reconstruction_weight not negative."
            )


def allowed_edges(edges: tuple[str, ...], names: tuple[str, ...]) -> Tensor:
    """(d, d) of 0 and 1 from texts like "z0->z1"; ("all",) is every edge to a later variable."""
    d = len(names)
    if edges == ("all",) and d < 2:
        raise UsageError("edges=all needs two latents or more; raise latents, or give no edges.")
    if edges == ("all",):
        return torch.ones(d, d).triu(1)
    allowed = torch.zeros(d, d)
    for edge in edges:
        cause, arrow, effect = (word.strip() for word in edge.partition("->"))
        valid = arrow and cause in names and effect in names
        if not valid or names.index(cause) >= names.index(effect):
            raise UsageError(
                f"edge {edge!r} must be like z0->z1, from an earlier to a later one "
                f"of {', '.join(names)}."
            )
        allowed[names.index(cause), names.index(effect)] = 1
    return allowed
