"""Queries that only some models answer, as protocols: `isinstance(model, Counterfactual)`.

A model has a capability exactly if it has the methods; nothing is declared twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data import Split
from intervae.discovery.edge_directions import EdgeRule


@runtime_checkable
class HasGraph(Protocol):
    """A causal graph over the model's variables."""

    @property
    def graph(self) -> CausalGraph: ...


@runtime_checkable
class MeasuresVariables(Protocol):
    """Values of the model's variables for an image, in their own units."""

    def measure(self, images: Any, labels: Any = None) -> Tensor: ...

    def to_units(self, index: int, latent: Tensor) -> Tensor: ...


@runtime_checkable
class Intervention(Protocol):
    """Latents under do()."""

    def intervene(self, latents: Tensor, do: Do) -> Tensor: ...


@runtime_checkable
class Counterfactual(Protocol):
    """Images under do(), with everything else that made them unchanged."""

    def counterfactual(self, images: Any, do: Do, labels: Any = None) -> Tensor: ...


@runtime_checkable
class KeepsPixelNoise(Protocol):
    """Counterfactuals that keep a share of what the decoder misses of an image.

    With a share of 1 and an empty do() the answer is the image itself, whatever was learned.
    """

    @property
    def pixel_temperature(self) -> float: ...

    def counterfactual(
        self, images: Any, do: Do, labels: Any = None, *, pixel_temperature: float | None = None
    ) -> Tensor: ...


@runtime_checkable
class Transition(Protocol):
    """Images after an action, and the action between two images."""

    def act(self, images: Any, action: Any) -> Tensor: ...

    def act_repeatedly(self, images: Any, action: Any, times: int) -> Tensor: ...

    def attribute(self, before: Any, after: Any) -> Tensor: ...

    def explain(self, before: Any, after: Any) -> Any: ...

    def best_explanation(self, before: Any, after: Any) -> list[str]: ...


@runtime_checkable
class Traversal(Protocol):
    """Images of given noises, passed through the mechanisms."""

    def traverse(self, noises: Any) -> Tensor: ...


@runtime_checkable
class Temporal(Protocol):
    """Frames that follow those of a clip."""

    def extrapolate(self, frames: Any, steps: int) -> Tensor: ...

    def latents_over_time(self, frames: Any, do: Do) -> dict[str, Any]: ...


@runtime_checkable
class TableLinks(HasGraph, Counterfactual, Protocol):
    """Links between latents of images and columns of a table: all that a report uses.

    Shapes: m latents, d columns, p = m + d nodes in this order.
    """

    @property
    def node_names(self) -> tuple[str, ...]: ...

    @property
    def edge_rule(self) -> EdgeRule: ...

    @property
    def edge_strengths(self) -> Tensor:
        """(p, p) strengths of all edges, before the threshold of `graph`."""

    @property
    def latent_mean(self) -> Tensor:
        """(m,) means of the latents."""

    @property
    def latent_std(self) -> Tensor:
        """(m,) standard deviations of the latents."""

    def effect_curve(self, effect: str, causes: Mapping[str, Any]) -> Tensor:
        """Mechanism of a node at values of its causes, in their own units."""

    def direction_identifiable(self, a: str, b: str) -> bool:
        """Whether data can decide the direction between two nodes."""

    def direction_margin(self, cause: str, effect: str) -> float | None:
        """Nats for cause -> effect; None where likelihoods did not decide."""

    def label_influence(self, images: Any, labels: Any) -> Tensor:
        """(m,) fraction of each latent that is copied from the labels."""

    def visible_latents(self, split: Split) -> np.ndarray:
        """(m,) of bools: latents that change the images of a split."""


@runtime_checkable
class Likelihood(Protocol):
    """Importance weights, from which bounds of log p(x) are estimated.

    `log_weights` returns log p(x, z) - log q(z | x) in nats for `samples` draws of z from
    q(z | x), (samples, B). It draws sample after sample from `generator`, a CPU one, so that two
    calls for K samples draw the same as one call for 2 K. A class attribute
    `likelihood_description` says in one line which likelihood the weights are of.
    """

    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor: ...


def without_pixel_noise(model: Any) -> dict[str, float]:
    """Return the arguments with which `counterfactual` keeps none of an image's pixel noise."""
    keeps = isinstance(model, KeepsPixelNoise) and model.pixel_temperature > 0
    return {"pixel_temperature": 0.0} if keeps else {}
