"""CausalVAE (Yang et al., CVPR 2021): labelled concepts, a causal graph among them, do() on images.

The loss (Eq. 14), the label fit l_u (Eq. 11) and the sources of the graph (sec. 6.2).
The encoder, the conditional prior and the causal layer are in the base classes.
Shapes: B images, n concepts, k dims per concept.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from intervae.causal.acyclicity import polynomial
from intervae.causal.gaussian import kl_pushed_forward, kl_standard_normal, reparametrise
from intervae.causal.graph import CausalGraph
from intervae.causal.known_graph import as_graph
from intervae.causal.linear import to_endogenous
from intervae.causal.mask_layer import MaskLayer
from intervae.data import Batch, Dataset, Spec
from intervae.discovery import MIN_ROWS
from intervae.discovery.base import require_continuous
from intervae.errors import DataError, UsageError
from intervae.models.causal_vae.causal_layer import CausalLayer
from intervae.models.causal_vae.graph_learning import learn_graph
from intervae.models.causal_vae.labelled import LabelledConcepts
from intervae.models.causal_vae.presets import CAUSAL_VAE
from intervae.models.causal_vae.settings import CausalLayerSettings, LabelSettings
from intervae.models.label_graph import graph_columns, no_edges_notes
from intervae.models.open_directions import OpenDirections
from intervae.models.phases import Phase, Terms
from intervae.nets.likelihood import absolute_error
from intervae.notes import Note
from intervae.settings import setting

LEARNED = ("independence", "lagrangian", "pretrained")  # sources with a phase of their own
INFLUENCE_STEP = 0.3  # step of a concept in `influence`, in standard deviations of its label


@dataclass(frozen=True)
class CausalVAESettings(CausalLayerSettings, LabelSettings):
    """Settings of CausalVAE; the paper's symbols are in brackets."""

    removed: ClassVar[Mapping[str, Any]] = {"influence_step": INFLUENCE_STEP}

    # the constructor resolves "auto"; a run stores the resolved method
    graph: Literal["auto", "independence", "lagrangian", "pretrained", "joint", "given"] = setting(
        "auto",
        "source of the graph: independent label noises, edges fixed by the paper's pre-training "
        "(lagrangian), A that starts there and stays free (pretrained), the loss alone (joint), or "
        "known; auto: independence, or lagrangian with binary labels",
    )
    pretraining_l1: float = setting(
        0.1, "weight of |A| in the pre-training (lagrangian, pretrained); the paper has none"
    )
    pretraining_intercept: bool = setting(
        True, "intercepts in the pre-training; the paper has none", advanced=True
    )
    label_weight: float = setting(
        1.0, "weight of the linear fit of the labels l_u [beta]", advanced=True
    )
    influence_weight: float = setting(
        0.0, "weight of the influence of single concepts on the image", advanced=True
    )
    edge_threshold: float = setting(
        0.3,
        "minimum absolute weight in A for an edge (lagrangian, pretrained and joint)",
        advanced=True,
    )


class CausalVAE(OpenDirections, CausalLayer, LabelledConcepts):
    """CausalVAE over the labelled variables of `spec`.

    Arguments:
        spec: `data.spec`; its variables are continuous, binary or categorical.
        graph: a known graph (see `as_graph`), or one of the names listed in `phases`. "auto" is
            "independence" for continuous labels and "lagrangian" with binary ones; categorical
            labels then have no edges.
        settings: see `CausalVAESettings`.

    The edges are the buffer `support` (n, n) of 0 and 1; their linear weights A are learned on it.
    With graph="pretrained" or "joint" the support is everything but the diagonal, and the edges are
    the weights above `edge_threshold`.
    """

    name = "causal-vae"
    title = (
        "CausalVAE (Yang et al. 2021): labelled concepts, a causal graph among them, do() on images"
    )
    Settings = CausalVAESettings
    presets = CAUSAL_VAE
    settings: CausalVAESettings
    mechanisms: MaskLayer
    strength: Tensor
    is_binary: Tensor

    def __init__(self, spec: Spec, *, graph: Any = "auto", seed: int = 0, **settings: Any) -> None:
        graph = as_graph(graph, spec.names)
        if isinstance(graph, CausalGraph):
            self.known_graph, graph = graph.subgraph(spec.names), "given"
            _ = self.known_graph.topological_order  # raises an error for a cycle
        self.graph_history: list[dict[str, Any]] = []
        if graph == "auto":
            kinds = {v.kind for v in spec.variables} - {"categorical"}
            graph = "independence" if kinds <= {"continuous"} else "lagrangian"
        super().__init__(spec, seed=seed, graph=graph, **settings)

    def build(self) -> None:
        super().build()
        n = len(self.spec.variables)
        self.mechanisms = self.make_mechanisms()
        self.make_adjacency()
        # weights of a known or discovered graph, as given or measured
        self.register_buffer("strength", torch.zeros(n, n))
        self.make_open_directions()
        self.make_noise_bank()
        self.register_buffer(
            "is_binary", torch.tensor([v.kind == "binary" for v in self.spec.variables])
        )
        if self.known_graph is not None:
            self.fix_edges(self.known_graph)

    # ---- model ---------------------------------------------------------------------------------
    @property
    def mask(self) -> Tensor:
        """Edge weights (n, n) of the mask layer, Eq. 2: A where it is free, else the edges."""
        return self.weights if self.has_free_edges else self.support

    @property
    def has_free_edges(self) -> bool:
        """Whether the loss may change which weights of A exist."""
        return self.settings.graph in ("pretrained", "joint")

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 14: -ELBO (Eq. 10) + alpha H(A) (Eq. 13) + beta l_u (Eq. 11) + gamma l_m (Eq. 12).

        Plus the absolute pixel error and the influence penalty, which the paper does not have.
        """
        settings, images, weights = self.settings, batch["images"], self.weights
        u = self.spec.normalise(batch["labels"])  # (B, n)
        mean, log_variance = self.posterior(
            images, batch["labels"], self.sample_label_mask(images, generator)
        )
        z = to_endogenous(reparametrise(mean, log_variance, generator), weights)  # Eq. 1
        pixels, pixel_terms = self.pixel_terms(z, batch, generator)
        noise = kl_standard_normal(mean, log_variance).mean()
        prior = kl_pushed_forward(
            mean, log_variance, weights, self.prior_mean(u), 2 * math.log(settings.prior_std)
        ).mean()  # Eq. 7
        acyclicity = polynomial(weights)
        labels = self.label_fit(u)
        mechanism = self.mechanism_fit(z)
        total = (
            pixels
            + settings.noise_weight * noise
            + settings.prior_weight * prior
            + settings.acyclicity_weight * acyclicity
            + settings.label_weight * labels
            + settings.mechanism_weight * mechanism
        )
        terms = {
            "loss": total,
            **pixel_terms,
            "kl_noise": noise,
            "kl_prior": prior,
            "acyclicity": acyclicity,
            "label_fit": labels,
            "mechanism_fit": mechanism,
        }
        if settings.influence_weight:
            terms["influence"] = self.influence(z, generator)
            terms["loss"] = total + settings.influence_weight * terms["influence"]
        return terms

    def label_fit(self, u: Tensor) -> Tensor:
        """l_u, Eq. 11: squared error of the prediction of the labels u (B, n) from A.

        Labels are normalised. The prediction is logistic for binary labels, linear for others. With
        categories the error is the mean over the dims of `prior_mean`.
        """
        u = self.prior_mean(u).mT.flatten(0, 1)  # one row per image and dim
        linear = u @ self.weights  # (A^T u)_i = sum_j A[j, i] u_j
        predicted = torch.where(self.is_binary, 2 * torch.sigmoid(linear) - 1, linear)
        return (u - predicted).square().sum(1).mean()

    def influence(self, z: Tensor, generator: torch.Generator | None) -> Tensor:
        """Absolute pixel change per unit step of one random concept, the others held fixed.

        Not in the paper. It makes each concept draw its own part of the image, for do() on effects.
        """
        n = z.shape[1]
        which = torch.randint(n, (len(z), 1), device=z.device, generator=generator)
        step = INFLUENCE_STEP * torch.randn(
            len(z), 1, z.shape[2], device=z.device, generator=generator
        )
        moved = z + step * (torch.arange(n, device=z.device) == which)[..., None]
        before, after = (torch.sigmoid(self.paint(latents)) for latents in (z, moved))
        return absolute_error(after, before).mean() / INFLUENCE_STEP

    # ---- training ------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """The graph, then joint training, then the noises for sampling.

        independence: edges from the independence of the labels' noises (`intervae.discovery`);
        lagrangian: the paper's pre-training, l_u subject to H(A) = 0 by augmented Lagrangian, whose
        edges are then fixed;
        pretrained: the same pre-training, from which Eq. 14 goes on with all of A (sec. 6.2);
        joint: no graph phase, Eq. 14 alone from A = 0;
        given: no graph phase, the edges are known.
        """
        settings = self.settings
        first: list[Phase] = []
        if settings.graph in LEARNED:
            first = [Phase("graph", prepare=self.learn_graph)]
        elif settings.graph == "given" and self.known_graph is None:
            raise UsageError(
                "graph=given needs a graph: pass graph= (a CausalGraph), "
                "or --graph FILE or true on the command line."
            )
        return [*first, *super().phases()]

    def check(self, data: Dataset) -> None:
        columns = graph_columns(self.spec.variables, self.settings.graph)
        if self.settings.graph == "independence":
            kinds = [self.spec.variable(name).kind for name in columns]
            require_continuous("graph=independence", columns, kinds)
        learned = self.settings.graph in LEARNED
        if learned and len(columns) > 1 and len(data.train) < MIN_ROWS:
            raise DataError(
                f"{len(data.train)} training samples are too few to learn a graph from their "
                f"labels; give {MIN_ROWS} or more, or a known graph (graph=, --graph)."
            )

    def notes(self, data: Dataset) -> list[Note]:
        learned = self.settings.graph in LEARNED
        return no_edges_notes(data, self.settings.graph) if learned else []

    def fix_edges(self, graph: CausalGraph, slopes: Tensor | None = None) -> None:
        """Set the edges; A starts at `slopes` (n, n), or at the weights of `graph`."""
        weights = torch.tensor(graph.subgraph(self.spec.names).weights, dtype=torch.float32)
        with torch.no_grad():
            self.support.copy_((weights != 0).float())
            self.strength.copy_(weights)
            self.adjacency.copy_(weights if slopes is None else slopes)

    def learn_graph(self, data: Dataset, seed: int) -> None:
        """Learn the edges, or A itself, from the labels of the training split."""
        learn_graph(self, data, seed)

    def logged_states(self) -> list[dict[str, Any]]:
        history, self.graph_history = self.graph_history, []
        return history

    # ---- queries -------------------------------------------------------------------------------
    @property
    def graph_mask(self) -> Tensor:
        return super().graph_mask if self.has_free_edges else self.support

    @property
    def graph(self) -> CausalGraph:
        """The known or learned graph, acyclic.

        Its weights are those of the discovery or of the known graph; with free edges they are A
        above `edge_threshold`, without the weakest edge of each cycle.
        """
        if not self.has_free_edges:
            weights = (self.strength * self.support).double().cpu().numpy()
            return CausalGraph(self.spec.names, weights)
        return super().graph
