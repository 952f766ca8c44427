"""CMCL (Mao et al. 2022): which latents of an image cause the columns of a table, and which are caused by them.

Read beside the paper: module 1 (Eq. 5), module 2 (Eqs. 7, 17 and 18), the total (Eq. 14) and Algorithm 1 are here; each loss in cmcl_losses.py, what
is done around the steps in cmcl_schedule.py, the DAG's networks (Eqs. 8-10) in nets/node_networks.py, do() (App. B) in cmcl_queries.py. Where the
printed equations are wrong, what they must be is in the code; see docs/cmcl.md.
Shapes: B images, m latents z, d columns u of the table with P inputs in all, z0 of size m0, p = m + d nodes in the order [z, u].
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import reparametrise
from intervae.data.base import Batch, Dataset, Spec
from intervae.discovery.design import refuse_collinear
from intervae.errors import DataError
from intervae.models.cmcl_losses import Look, causal_terms, contrast_terms, counterfactual_rows, embedding_terms, graph_terms
from intervae.models.cmcl_queries import LABEL_BANK, CrossModalQueries
from intervae.models.cmcl_schedule import finish, set_warm_up, tighten
from intervae.models.cmcl_settings import CMCLSettings
from intervae.models.ivae import as_inputs, inputs_of
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.images import build_decoder, build_encoder, dense_layers
from intervae.nets.node_networks import NodeNetworks
from intervae.nets.norm import BatchNorm, update_statistics
from intervae.nets.pairs import PairDecoder, PairEncoder
from intervae.nets.per_node import PerNode

MOST_CATEGORIES = 50  # of a column: what is seen once or twice cannot be learned


def bounded(log_variance: Tensor) -> Tensor:
    """Within [-12, 8]; hardtanh is a clamp whose gradient is one operation."""
    return functional.hardtanh(log_variance, -12.0, 8.0)


class CMCL(CrossModalQueries):
    """CMCL over images and the columns of `spec`.

    Arguments:
        spec: `data.spec`; its variables are the columns u: continuous, binary or categorical.
        settings: see `CMCLSettings`.
    """

    name = "cmcl"
    title = "CMCL (Mao et al. 2022): causes between an image's latents and the columns of a table, in both directions"
    Settings = CMCLSettings

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError(f"{self.name} learns from labels, but this data has none; give a labels.csv or another model.")
        for variable in spec.variables:
            if variable.kind == "categorical" and inputs_of(variable) > MOST_CATEGORIES:
                raise DataError(
                    f"column {variable.name!r} has {inputs_of(variable)} categories, more than {MOST_CATEGORIES}; merge rare ones or leave it out."
                )
        super().__init__(spec, seed=seed, **settings)
        clash = set(self.latent_names) & set(spec.names)
        if clash:
            raise DataError(f"the column {min(clash)!r} has the name of a latent; rename it.")

    def build(self) -> None:
        settings, shape = self.settings, self.spec.image_shape
        m, size = settings.latents, settings.embedding if settings.causal_module else settings.latents
        self.columns = [inputs_of(variable) for variable in self.spec.variables]
        kinds, total = [variable.kind for variable in self.spec.variables], sum(self.columns)
        if settings.network == "pairs":
            self.encoder: nn.Module = PairEncoder(shape, 2 * size, settings.channels)
        else:
            self.encoder = build_encoder(settings.network, shape, 2 * size, settings.channels, settings.hidden)
        self.embedding_decoder = self._make_decoder(size)
        if settings.causal_module:
            self.posterior_nets = PerNode(m, [size + total + 1, *settings.posterior_widths, 2])
            self.prior_nets = PerNode(m, [total, *settings.prior_widths, 2])
            self.decoder = self._make_decoder(m)
        owner = torch.repeat_interleave(torch.eye(len(kinds)), torch.tensor(self.columns), dim=1)  # (d, P)
        pairs = torch.eye(m, len(kinds)) if settings.pairing == "index" else torch.ones(m, len(kinds))
        self.register_buffer("pairs", pairs)  # (m, d)
        self.register_buffer("owner", owner)
        self.pairing_logits = nn.Parameter(torch.zeros(m, len(kinds))) if settings.causal_module and settings.pairing == "learned" else None
        self.register_buffer("fixed_pairing", pairs @ owner, persistent=False)
        self.register_buffer("is_paired", pairs.any(1)[:, None, None].float(), persistent=False)
        self.register_buffer("table_mean", torch.cat([torch.full((c,), mean) for c, (mean, _) in zip(self.columns, self._scales(), strict=True)]))
        self.register_buffer("table_scale", torch.cat([torch.full((c,), std) for c, (_, std) in zip(self.columns, self._scales(), strict=True)]))
        self.one_input_each = "categorical" not in kinds  # then all columns are made inputs at once
        for name, values in {
            "own_centre": [v.mean if v.kind == "continuous" else 0.5 for v in self.spec.variables],
            "own_scale": [v.std if v.kind == "continuous" else 0.5 for v in self.spec.variables],
            "is_binary": [v.kind == "binary" for v in self.spec.variables],
        }.items():
            self.register_buffer(name, torch.tensor(values), persistent=False)
        if self.one_input_each:
            self.register_buffer("table_centre", self.own_centre + self.own_scale * self.table_mean, persistent=False)
            self.register_buffer("table_unit", self.own_scale * self.table_scale, persistent=False)
        nodes = ["continuous"] * m + list(kinds), [1] * m + self.columns
        self.networks = NodeNetworks(*nodes, self._allowed(), settings.graph_widths, settings.activation, settings.graph_limit)
        self.standardiser = BatchNorm(m)
        self.standardiser.gain.requires_grad_(False)
        self.standardiser.shift.requires_grad_(False)
        self.every_latent_paired = bool(pairs.any(1).all())
        self.register_buffer("sides", torch.tensor([[-1.0], [1.0]]), persistent=False)  # of the cross-entropy: label 1, then label 0
        self.classifier = nn.Sequential(*dense_layers([m, *settings.classifier_widths, 1], nn.ELU)) if settings.contrast else None
        p = m + len(kinds)
        start = {
            "warm_up_steps": 0.0,
            "annealing_steps": 0.0,
            "first_weight": 1.0,
            "multiplier": 0.0,
            "penalty": 1.0,
            "last_cycles": torch.inf,
            "epochs_done": 0.0,
            "contrast_on": 0.0,
            "shaping": float(settings.shaping_start == 0),
        }
        for name, value in start.items():
            self.register_buffer(name, torch.tensor(value))
        self.register_buffer("edges", torch.zeros(p, p))  # that the contrast goes by
        self.register_buffer("influence", torch.zeros(p, p))
        self.register_buffer("margins", torch.zeros(len(kinds), m))  # nats for column -> latent, against it where negative
        self.register_buffer("label_bank", torch.zeros(LABEL_BANK, len(kinds)))

    def _make_decoder(self, inputs: int) -> nn.Module:
        settings, shape = self.settings, self.spec.image_shape
        if settings.network == "pairs":
            return PairDecoder(inputs, shape, settings.channels)
        return build_decoder(settings.network, inputs, shape, settings.channels, settings.hidden)

    def _scales(self) -> list[tuple[float, float]]:
        """Mean and spread of each column's inputs in the training split; of a category as if all were as frequent."""
        found = []
        for variable, columns in zip(self.spec.variables, self.columns, strict=True):
            if variable.kind == "binary":
                found.append((2 * variable.mean - 1, 2 * variable.std))
            else:
                found.append((1 / columns, (1 - 1 / columns) ** 0.5) if variable.kind == "categorical" and columns > 1 else (0.0, 1.0))
        return found

    def _allowed(self) -> Tensor:
        """(p, p): with `bipartite` only edges between a latent and a column."""
        m, p = self.settings.latents, self.settings.latents + len(self.columns)
        is_latent = torch.arange(p) < m
        return (is_latent[:, None] != is_latent[None]) if self.settings.bipartite else torch.ones(p, p, dtype=torch.bool)

    # ---- the model --------------------------------------------------------------------------------------------------
    def inputs(self, labels: Tensor) -> Tensor:
        """Labels (B, d) in their own units to u (B, P): standardised columns, one for each category of a categorical one."""
        if self.one_input_each:
            return (labels - self.table_centre) / self.table_unit
        columns = torch.cat([as_inputs(variable, labels[:, i]) for i, variable in enumerate(self.spec.variables)], dim=1)
        return (columns - self.table_mean) / self.table_scale

    def targets(self, labels: Tensor) -> Tensor:
        """Labels (B, d) to what the DAG predicts (B, P): standardised values, 0 / 1, or 0 / 1 for each category."""
        if self.one_input_each:
            return torch.where(self.is_binary, labels, (labels - self.own_centre) / self.own_scale)
        variables = enumerate(self.spec.variables)
        return torch.cat([labels[:, i, None] if v.kind == "binary" else as_inputs(v, labels[:, i]) for i, v in variables], dim=1)

    def embed(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """q(z0 | x): mean and log-variance, each (B, m0)."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        return mean, bounded(log_variance)

    @property
    def pairing(self) -> Tensor:
        """(m, P): how much of each input of u is shown to the networks of z_j, i(j) of Eq. 17."""
        return self.fixed_pairing if self.pairing_logits is None else torch.softmax(self.pairing_logits, dim=1) @ self.owner

    def prior(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """p(z | u), Eq. 18: mean and log-variance, each (B, m); N(0, 1) for a latent that is paired with no column."""
        found = self.prior_nets(u, self.prior_nets.layer_weights[0] * self.pairing[..., None])  # (m, B, 2)
        mean, log_variance = (found if self.every_latent_paired else found * self.is_paired).unbind(-1)
        return mean.T, bounded(log_variance.T)

    def posterior(self, z0: Tensor, u: Tensor | None = None, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """q(z | z0, u), Eq. 17: mean and log-variance, each (B, m); of u only the rows where `seen` (B, 1) is 1, none without it."""
        if u is None or seen is None:
            u, seen = (torch.zeros(len(z0), size, device=z0.device) for size in (self.owner.shape[1], 1))
        weights = self.posterior_nets.layer_weights[0]  # (m, m0 + 1 + P, hidden), of u only what belongs to z_j
        rest = weights.shape[1] - u.shape[1]
        shown = functional.pad(self.pairing, (rest, 0), value=1.0)[..., None]
        mean, log_variance = self.posterior_nets(torch.cat([z0, seen, u * seen], dim=1), weights * shown).unbind(-1)
        return mean.T, bounded(log_variance.T)

    def look(self, images: Tensor, labels: Tensor, generator: torch.Generator | None) -> Look:
        """z0 ~ q(z0 | x), then z ~ q(z | z0, u), u hidden from a share of the samples; without module 2, z is z0."""
        settings, u = self.settings, self.inputs(labels)
        embedding = self.embed(images)
        z0 = reparametrise(*embedding, generator)
        if not settings.causal_module:
            return Look(u, z0, embedding, torch.zeros_like(u[:, :1]), embedding, z0, embedding)
        seen = (torch.rand(len(images), 1, device=images.device, generator=generator) >= settings.label_dropout).float()
        given = z0.detach() if settings.detach_z0 else z0
        if settings.label_dropout == 0:
            posterior = unseen = self.posterior(given, u, seen)
        else:  # both in one pass
            mean, log_variance = self.posterior(given.repeat(2, 1), u.repeat(2, 1), torch.cat([seen, torch.zeros_like(seen)]))
            posterior, unseen = zip(mean.chunk(2), log_variance.chunk(2), strict=True)
        return Look(u, z0, embedding, seen, posterior, reparametrise(*posterior, generator), unseen)

    def generator_of(self, z: Tensor) -> Tensor:
        """g(z): latents (B, m) to the logits of a picture."""
        return self.decoder(z) if self.settings.causal_module else self.embedding_decoder(z)

    # ---- training ---------------------------------------------------------------------------------------------------
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 14: -L1 - L2 + L_DAG - L_CR."""
        settings, seen = self.settings, self.look(batch["images"], batch["labels"], generator)
        layers = self.networks.layers()
        graph = graph_terms(self, seen, batch["labels"], generator, layers)  # first: what follows goes by this batch's centre and spread
        acted = counterfactual_rows(self, seen, generator, layers.detach()) if settings.contrast else None
        pictures = self.generator_of(seen.z if acted is None else acted.z)
        output = pictures if acted is None else pictures.chunk(2)[1]
        embedding = embedding_terms(self, batch, seen, None if settings.causal_module else output)
        if not settings.causal_module:
            embedding["reconstruction"] = embedding["embedding_reconstruction"]
        causal = causal_terms(self, batch, seen, output) if settings.causal_module else {}
        contrast = {} if acted is None else contrast_terms(self, seen, acted, pictures, generator)
        weights = settings.embedding_weight, settings.causal_weight, settings.graph_weight, settings.contrast_weight
        parts = zip(weights, (embedding, causal, graph, contrast), strict=True)
        total = [terms.pop("loss") if weight == 1 else weight * terms.pop("loss") for weight, terms in parts if terms]
        return {"loss": torch.stack(total).sum(), **embedding, **causal, **graph, **contrast}

    def phases(self) -> list[Phase]:
        """Everything together, the DAG's own networks at a rate of their own; or (alternating) Algorithm 1, four steps on each batch."""
        settings = self.settings
        rate: dict[str, Any] = {"learning_rate": settings.learning_rate, "clip": settings.clip}
        shaped, made = ("encoder.", "posterior_nets."), ("prior_nets.", "decoder.", "pairing_logits")
        if settings.schedule == "joint":
            parts = (*shaped, *made, "embedding_decoder.", "classifier.", "networks.")
            players = [Player(self.loss, parts, own_rates=(("networks.", settings.graph_rate),), **rate)]
        else:
            first = self.embedding_loss if settings.causal_module else self.shaped_loss
            players = [Player(first, ("encoder.", "embedding_decoder."), "embedding", **rate)]
            players += [Player(self.shaped_loss, (*shaped, *made), "causal", **rate)] if settings.causal_module else []
            players += [Player(self.graph_loss, ("networks.",), "graph", **{**rate, "learning_rate": settings.graph_rate})]
            players += [Player(self.contrast_loss, ("classifier.",), "contrast", **rate)] if settings.contrast else []
        main = Phase(
            "images",
            tuple(players),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            schedule=settings.rate_schedule,
            prepare=partial(set_warm_up, self),
            after_step=partial(update_statistics, self),
            after_epoch=partial(tighten, self),
        )
        return [main, Phase("graph", prepare=partial(finish, self))]

    def embedding_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Step (a) of Algorithm 1: L1 is maximised."""
        return embedding_terms(self, batch, self.look(batch["images"], batch["labels"], generator))

    def causal_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """L2, where the paper prints (a) again; `shaped_loss` makes step (b) of it."""
        return causal_terms(self, batch, self.look(batch["images"], batch["labels"], generator))

    def shaped_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Step (b): L2 (L1 without module 2), and what (c) and (d) ask of the encoders: an Adam of its own would make full steps of that nat."""
        settings = self.settings
        own, weight = (self.causal_loss, settings.causal_weight) if settings.causal_module else (self.embedding_loss, settings.embedding_weight)
        terms = own(batch, generator)
        total = weight * terms["loss"] + settings.graph_weight * self.graph_loss(batch, generator)["loss"]
        if settings.contrast:
            total = total + settings.contrast_weight * self.contrast_loss(batch, generator)["loss"]
        return {**terms, "loss": total}

    def graph_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Step (c): L_DAG, by its networks."""
        return graph_terms(self, self.look(batch["images"], batch["labels"], generator), batch["labels"], generator)

    def contrast_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Step (d): -L_CR, by its classifier."""
        seen = self.look(batch["images"], batch["labels"], generator)
        acted = counterfactual_rows(self, seen, generator)
        return contrast_terms(self, seen, acted, self.generator_of(acted.z), generator)

    def check(self, data: Dataset) -> None:
        settings, columns = self.settings, len(self.spec.variables)
        paired = settings.causal_module and settings.pairing == "index"
        if columns > settings.latents and (paired or (settings.direction == "likelihood" and settings.one_each)):
            raise DataError(
                f"the table has {columns} columns, more than latents={settings.latents}, but each needs a latent of its own to have a link with; "
                f"set latents={columns} or more, leave columns out, or let latents share columns (pairing=full one_each=false)."
            )
        refuse_collinear(data.train.labels.double().cpu().numpy(), self.spec.names, [v.kind for v in self.spec.variables])

    def state_to_log(self) -> dict[str, Any]:
        state = {"cycles": float(self.networks.cycles().detach()), "multiplier": float(self.multiplier), "penalty": float(self.penalty)}
        return {"strengths": self.networks.strengths.cpu().tolist(), **state}
