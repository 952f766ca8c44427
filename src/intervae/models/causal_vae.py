"""CausalVAE (Yang et al., CVPR 2021): labelled concepts as latents, a causal graph among them, and do() on images.

Read beside the paper: Eq. 1 the linear causal layer, Eq. 2 the mask layer, Eq. 7 the conditional prior, Eq. 10 the ELBO,
Eq. 11-13 the constraints, Eq. 14 the loss. What its reductions in Table 1 have too (networks, labels, causal and mask layer) is in concepts.py.
Shapes: B images, n concepts, k dims per concept. Reduction everywhere: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from intervae.causal.acyclicity import polynomial
from intervae.causal.gaussian import kl_pushed_forward, kl_standard_normal, reparametrise
from intervae.causal.graph import CausalGraph
from intervae.causal.linear import to_endogenous
from intervae.causal.mechanisms import MaskLayer
from intervae.data.base import Batch, Dataset, Spec
from intervae.discovery import FEWEST_ROWS, discover
from intervae.discovery.base import require_continuous
from intervae.errors import DataError, UsageError
from intervae.models.concepts import CausalLayer, CausalLayerSettings, LabelledConcepts, LabelSettings
from intervae.models.phases import Phase, Terms
from intervae.nets.likelihood import absolute_error


@dataclass(frozen=True)
class CausalVAESettings(CausalLayerSettings, LabelSettings):
    """Settings of CausalVAE; the paper's symbol, where there is one, in brackets."""

    graph: Literal["independence", "lagrangian", "joint", "given"] = "independence"  # where the graph comes from, see `phases`
    label_weight: float = 1.0  # of the linear fit of the labels [beta]
    influence_weight: float = 0.0  # of the influence of single concepts on the picture, for do() on pure effects; see `influence`
    influence_step: float = 0.3  # how far a concept is moved to measure it, in standard deviations of its label
    edge_threshold: float = 0.3  # below which a learned weight is no edge (lagrangian and joint)


class CausalVAE(CausalLayer, LabelledConcepts):
    """CausalVAE over the labelled variables of `spec`.

    Arguments:
        spec: `data.spec`; its variables must be continuous or binary.
        graph: a known `CausalGraph`, or the way to find one, see `phases`; "auto" is independence for continuous labels, lagrangian
            where some are binary.
        settings: see `CausalVAESettings`.

    The graph's edges are a buffer `support` (n, n) of 0 and 1; their linear strengths [A] are learned on that support.
    With graph="joint" A itself is the learned graph: the support is everything but the diagonal, and edges are the weights above
    `edge_threshold`.
    """

    name = "causal-vae"
    title = "CausalVAE (Yang et al. 2021): labelled concepts, a causal graph among them, do() on images"
    Settings = CausalVAESettings
    settings: CausalVAESettings
    mechanisms: MaskLayer
    strength: Tensor
    is_binary: Tensor

    def __init__(self, spec: Spec, *, graph: CausalGraph | str = "auto", seed: int = 0, **settings: Any) -> None:
        if isinstance(graph, CausalGraph):
            self.given_graph, graph = graph.subgraph(spec.names), "given"
            _ = self.given_graph.topological_order  # refuses a cycle
        self.found_on_the_way: list[dict[str, Any]] = []
        if graph == "auto":
            graph = "independence" if all(v.kind == "continuous" for v in spec.variables) else "lagrangian"
        super().__init__(spec, seed=seed, graph=graph, **settings)

    def build(self) -> None:
        super().build()
        n = len(self.spec.variables)
        self.mechanisms = self.make_mechanisms()
        self.make_adjacency()
        self.register_buffer("strength", torch.zeros(n, n))  # of known edges, as the discovery measured or the person gave them
        self.make_noise_bank()
        self.register_buffer("is_binary", torch.tensor([v.kind == "binary" for v in self.spec.variables]))
        if self.given_graph is not None:
            self.fix_edges(self.given_graph)

    # ---- the model --------------------------------------------------------------------------------------------------
    @property
    def mask(self) -> Tensor:
        """What the mask layer sees of the graph: A while it is being learned (Eq. 2), the bare edges once they are known."""
        return self.weights if self.settings.graph == "joint" else self.support

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 14: -ELBO (Eq. 10) + alpha H(A) (Eq. 13) + beta l_u (Eq. 11) + gamma l_m (Eq. 12), and our absolute pixel error."""
        settings, images, weights = self.settings, batch["images"], self.weights
        u = self.spec.normalise(batch["labels"])  # (B, n)
        mean, log_variance = self.posterior(images, batch["labels"], self.draw_seen(images, generator))
        z = to_endogenous(reparametrise(mean, log_variance, generator), weights)  # Eq. 1
        output = self.decoder(z.flatten(1))
        reconstruction, pixels = self.pixel_terms(output, images)
        noise = kl_standard_normal(mean, log_variance).mean()
        prior = kl_pushed_forward(mean, log_variance, weights, u[..., None], 2 * math.log(settings.prior_std)).mean()  # Eq. 7
        acyclicity = polynomial(weights)
        labels = self.label_fit(u)
        mechanism = self.mechanism_fit(z)
        total = (
            reconstruction
            + settings.sharpness * pixels
            + settings.noise_weight * noise
            + settings.prior_weight * prior
            + settings.acyclicity_weight * acyclicity
            + settings.label_weight * labels
            + settings.mechanism_weight * mechanism
        )
        terms = {
            "loss": total,
            "reconstruction": reconstruction,
            "absolute_error": pixels,
            "kl_noise": noise,
            "kl_prior": prior,
            "acyclicity": acyclicity,
            "label_fit": labels,
            "mechanism_fit": mechanism,
        }
        if settings.influence_weight:
            terms["influence"] = self.influence(z, output, generator)
            terms["loss"] = total + settings.influence_weight * terms["influence"]
        return terms

    def label_fit(self, u: Tensor) -> Tensor:
        """l_u, Eq. 11: how well A explains the normalised labels u (B, n); logistic for binary labels, linear for continuous ones."""
        linear = u @ self.weights  # (A^T u)_i = sum_j A[j, i] u_j
        predicted = torch.where(self.is_binary, 2 * torch.sigmoid(linear) - 1, linear)
        return (u - predicted).square().sum(1).mean()

    def influence(self, z: Tensor, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """How many pixels change when one concept moves and the others stay, per unit of movement; not in the paper.

        Where concepts determine each other (a shadow follows from rod and light) the data do not say from which of them the decoder should
        draw, and do() on an effect can go wrong. The sum of absolute influences settles it: for standardised variables with
        z_i = f(parents) the parents' influences on what z_i could draw add up to more than z_i's own, so each concept draws itself.
        """
        n = z.shape[1]
        which = torch.randint(n, (len(z), 1), device=z.device, generator=generator)
        step = self.settings.influence_step * torch.randn(len(z), 1, z.shape[2], device=z.device, generator=generator)
        moved = z + step * (torch.arange(n, device=z.device) == which)[..., None]
        after = torch.sigmoid(self.decoder(moved.flatten(1)))
        return absolute_error(after, torch.sigmoid(output)).mean() / self.settings.influence_step

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """The graph first, then everything together, then the noises for sampling.

        independence: a graph from the independence of the labels' noises (`intervae.discovery`), then fixed edges;
        lagrangian: the paper's pre-training, l_u under the constraint H(A) = 0 by augmented Lagrangian, then fixed edges too;
        joint: Eq. 14 alone, from A = 0; given: the edges are known.
        """
        settings = self.settings
        first: list[Phase] = []
        if settings.graph in ("independence", "lagrangian"):
            first = [Phase("graph", prepare=self.find_edges)]
        elif settings.graph == "given" and self.given_graph is None:
            raise UsageError("graph=given needs a graph: pass graph= (a CausalGraph), or --graph FILE or true on the command line.")
        return [*first, *super().phases()]

    def check(self, data: Dataset) -> None:
        if self.settings.graph == "independence":
            require_continuous("graph=independence", self.spec.names, [v.kind for v in self.spec.variables])
        if self.settings.graph in ("independence", "lagrangian") and len(self.spec.variables) > 1 and len(data.train) < FEWEST_ROWS:
            raise DataError(
                f"{len(data.train)} training samples are too few to learn a graph from their labels; give {FEWEST_ROWS} or more, "
                "or a known graph (graph=, --graph)."
            )

    def fix_edges(self, graph: CausalGraph, slopes: Tensor | None = None) -> None:
        """From here on these are the edges; A starts at `slopes` (n, n), or at the graph's weights, and stays trainable on them."""
        weights = torch.tensor(graph.subgraph(self.spec.names).weights, dtype=torch.float32)
        with torch.no_grad():
            self.support.copy_((weights != 0).float())
            self.strength.copy_(weights)
            self.adjacency.copy_(weights if slopes is None else slopes)

    def find_edges(self, data: Dataset, seed: int) -> None:
        """Edges from the labels of the training split alone, see `intervae.discovery`.

        independence: A starts at the linear fit to the parents. lagrangian: the paper's pre-training (sec. 6.2, App. C.3), l_u under
        H(A) = 0 by augmented Lagrangian from A = 0; A starts where it ends.
        """
        method, names = self.settings.graph, self.spec.names
        if len(names) == 1:
            return self.fix_edges(CausalGraph.empty(names))
        own = {"threshold": self.settings.edge_threshold} if method == "lagrangian" else {}
        kinds = [v.kind for v in self.spec.variables]
        found = discover(data.train.labels.cpu().numpy(), method, names=names, kinds=kinds, seed=seed, **own)
        self.found_on_the_way = [{"adjacency": weights.tolist()} for weights in found.history]
        slopes = self._linear_fit(found.graph, data) if method == "independence" else None
        return self.fix_edges(found.graph, slopes)

    def _linear_fit(self, graph: CausalGraph, data: Dataset) -> Tensor:
        """(n, n) least-squares slopes of the normalised labels on their parents."""
        u = self.spec.normalise(data.train.labels).double().cpu()
        slopes = torch.zeros(graph.weights.shape)
        for i, name in enumerate(graph.names):
            parents = [graph.index(parent) for parent in graph.parents(name)]
            if parents:
                slopes[parents, i] = torch.linalg.lstsq(u[:, parents], u[:, i : i + 1]).solution[:, 0].float()
        return slopes

    def states_prepared(self) -> list[dict[str, Any]]:
        found, self.found_on_the_way = self.found_on_the_way, []
        return found

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def graph(self) -> CausalGraph:
        """The learned or given graph, always acyclic.

        Its weights are the strengths that the discovery measured or the person gave; where A itself is the learned graph they are A above
        the threshold, and on a cycle the weakest edge goes.
        """
        if self.settings.graph != "joint":
            return CausalGraph(self.spec.names, (self.strength * self.support).double().cpu().numpy())
        return super().graph
