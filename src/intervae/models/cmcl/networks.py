"""Networks of CMCL (Mao et al. 2022, App. D.2): both encoders, the prior, both decoders.

Module 1 embeds an image: q(z0 | x), Eq. 5. Module 2 turns the embedding into causal latents:
q(z | z0, u), Eq. 17, under the prior p(z | u), Eq. 18. The DAG's networks (Eqs. 8-10) are
`intervae.nets.node_networks.NodeNetworks`.
Shapes: B images, m latents z, embedding z0 of size m0, d columns u with P inputs in all (one per
number, one per category), p = m + d nodes in the order [z, u].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.errors import QueryError
from intervae.models.base import Model
from intervae.models.batches import in_batches
from intervae.models.ivae import encode_variable, input_width
from intervae.nets.images import build_decoder, build_encoder, dense_layers
from intervae.nets.node_networks import NodeNetworks
from intervae.nets.norm import EPSILON, BatchNorm
from intervae.nets.paired_convolutions import PairDecoder, PairEncoder
from intervae.nets.per_node import PerNode

LABEL_BANK = 2048  # rows of the training table that the model stores; sample() draws from them
CLASSIFIER_WIDTHS = (10, 10, 10)  # hidden layers of the contrast's classifier D


def clamp_log_variance(log_variance: Tensor) -> Tensor:
    """Clamp to [-12, 8]; the gradient of hardtanh is a single operation."""
    return functional.hardtanh(log_variance, -12.0, 8.0)


class CMCLNetworks(Model):
    """Networks and buffers of CMCL; the subclass `CMCL` adds losses and queries."""

    pairing_logits: Tensor | None
    classifier: nn.Module | None

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the p nodes: the latents, then the columns."""
        return (*self.latent_names, *self.spec.names)

    # ---- construction ----------------------------------------------------------------------------
    def build(self) -> None:
        settings, m = self.settings, self.settings.latents
        kinds: list[str] = [variable.kind for variable in self.spec.variables]
        self.input_sizes = [input_width(variable) for variable in self.spec.variables]
        self._build_modules(sum(self.input_sizes))
        self._build_pairing()
        self._build_column_scales()
        self.networks = NodeNetworks(
            ["continuous"] * m + kinds,
            [1] * m + self.input_sizes,
            self._allowed_edges(),
            settings.graph_widths,
            settings.activation,
            settings.graph_limit,
        )
        self.standardiser = BatchNorm(m)
        self.standardiser.gain.requires_grad_(False)
        self.standardiser.shift.requires_grad_(False)
        self.classifier = None
        if settings.contrast:
            self.classifier = nn.Sequential(*dense_layers([m, *CLASSIFIER_WIDTHS, 1], nn.ELU))
        self._build_state(m, len(kinds))

    def _build_modules(self, inputs: int) -> None:
        """Module 1 and, unless ablated, module 2; `inputs` is P."""
        settings, shape, m = self.settings, self.spec.image_shape, self.settings.latents
        size = settings.embedding if settings.causal_module else m
        if settings.network == "pairs":
            self.encoder: nn.Module = PairEncoder(shape, 2 * size, settings.channels)
        else:
            self.encoder = build_encoder(
                settings.network, shape, 2 * size, settings.channels, settings.hidden
            )
        self.embedding_decoder = self._build_decoder(size)
        if settings.causal_module:
            self.posterior_nets = PerNode(m, [size + inputs + 1, *settings.posterior_widths, 2])
            self.prior_nets = PerNode(m, [inputs, *settings.prior_widths, 2])
            self.decoder = self._build_decoder(m)

    def _build_decoder(self, inputs: int) -> nn.Module:
        settings, shape = self.settings, self.spec.image_shape
        if settings.network == "pairs":
            return PairDecoder(inputs, shape, settings.channels)
        return build_decoder(settings.network, inputs, shape, settings.channels, settings.hidden)

    def _build_pairing(self) -> None:
        """Which columns the networks of each latent see, i(j) of Eq. 17."""
        settings, m, d = self.settings, self.settings.latents, len(self.input_sizes)
        owner = torch.repeat_interleave(torch.eye(d), torch.tensor(self.input_sizes), dim=1)
        pairs = torch.eye(m, d) if settings.pairing == "index" else torch.ones(m, d)
        self.register_buffer("pairs", pairs)  # (m, d)
        self.register_buffer("owner", owner)  # (d, P), 1 where an input belongs to a column
        self.pairing_logits = None
        if settings.causal_module and settings.pairing == "learned":
            self.pairing_logits = nn.Parameter(torch.zeros(m, d))
        self.register_buffer("fixed_pairing", pairs @ owner, persistent=False)  # (m, P)
        self.register_buffer("is_paired", pairs.any(1)[:, None, None].float(), persistent=False)
        self.all_latents_paired = bool(pairs.any(1).all())

    def _build_column_scales(self) -> None:
        """Means and standard deviations by which the columns are standardised."""
        variables = self.spec.variables
        per_input = [
            s for s, n in zip(self._input_scales(), self.input_sizes, strict=True) for _ in range(n)
        ]
        self.register_buffer("table_mean", torch.tensor([mean for mean, _ in per_input]))  # (P,)
        self.register_buffer("table_scale", torch.tensor([std for _, std in per_input]))  # (P,)
        # without categorical columns P = d, and all columns are standardised in one operation
        self.one_input_per_column = all(v.kind != "categorical" for v in variables)
        for name, values in {  # (d,) each
            "target_mean": [v.mean if v.kind == "continuous" else 0.5 for v in variables],
            "target_scale": [v.std if v.kind == "continuous" else 0.5 for v in variables],
            "is_binary": [v.kind == "binary" for v in variables],
        }.items():
            self.register_buffer(name, torch.tensor(values), persistent=False)
        if self.one_input_per_column:
            label_mean = self.target_mean + self.target_scale * self.table_mean
            self.register_buffer("label_mean", label_mean, persistent=False)  # (d,)
            label_scale = self.target_scale * self.table_scale
            self.register_buffer("label_scale", label_scale, persistent=False)  # (d,)

    def _input_scales(self) -> list[tuple[float, float]]:
        """Mean and standard deviation of the inputs of each column in the training split.

        Categories are treated as equally frequent.
        """
        scales = []
        for variable, n in zip(self.spec.variables, self.input_sizes, strict=True):
            if variable.kind == "binary":
                scales.append((2 * variable.mean - 1, 2 * variable.std))
            elif variable.kind == "categorical" and n > 1:
                scales.append((1 / n, (1 - 1 / n) ** 0.5))
            else:
                scales.append((0.0, 1.0))
        return scales

    def _allowed_edges(self) -> Tensor:
        """(p, p) of bools: with `bipartite`, edges between a latent and a column only."""
        m, p = self.settings.latents, self.settings.latents + len(self.input_sizes)
        if not self.settings.bipartite:
            return torch.ones(p, p, dtype=torch.bool)
        is_latent = torch.arange(p) < m
        return is_latent[:, None] != is_latent[None]

    def _build_state(self, m: int, d: int) -> None:
        """Buffers that change during training (schedule.py) and after it (final_graph.py)."""
        initial = {
            "warm_up_steps": 0.0,
            "annealing_steps": 0.0,
            "first_weight": 1.0,  # KL weight at which annealing starts
            "multiplier": 0.0,  # alpha of the augmented Lagrangian
            "penalty": 1.0,  # rho of the augmented Lagrangian
            "last_cycles": torch.inf,  # h(W) after the previous epoch
            "epochs_done": 0.0,
            "contrast_on": 0.0,
            "shaping": float(self.settings.dag_gradient_start == 0),  # 1: L_DAG reaches the encoder
        }
        for name, value in initial.items():
            self.register_buffer(name, torch.tensor(value))
        p = m + d
        self.register_buffer("edges", torch.zeros(p, p))  # 0 / 1, used by the contrast and by f
        self.register_buffer("influence", torch.zeros(p, p))  # edge strengths of `graph`
        self.register_buffer("margins", torch.zeros(d, m))  # nats for column -> latent
        self.register_buffer("label_bank", torch.zeros(LABEL_BANK, d))
        signs = torch.tensor([[-1.0], [1.0]])  # of the logits in the cross-entropy: label 1, 0
        self.register_buffer("contrast_signs", signs, persistent=False)

    # ---- columns ---------------------------------------------------------------------------------
    def inputs(self, labels: Tensor) -> Tensor:
        """Standardise labels (B, d) in their own units to u (B, P)."""
        if self.one_input_per_column:
            return (labels - self.label_mean) / self.label_scale
        columns = [encode_variable(v, labels[:, i]) for i, v in enumerate(self.spec.variables)]
        return (torch.cat(columns, dim=1) - self.table_mean) / self.table_scale

    def targets(self, labels: Tensor) -> Tensor:
        """Targets of the DAG's networks (B, P): standardised numbers, 0 / 1, or one-hot codes."""
        if self.one_input_per_column:
            standardised = (labels - self.target_mean) / self.target_scale
            return torch.where(self.is_binary, labels, standardised)
        columns = [
            labels[:, i, None] if v.kind == "binary" else encode_variable(v, labels[:, i])
            for i, v in enumerate(self.spec.variables)
        ]
        return torch.cat(columns, dim=1)

    @property
    def latent_mean(self) -> Tensor:
        """(m,) mean of the latents: of the last batch during training, else the running one."""
        batch = self.standardiser.batch_statistics if self.training else None
        return self.standardiser.mean if batch is None else batch[0]

    @property
    def latent_std(self) -> Tensor:
        """(m,) standard deviation of the latents, like `latent_mean`."""
        batch = self.standardiser.batch_statistics if self.training else None
        return torch.sqrt(self.standardiser.variance + EPSILON) if batch is None else 1 / batch[1]

    # ---- module 1 --------------------------------------------------------------------------------
    def embed(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """q(z0 | x), Eq. 5: mean and log-variance, (B, m0) each."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        return mean, clamp_log_variance(log_variance)

    # ---- module 2 --------------------------------------------------------------------------------
    @property
    def pairing(self) -> Tensor:
        """(m, P) weight of each input of u in the networks of z_j, i(j) of Eq. 17."""
        if self.pairing_logits is None:
            return self.fixed_pairing
        return torch.softmax(self.pairing_logits, dim=1) @ self.owner

    def prior(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """p(z | u), Eq. 18: mean and log-variance, (B, m) each.

        A latent that is paired with no column has the prior N(0, 1).
        """
        first_layer = self.prior_nets.layer_weights[0] * self.pairing[..., None]
        outputs = self.prior_nets(u, first_layer)  # (m, B, 2)
        if not self.all_latents_paired:
            outputs = outputs * self.is_paired
        mean, log_variance = outputs.unbind(-1)
        return mean.T, clamp_log_variance(log_variance.T)

    def posterior(
        self, z0: Tensor, u: Tensor | None = None, labels_visible: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """q(z | z0, u), Eq. 17: mean and log-variance, (B, m) each.

        Arguments:
            u: (B, P); None hides all labels.
            labels_visible: (B, 1) of 0 and 1; u is hidden in rows of 0.
        """
        if u is None or labels_visible is None:
            u = torch.zeros(z0.shape[0], self.owner.shape[1], device=z0.device)
            labels_visible = torch.zeros(z0.shape[0], 1, device=z0.device)
        weights = self.posterior_nets.layer_weights[0]  # (m, m0 + 1 + P, hidden)
        unmasked = weights.shape[1] - u.shape[1]
        mask = functional.pad(self.pairing, (unmasked, 0), value=1.0)[..., None]
        inputs = torch.cat([z0, labels_visible, u * labels_visible], dim=1)
        mean, log_variance = self.posterior_nets(inputs, weights * mask).unbind(-1)
        return mean.T, clamp_log_variance(log_variance.T)

    def image_logits(self, z: Tensor) -> Tensor:
        """g(z): latents (B, m) to the logits of images (B, C, H, W)."""
        return self.decoder(z) if self.settings.causal_module else self.embedding_decoder(z)

    # ---- encode and decode -----------------------------------------------------------------------
    @property
    def needs_labels(self) -> bool:
        return self.settings.causal_module and self.settings.label_dropout == 0

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Posterior means (B, m, 1) of images (B, C, H, W), with labels (B, d) or without."""
        x = self.as_images(images)
        if not self.settings.causal_module:
            return in_batches(lambda part: self.embed(part)[0], x)[..., None]
        if labels is not None:
            u = self.inputs(self.as_labels(labels, x.shape[0]))
            return in_batches(
                lambda x, u: self.posterior(self.embed(x)[0], u, self.labels_visible(u))[0], x, u
            )[..., None]
        if self.needs_labels:
            raise QueryError(
                f"this {self.name} was made with label_dropout=0, so its encoder needs the labels: "
                "pass labels=, or make it with label_dropout=0.5."
            )
        return in_batches(lambda part: self.posterior(self.embed(part)[0])[0], x)[..., None]

    def labels_visible(self, u: Tensor) -> Tensor:
        """(B, 1) of 1, or of 0 where the encoder was trained without any labels."""
        return torch.full_like(u[:, :1], float(self.settings.label_dropout < 1))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        z = self.as_latents(latents)
        if z.shape[2] != 1:
            raise QueryError(
                f"the latents of {self.name} have one dim each, these have {z.shape[2]}; "
                "give them as (images, latents, 1)."
            )
        return in_batches(lambda part: torch.sigmoid(self.image_logits(part)), z[..., 0])
