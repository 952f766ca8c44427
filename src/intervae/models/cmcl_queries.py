"""What a trained CMCL answers: the graph over latents and columns, its mechanisms, and pictures under do() of a column (App. B, Eqs. 15 and 16).

An effect of a latent (z -> u) is set without changing the picture, bit for bit: with z -> u, p(x | do(u)) = p(x), where Eq. 16 prints p(x | u).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intervae.causal.do import Do, interventions, propagate
from intervae.causal.gaussian import log_normal
from intervae.causal.graph import CausalGraph
from intervae.data.base import Split
from intervae.errors import QueryError, unknown
from intervae.models.base import Model, as_tensor, in_batches
from intervae.models.cmcl_settings import CMCLSettings
from intervae.models.heat_maps import shown
from intervae.nets.latents import draw_samples
from intervae.nets.likelihood import negative_log_likelihood
from intervae.nets.node_networks import NodeNetworks
from intervae.nets.norm import EPSILON, BatchNorm

LABEL_BANK = 2048  # labels kept from the training split, from which sample() draws
FAINTEST = 0.01  # of the squared change of pixels that the most visible latent makes, below which one has no edges


class CrossModalQueries(Model):
    """The queries of CMCL. Latents are called z0, z1, ...; columns have their own names and units."""

    settings: CMCLSettings
    encoder: nn.Module
    networks: NodeNetworks
    standardiser: BatchNorm
    classifier: nn.Module | None
    pairing_logits: Tensor | None
    columns: list[int]
    pairs: Tensor
    fixed_pairing: Tensor
    is_paired: Tensor
    sides: Tensor
    owner: Tensor
    own_centre: Tensor
    own_scale: Tensor
    is_binary: Tensor
    table_mean: Tensor
    table_scale: Tensor
    table_centre: Tensor
    table_unit: Tensor
    edges: Tensor
    influence: Tensor
    margins: Tensor
    label_bank: Tensor
    warm_up_steps: Tensor
    annealing_steps: Tensor
    first_weight: Tensor
    multiplier: Tensor
    penalty: Tensor
    last_cycles: Tensor
    epochs_done: Tensor
    contrast_on: Tensor
    shaping: Tensor

    # ---- what the model gives ---------------------------------------------------------------------------------------
    @abstractmethod
    def inputs(self, labels: Tensor) -> Tensor:
        """Labels (B, d) in their own units to standardised columns (B, P)."""

    @abstractmethod
    def embed(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """q(z0 | x): mean and log-variance, each (B, m0)."""

    @abstractmethod
    def posterior(self, z0: Tensor, u: Tensor | None = None, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """q(z | z0, u): mean and log-variance, each (B, m)."""

    @abstractmethod
    def prior(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """p(z | u): mean and log-variance, each (B, m)."""

    @abstractmethod
    def generator_of(self, z: Tensor) -> Tensor:
        """g(z): latents (B, m) to the logits of a picture."""

    # ---- names and scales -------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @property
    def node_names(self) -> tuple[str, ...]:
        """The latents, then the columns."""
        return (*self.latent_names, *self.spec.names)

    @property
    def centre(self) -> Tensor:
        """(m,) mean of the latents: of the last batch in training, else as kept."""
        seen = self.standardiser.seen if self.training else None
        return self.standardiser.mean if seen is None else seen[0]

    @property
    def spread(self) -> Tensor:
        """(m,) standard deviation of the latents: of the last batch in training, else as kept."""
        seen = self.standardiser.seen if self.training else None
        return torch.sqrt(self.standardiser.variance + EPSILON) if seen is None else 1 / seen[1]

    # ---- the graph --------------------------------------------------------------------------------------------------
    @property
    def graph(self) -> CausalGraph:
        """Over the latents and then the columns, acyclic: where one explains enough of the other (`edge_threshold`); empty before training.

        A weight between a latent and a column is the root of the share of its variance that the better explained of the two owes to the other; with
        a binary or categorical column, of the latent's variance between its values (`cmcl_directions.associations`). With direction=networks, and
        among latents or columns, it is that of the effect, of a binary or categorical one the spread of its logits (`NodeNetworks.influence`).
        On a cycle the weakest edge goes.
        """
        return CausalGraph(self.node_names, self.influence.double().cpu().numpy()).threshold(self.settings.edge_threshold).to_acyclic()

    @property
    def undirected_edges(self) -> tuple[tuple[str, str], ...]:
        """Edges between a latent, known up to a monotone map, and a binary or categorical column: either direction could have made the rows."""
        return tuple((cause, effect) for cause, effect, _ in self.graph.edges if not self.tells_direction(cause, effect))

    def tells_direction(self, a: str, b: str) -> bool:
        """Whether data can tell which of two nodes is the cause: not between a latent and a column that is no number."""
        across = (a in self.latent_names) != (b in self.latent_names)
        return not across or all(v.kind == "continuous" for v in self.spec.variables if v.name in (a, b))

    @property
    def graph_mask(self) -> Tensor:
        """(p, p) of 0 and 1."""
        return torch.as_tensor(self.graph.adjacency, dtype=self.edges.dtype, device=self.edges.device)

    def visible(self, split: Split) -> np.ndarray:
        """(m,) which latents the pictures of a split show; no others have edges.

        What is left of a latent that the decoder does not use may follow a column closely, but acting on it would change no picture.
        """
        return shown(self, split, FAINTEST)

    # ---- latents ----------------------------------------------------------------------------------------------------
    @property
    def needs_labels(self) -> bool:
        return self.settings.causal_module and self.settings.label_dropout == 0

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W), with the table's rows (B, d) or without, to the latents' posterior means (B, m, 1), z0 at its mean."""
        x = self.as_images(images)
        if not self.settings.causal_module:
            return in_batches(lambda part: self.embed(part)[0], x)[..., None]
        if labels is None:
            if self.needs_labels:
                raise QueryError(
                    f"this {self.name} was made with label_dropout=0, so its encoder needs the labels: pass labels=, "
                    "or make it with label_dropout=0.5."
                )
            return in_batches(lambda part: self.posterior(self.embed(part)[0])[0], x)[..., None]
        u, told = self.inputs(self.as_labels(labels, len(x))), float(self.settings.label_dropout < 1)
        return in_batches(lambda part, some: self.posterior(self.embed(part)[0], some, torch.full_like(some[:, :1], told))[0], x, u)[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        z = self.as_latents(latents)
        if z.shape[2] != 1:
            raise QueryError(f"the latents of {self.name} have one dim each, these have {z.shape[2]}; give them as (images, latents, 1).")
        return in_batches(lambda part: torch.sigmoid(self.generator_of(part)), z[..., 0])

    @torch.no_grad()
    def label_influence(self, images: Any, labels: Any, *, seed: int = 0) -> Tensor:
        """(m,) how much of each latent is copied from the labels and not read off the picture: 0 for none, 1 for all.

        Pictures are encoded with their own rows of the table and with those of other pictures: E(z - z')^2 / (2 var z).
        """
        given = self.as_labels(labels, len(as_tensor(labels, "labels")))
        order = torch.randperm(len(given), generator=torch.Generator().manual_seed(seed)).to(given.device)
        own, others = (self.encode(images, table)[..., 0] for table in (given, given[order]))
        return (own - others).square().mean(0) / (2 * own.var(0, correction=0)).clamp(min=1e-12)

    # ---- mechanisms -------------------------------------------------------------------------------------------------
    def _columns_of(self, values: Mapping[str, Tensor], rows: int) -> Tensor:
        """Latents (B,) and columns (B,) in own units to the standardised inputs of all nodes (B, m + P); the mean for what is not given."""
        m, table = self.settings.latents, torch.zeros(rows, len(self.columns), device=self.device)
        latents = self.centre.expand(rows, m).clone()
        known = torch.zeros(len(self.columns), device=self.device)
        for name, value in values.items():
            place = self.node_names.index(name)
            if place < m:
                latents[:, place] = value
            else:
                table[:, place - m], known[place - m] = value, 1.0
        return torch.cat([(latents - self.centre) / self.spread, self.inputs(table) * (known @ self.owner)], dim=1)

    def _evaluate(self, effect: str, values: Mapping[str, Tensor], rows: int, edges: Tensor) -> Tensor:
        """f of one node: (B,) of a latent or a continuous column in own units, (B,) the probability of 1, or (B, K) of each category."""
        place, m = self.node_names.index(effect), self.settings.latents
        output = self.networks(self._columns_of(values, rows), edges)[place]  # (B, K)
        if place < m:
            return output[:, 0] * self.spread[place] + self.centre[place]
        variable = self.spec.variables[place - m]
        if variable.kind == "categorical":
            return torch.softmax(output[:, : self.columns[place - m]], dim=1)
        return torch.sigmoid(output[:, 0]) if variable.kind == "binary" else variable.denormalise(output[:, 0])

    @torch.no_grad()
    def mechanism(self, effect: str, causes: Mapping[str, Any]) -> Tensor:
        """f of a node of `graph` at values of its causes, in own units; a cause that is not given is at its mean, and what is no cause does nothing.

        Arguments:
            effect: a latent or a column.
            causes: name -> one number, or (B,) of them.

        Returns:
            (B,) the latent's or the continuous column's expected value, the probability that a binary column is 1, or (B, categories).
        """
        for name in (effect, *causes):
            if name not in self.node_names:
                raise unknown("variable", name, self.node_names, QueryError)
        given = {name: as_tensor(value, name).to(self.device, torch.float32).flatten() for name, value in causes.items()}
        rows = max((len(value) for value in given.values()), default=1)
        for name, value in given.items():
            if len(value) not in (1, rows):
                raise QueryError(f"mechanism({effect!r}): {name} has {len(value)} values where another cause has {rows}; give as many, or one.")
        return self._evaluate(effect, {name: value.expand(rows) for name, value in given.items()}, rows, self.graph_mask)

    # ---- do ---------------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def intervene(self, latents: Tensor, do: Do, labels: Any = None, *, keep_noise: bool | None = None) -> Tensor:
        """Latents (B, m, 1) had `do` been done.

        Only what a cause reaches in `graph` changes; every other latent stays bit for bit. A binary or categorical effect of what changes stays
        as it is, as a picture does not tell on which side of a threshold its noise was.

        Arguments:
            do: columns in their own units, or latents.
            labels: (B, d) the table's rows of these images, for what is not acted on. Without them other causes of an effect are at their mean.
            keep_noise: z_j <- f_j(u') + z_j - f_j(u), each image's residual kept, or z_j <- f_j(u') (App. B); by default kept where labels are given.
        """
        z, names, graph = self.as_latents(latents), self.spec.names, self.graph
        table = None if labels is None else self.as_labels(labels, len(z))
        keep_noise = table is not None if keep_noise is None else keep_noise
        if keep_noise and table is None:
            raise QueryError("keep_noise needs the columns as they were: give labels.")
        changes = interventions(do, self.node_names, self.spec.categories)
        for name in changes:
            if table is None and name in names and callable(do[name]):
                raise QueryError(f"do({name}=...) changes what the column is, which a picture alone does not tell; give labels, or a number.")
        edges = self.graph_mask
        factual = {name: z[:, i, 0] for i, name in enumerate(self.latent_names)}
        factual |= {name: table[:, i] for i, name in enumerate(names)} if table is not None else {}
        discrete = {v.name for v in self.spec.variables if v.kind != "continuous"}

        def recompute(name: str, values: dict[str, Tensor]) -> Tensor:
            if name in discrete:  # it is acted on, so what it would have been does not matter
                return values[name]
            found = self._evaluate(name, {k: v for k, v in values.items() if v is not None}, len(z), edges)
            return found + factual[name] - self._evaluate(name, factual, len(z), edges) if keep_noise else found

        start: dict[str, Any] = {name: factual.get(name) for name in self.node_names}
        blank = torch.zeros(len(z), device=self.device)
        act = {name: (lambda value, change=change: change(blank if value is None else value)) for name, change in changes.items()}
        order = [name for name in graph.topological_order if name not in discrete or name in changes]
        after = propagate(start, order, graph.parents, recompute, act)
        return torch.stack([after[name] for name in self.latent_names], dim=1)[..., None]

    @torch.no_grad()
    def counterfactual(self, images: Any, do: Do, labels: Any = None, *, keep_noise: bool | None = None) -> Tensor:
        """The pictures (B, C, H, W) had `do` been done, see `intervene`: a cause of a latent changes them, an effect or a bystander does not."""
        latents = self.encode(images, labels)
        return self.decode(self.intervene(latents, do, labels, keep_noise=keep_noise))

    @torch.no_grad()
    def sample(self, n: int, do: Do | None = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W): rows of the training split's table, z ~ p(z | u), then what `do` changes, decoded."""
        generator = self.sampling_generator(n, seed)
        labels = self.label_bank[torch.randint(LABEL_BANK, (n,), generator=generator).to(self.device)]
        noise = torch.randn(n, self.settings.latents, generator=generator).to(self.device)
        if self.settings.causal_module:
            mean, log_variance = self.prior(self.inputs(labels))
            noise = mean + torch.exp(0.5 * log_variance) * noise
        return self.decode(self.intervene(noise[..., None], do or {}, labels))

    # ---- likelihood -------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | z0, u), (samples, B), for z0 drawn from q(z0 | x), then z.

        Whatever z0 is, q(z | z0, u) is a proposal for z, so that the weights integrate to p(x | u). Without module 2 it is p(x).
        """
        settings, x = self.settings, self.as_images(images)
        if settings.causal_module and labels is None:
            raise QueryError(f"{self.name} has a prior p(z | u) that depends on the labels; give log_weights the labels of the images.")
        embedding = self.embed(x)
        size = embedding[0].shape[1]
        noise = draw_samples((len(x), size + settings.latents), samples, generator, x.device)
        z0 = embedding[0] + torch.exp(0.5 * embedding[1]) * noise[..., :size]  # (samples, B, m0)
        if settings.causal_module:
            u = self.inputs(self.as_labels(labels, len(x))).repeat(samples, 1)
            mean, log_variance = self.posterior(z0.flatten(0, 1), u, torch.full_like(u[:, :1], float(settings.label_dropout < 1)))
            z = mean + torch.exp(0.5 * log_variance) * noise[..., size:].flatten(0, 1)
            log_ratio = (log_normal(z, *self.prior(u)) - log_normal(z, mean, log_variance)).sum(1)
        else:
            z = z0.flatten(0, 1)
            log_ratio = (log_normal(z0, 0.0, 0.0) - log_normal(z0, *embedding)).sum(2).flatten()
        log_pixels = in_batches(
            lambda latents, truth: -negative_log_likelihood(self.generator_of(latents), truth, settings.likelihood, settings.scale),
            z,
            x.repeat(samples, 1, 1, 1),
        )
        return (log_pixels + log_ratio).unflatten(0, (samples, len(x)))
