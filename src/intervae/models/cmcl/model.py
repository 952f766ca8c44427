"""CMCL (Mao et al. 2022): total loss (Eq. 14), training (Algorithm 1), graph and queries.

Networks are in networks.py, the four losses in losses.py, do() in interventions.py. Where the
printed equations are wrong the code has the corrected ones; docs/cmcl.md lists them.
Shapes: B images, m latents z, d columns u, p = m + d nodes in the order [z, u].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data import Batch, Dataset, Spec, Split
from intervae.discovery.edge_directions import EdgeRule
from intervae.discovery.table_checks import check_not_collinear
from intervae.errors import DataError
from intervae.models.cmcl import final_graph, inference, interventions
from intervae.models.cmcl.losses import (
    causal_terms,
    contrast_rows,
    contrast_terms,
    embedding_terms,
    graph_terms,
)
from intervae.models.cmcl.networks import LABEL_BANK, CMCLNetworks
from intervae.models.cmcl.presets import PRESETS
from intervae.models.cmcl.settings import CMCLSettings
from intervae.models.cmcl.training import training_phases
from intervae.models.heat_maps import has_heat_maps, visible_latents
from intervae.models.ivae import input_width
from intervae.models.phases import Phase, Terms

MAX_CATEGORIES = 50  # of a column
MIN_VISIBLE_FRACTION = 0.01  # fraction of the pixel change of the most visible latent


class CMCL(CMCLNetworks):
    """CMCL over images and the columns of a table. Latents are named z0, z1, ...

    Arguments:
        spec: `data.spec`; its variables are the columns u: continuous, binary or categorical.
        settings: see `CMCLSettings`.
    """

    name = "cmcl"
    title = (
        "CMCL (Mao et al. 2022): causal edges between latents of an image and columns of a table, "
        "in both directions"
    )
    likelihood_description = (
        "Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | z0, u)"
    )
    Settings = CMCLSettings
    presets = PRESETS
    counterfactual_takes_labels = True

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError(
                f"{self.name} learns from labels, but this data has none; "
                "give a labels.csv or another model."
            )
        for variable in spec.variables:
            if variable.kind == "categorical" and input_width(variable) > MAX_CATEGORIES:
                raise DataError(
                    f"column {variable.name!r} has {input_width(variable)} categories, more than "
                    f"{MAX_CATEGORIES}; merge rare ones or leave it out."
                )
        super().__init__(spec, seed=seed, **settings)
        clash = set(self.latent_names) & set(spec.names)
        if clash:
            raise DataError(f"the column {min(clash)!r} has the name of a latent; rename it.")

    # ---- training --------------------------------------------------------------------------------
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 14: -L1 - L2 + L_DAG - L_CR."""
        settings = self.settings
        inferred = inference.infer(self, batch["images"], batch["labels"], generator)
        layers = self.networks.layers()
        # first, as it sets the batch mean and std of the latents that the contrast uses
        graph = graph_terms(self, inferred, batch["labels"], layers)
        rows = None
        if settings.contrast:
            rows = contrast_rows(self, inferred, generator, layers.detach())
        all_logits = self.image_logits(inferred.z if rows is None else rows.z)
        logits = all_logits if rows is None else all_logits.chunk(2)[1]
        causal: Terms = {}
        if settings.causal_module:
            embedding = embedding_terms(self, batch, inferred)
            causal = causal_terms(self, batch, inferred, logits)
        else:
            embedding = embedding_terms(self, batch, inferred, logits)
            embedding["reconstruction"] = embedding["embedding_reconstruction"]
        contrast: Terms = {}
        if rows is not None:
            contrast = contrast_terms(self, inferred, rows, all_logits, generator)
        weighted = [
            (settings.embedding_weight, embedding),
            (settings.causal_weight, causal),
            (settings.graph_weight, graph),
            (settings.contrast_weight, contrast),
        ]
        losses = [
            terms.pop("loss") if weight == 1 else weight * terms.pop("loss")
            for weight, terms in weighted
            if terms
        ]
        return {"loss": torch.stack(losses).sum(), **embedding, **causal, **graph, **contrast}

    def phases(self) -> list[Phase]:
        """Train all networks, then decide the edges (training.py, final_graph.py)."""
        return training_phases(self)

    def check(self, data: Dataset) -> None:
        settings, columns = self.settings, len(self.spec.variables)
        paired = settings.causal_module and settings.pairing == "index"
        one_edge_per_node = settings.direction == "likelihood" and settings.one_edge_per_node
        if columns > settings.latents and (paired or one_edge_per_node):
            raise DataError(
                f"the table has {columns} columns, more than latents={settings.latents}, but each "
                f"column needs a latent of its own; set latents={columns} or more, leave columns "
                "out, or let columns share latents (pairing=full one_edge_per_node=false)."
            )
        kinds = [variable.kind for variable in self.spec.variables]
        check_not_collinear(data.train.labels.double().cpu().numpy(), self.spec.names, kinds)

    def state_to_log(self) -> dict[str, Any]:
        return {
            "strengths": self.networks.strengths.cpu().tolist(),
            "cycles": float(self.networks.cycles().detach()),
            "multiplier": float(self.multiplier),
            "penalty": float(self.penalty),
        }

    # ---- the graph -------------------------------------------------------------------------------
    @property
    def graph(self) -> CausalGraph:
        """Acyclic graph over latents and columns; empty before training.

        An edge between a latent and a column has the weight sqrt(R^2) of the better explained of
        the two (`discovery.edge_directions.associations`), at least `edge_threshold`. All other
        edges, and those of direction=networks, have the weight of `NodeNetworks.influence`; those
        of direction=norms that of W. The
        weakest edge of a cycle is dropped.
        """
        weights = self.influence.double().cpu().numpy()
        graph = CausalGraph(self.node_names, weights)
        return graph.threshold(self.settings.edge_threshold).to_acyclic()

    @property
    def graph_mask(self) -> Tensor:
        """(p, p) adjacency of `graph`, 0 or 1."""
        return torch.as_tensor(self.graph.adjacency).to(self.edges)

    @property
    def edge_rule(self) -> EdgeRule:
        """The rule by which the edges were decided."""
        return final_graph.edge_rule(self)

    @property
    def edge_strengths(self) -> Tensor:
        """(p, p) strengths of all edges, before the threshold of `graph`."""
        return self.influence

    @property
    def undirected_edges(self) -> tuple[tuple[str, str], ...]:
        """Edges whose direction no data can decide, see `direction_identifiable`."""
        edges = [(cause, effect) for cause, effect, _ in self.graph.edges]
        return tuple(edge for edge in edges if not self.direction_identifiable(*edge))

    def direction_identifiable(self, a: str, b: str) -> bool:
        """Whether data can decide the direction between two nodes.

        False between a latent and a binary or categorical column: latents are known up to a
        monotone map, under which both directions fit the same rows.
        """
        if (a in self.latent_names) == (b in self.latent_names):
            return True
        return all(v.kind == "continuous" for v in self.spec.variables if v.name in (a, b))

    def direction_margin(self, cause: str, effect: str) -> float | None:
        """Nats for cause -> effect by `decide_edges`; None where it did not decide."""
        return final_graph.direction_margin(self, cause, effect)

    def visible_latents(self, split: Split) -> np.ndarray:
        """(m,) of bools: latents that change the images of a split; others get no edges."""
        return visible_latents(self, split, MIN_VISIBLE_FRACTION)

    # ---- inference -------------------------------------------------------------------------------
    @torch.no_grad()
    def label_influence(self, images: Any, labels: Any, *, seed: int = 0) -> Tensor:
        """(m,) fraction of each latent that is copied from the labels, from 0 to 1."""
        return inference.label_influence(self, images, labels, seed)

    @torch.no_grad()
    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Log importance weights (samples, B) of p(x | u), or of p(x) without module 2."""
        return inference.log_weights(self, images, labels, samples, generator)

    # ---- do() ------------------------------------------------------------------------------------
    @torch.no_grad()
    def effect_curve(self, effect: str, causes: Mapping[str, Any]) -> Tensor:
        """Mechanism f of a node of `graph` at values of its causes, in their own units.

        Arguments:
            effect: a latent or a column.
            causes: name -> one number or (B,) numbers; a cause left out is at its mean, and a
                node that is no cause has no influence.

        Returns:
            (B,) expected values, (B,) probabilities that a binary column is 1, or
            (B, categories) probabilities.
        """
        return interventions.effect_curve(self, effect, causes)

    @torch.no_grad()
    def intervene(
        self, latents: Tensor, do: Do, labels: Any = None, *, keep_noise: bool | None = None
    ) -> Tensor:
        """Latents (B, m, 1) under `do`; what `do` does not reach in `graph` stays bit for bit.

        A binary or categorical effect of a changed node stays as it is, because its noise cannot
        be inferred.

        Arguments:
            do: columns in their own units, or latents.
            labels: (B, d) factual columns; without them other causes of an effect are at their
                mean.
            keep_noise: z_j <- f_j(u') + z_j - f_j(u) where true, else z_j <- f_j(u') (App. B);
                by default true where labels are given.
        """
        return interventions.intervene(self, latents, do, labels, keep_noise)

    @torch.no_grad()
    def counterfactual(
        self, images: Any, do: Do, labels: Any = None, *, keep_noise: bool | None = None
    ) -> Tensor:
        """Images (B, C, H, W) under `do`, see `intervene`; they change under do(cause) only."""
        self.check_trained()
        latents = self.encode(images, labels)
        return self.decode(self.intervene(latents, do, labels, keep_noise=keep_noise))

    @torch.no_grad()
    def sample(self, n: int, do: Do | None = None, *, seed: int | None = None) -> Tensor:
        """Sample `n` images (n, C, H, W): rows of the training table, z ~ p(z | u), `do`."""
        generator = self.sampling_generator(n, seed)
        rows = torch.randint(LABEL_BANK, (n,), generator=generator).to(self.device)
        labels = self.label_bank[rows]
        z = torch.randn(n, self.settings.latents, generator=generator).to(self.device)
        if self.settings.causal_module:
            mean, log_variance = self.prior(self.inputs(labels))
            z = mean + torch.exp(0.5 * log_variance) * z
        return self.decode(self.intervene(z[..., None], do or {}, labels))

    # ---- figures ---------------------------------------------------------------------------------
    def figures(self, data: Dataset) -> dict[str, Callable[[Path], None]]:
        """Return heat maps of the latent of each column (Fig. 5), if the encoder has any."""
        from intervae.models.cmcl.figures import draw_heat_maps

        if not has_heat_maps(self, data.test):
            return {}
        return {"heat_maps.png": partial(draw_heat_maps, self, data)}
