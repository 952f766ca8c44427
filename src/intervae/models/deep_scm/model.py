"""Deep structural causal model (Pawlowski et al. 2020): mechanisms of variables and of the picture.

The picture mechanism is a conditional VAE, the hierarchical one of De Sousa Ribeiro et al. 2023,
whose loss is -ELBO, or a flow, whose loss is the error of its velocity.
Shapes: B images, n variables, f features of variables (see `encode_values`).
Reduction: sum over pixels, latents and variables, mean over the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.causal.known_graph import as_graph
from intervae.causal.variable_types import encode_values, feature_slices
from intervae.data import Batch, Dataset, Spec
from intervae.errors import DataError, UsageError, unknown
from intervae.models.deep_scm.counterfactual_loss import counterfactual_loss
from intervae.models.deep_scm.predictor import VariablePredictor
from intervae.models.deep_scm.queries import DeepSCMQueries
from intervae.models.deep_scm.settings import DeepSCMSettings
from intervae.models.deep_scm.variables import GraphVariables
from intervae.models.label_graph import (
    NOT_LEARNED,
    check_graph,
    check_labels,
    default_method,
    graph_notes,
    learn_graph,
)
from intervae.models.open_directions import OpenDirections
from intervae.models.phases import Phase, Player, Terms
from intervae.models.training_classes import all_classes, mark_classes
from intervae.nets.flow_picture import FlowPicture
from intervae.nets.latent_pictures import LatentPictureMechanism, PixelDistribution
from intervae.nets.picture_mechanism import SMALLEST_SIDE
from intervae.nets.pictures import build_picture_mechanism
from intervae.notes import Note


class DeepSCM(OpenDirections, DeepSCMQueries):
    """Deep structural causal model over the labelled variables of `spec` and the picture.

    Arguments:
        spec: `data.spec`; its variables are continuous, binary or categorical; ordered
            categories have ordinal mechanisms.
        graph: a known `CausalGraph` over the variables, or a source of `DeepSCMSettings`.
        settings: see `DeepSCMSettings`.

    Latents (B, n, 1) are the variables in normalised units: standardised, -1 or +1, or the code of
    a category. Noise of a class is not determined by it: abduction draws it, with a fixed seed.
    """

    name = "deep-scm"
    title = (
        "Deep structural causal model (Pawlowski et al. 2020, De Sousa Ribeiro et al. 2023): "
        "mechanisms of labelled variables and of the picture, counterfactuals of real pictures"
    )
    Settings = DeepSCMSettings
    settings: DeepSCMSettings
    warm_up_steps: Tensor
    counterfactual_step: Tensor
    latent_fineness: Tensor
    accepts_missing_labels = True
    counterfactual_takes_labels = True
    # not in runs before these were stored
    optional_tensors = OpenDirections.optional_tensors | {
        "predictor.log_std",
        "counterfactual_step",
        *(
            f"predictor.quantiles.dense.{i}.{kind}"
            for i in (0, 2, 4)
            for kind in ("weight", "bias")
        ),
    }

    def __init__(self, spec: Spec, *, graph: Any = "auto", seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError(
                f"{self.name} learns from labels, but this data has none; "
                "give a labels.csv or another model."
            )
        graph = as_graph(graph, spec.names)
        if isinstance(graph, CausalGraph):
            self.known_graph, graph = check_graph(graph, spec), "given"
        if graph == "auto":
            graph = default_method(spec)
        super().__init__(spec, seed=seed, graph=graph, **settings)

    def initialise(self, seed: int) -> None:
        super().initialise(seed)
        if isinstance(self.picture, FlowPicture):  # a tenth to a fifth faster on a GPU
            self.picture.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def build(self) -> None:
        settings, spec = self.settings, self.spec
        self.variables = GraphVariables(
            spec.variables,
            bins=settings.bins,
            hidden=settings.mechanism_hidden,
            depth=settings.mechanism_layers,
        )
        self.make_open_directions()
        if self.known_graph is not None:
            self.variables.set_graph(self.known_graph)
        self.types = [self.variables.types[name] for name in spec.names]
        for name in settings.picture_parents:
            if name not in spec.names:
                raise unknown("variable in picture_parents", name, spec.names, UsageError)
        named = settings.picture_parents or spec.names
        self.picture_columns = [i for i, name in enumerate(spec.names) if name in named]
        self.predictor = VariablePredictor(
            spec.image_shape, self.types, settings.channels, settings.hidden, self._dropout()
        )
        colours, height, width = spec.image_shape
        parent_types = [self.types[i] for i in self.picture_columns]
        self.picture = build_picture_mechanism(
            settings.picture,
            (colours, max(height, SMALLEST_SIDE), max(width, SMALLEST_SIDE)),
            sum(kind.width for kind in parent_types),
            PixelDistribution(settings.likelihood, settings.pixel_scale),
            latents=settings.latents,
            channels=settings.channels,
            hidden=settings.hidden,
            widths=settings.widths,
            layers=settings.layers,
            encoder_blocks=settings.encoder_blocks,
            latent_noise=settings.latent_noise,
            patch=settings.patch,
            parent_scales=settings.parent_scales,
            dense_coarsest=settings.dense_coarsest,
            flow_widths=settings.flow_widths,
            flow_steps=settings.flow_steps,
            flow_noise_share=settings.flow_noise_share,
            flow_guidance=settings.flow_guidance,
            flow_hidden_classes=settings.flow_hidden_classes,
            classes=[
                columns
                for kind, columns in zip(parent_types, feature_slices(parent_types), strict=True)
                if kind.kind != "continuous"
            ],
        )
        self._check_guidance()
        shown = torch.tensor([name in named for name in spec.names])
        classes = torch.tensor([kind.kind != "continuous" for kind in self.types])
        self.register_buffer("guided", shown & classes, persistent=False)
        self.register_buffer("numbers", shown & ~classes, persistent=False)
        if settings.corrections and not self.numbers.any():
            raise UsageError("corrections need a number among the variables of the picture.")
        if settings.counterfactual_weight and not isinstance(self.picture, LatentPictureMechanism):
            raise UsageError(
                f"counterfactual_weight={settings.counterfactual_weight:g} needs picture=vae or "
                f"hvae; a training step of picture={settings.picture} makes no counterfactuals."
            )
        self.register_buffer("warm_up_steps", torch.zeros(()))
        self.register_buffer("counterfactual_step", torch.zeros(()))
        fineness = torch.tensor(self.picture.latent_fineness)
        self.register_buffer("latent_fineness", fineness, persistent=False)
        self.register_buffer("class_seen", all_classes(self.types))

    def _check_guidance(self) -> None:
        settings = self.settings
        for name, unused in (("flow_guidance", 1.0), ("flow_confidence", 0.0)):
            if settings.picture != "flow" and getattr(settings, name) != unused:
                raise UsageError(
                    f"{name}={getattr(settings, name):g} needs picture=flow; "
                    f"picture={settings.picture} has no guidance."
                )
        if settings.flow_confidence and settings.flow_guidance == 1:
            raise UsageError(
                f"flow_confidence={settings.flow_confidence:g} needs flow_guidance above 1, the "
                "largest that is tried, such as 12."
            )

    def _dropout(self) -> float:
        """Share that the predictor drops; it blurs numbers, and keeps classes from overfitting."""
        if self.settings.predictor_dropout is not None:
            return self.settings.predictor_dropout
        return 0.0 if any(kind.kind == "continuous" for kind in self.types) else 0.5

    # ---- loss ----------------------------------------------------------------------------------
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(variables) + loss of the picture given its variables - log q(variables | picture).

        A missing label has no term of its own; the picture gets what the predictor expects.
        """
        images = batch["images"]
        if self.settings.mirrored:
            images = mirror_half(images, generator)
        labels = self.spec.normalise(batch["labels"])  # (B, n)
        known = ~labels.isnan()
        values = torch.where(known, labels, 0.0)  # before any network: 0 * NaN is NaN
        outputs = self.predictor.outputs_for_training(images, generator)
        prediction = self.predictor.loss(outputs, values, known).sum(1).mean()
        variables = -self.variables.log_prob(values, known).sum(1).mean()
        with torch.no_grad():  # without dropout
            expected = self.predictor.features(
                self.predictor(images) if self.predictor.dropout else outputs
            )
        features = torch.where(
            known[:, self.variables.feature_owner], encode_values(values, self.types), expected
        )
        padded = self.pad(images)
        picture = self.picture.loss(padded, self.picture_parents(features), generator)
        error = picture.error.mean()
        kls = picture.layer_kl.mean(1)  # (layers,), none of a flow
        terms = {
            "loss": error + (self.kl_weights(batch) * kls).sum() + variables + prediction,
            self.picture.error_name: error,
            "kl": kls.sum(),
            "variables": variables,
            "prediction": prediction,
        }
        if self.settings.counterfactual_weight:
            terms["counterfactual"] = counterfactual_loss(
                self, picture.latents, values, known, generator
            ).mean()
            started = (batch["step"] >= self.counterfactual_step).to(error.dtype)
            weight = started * self.settings.counterfactual_weight
            terms["loss"] = terms["loss"] + weight * terms["counterfactual"]
        return terms

    def kl_weights(self, batch: Batch) -> Tensor:
        """Weights of the KLs of all latents at a step, (layers,).

        Geometric over the warm-up, from the first weights to `kl_weight`. First weights are
        geometric over the resolutions. With large ones the picture is first drawn from the
        variables, which cost nothing, and from coarse latents; else z, or its finest maps alone,
        also carry what the variables tell, and do() changes less.
        """
        settings = self.settings
        first = settings.first_kl_weight * settings.first_fine_kl_factor**self.latent_fineness
        share = (batch["step"] / (self.warm_up_steps + 1e-6)).clamp(0, 1)
        return first * (settings.kl_weight / first) ** share

    # ---- training ------------------------------------------------------------------------------
    def check(self, data: Dataset) -> None:
        check_labels(data, self.settings.graph)

    def notes(self, data: Dataset) -> list[Note]:
        return graph_notes(data, self.settings.graph)

    def phases(self) -> list[Phase]:
        """The graph, unless it is known, then all mechanisms and the predictor jointly."""
        settings = self.settings
        if settings.graph == "given" and self.known_graph is None:
            raise UsageError(
                "graph=given needs a graph: pass graph= (a CausalGraph), "
                "or --graph FILE or true on the command line."
            )
        rate = settings.learning_rate
        player = Player(
            self.loss,
            optimiser="adamw",
            learning_rate=rate,
            weight_decay=settings.weight_decay,
            # groups of their own, so that the large gradients of pixels do not clip them
            prefix_rates=(("variables.", rate), ("predictor.", rate)),
            clip=settings.clip,
        )
        main = Phase(
            "joint",
            (player,),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            schedule="cosine",
            prepare=self.prepare_training,
            patience=settings.patience,
            keep_best=settings.patience is not None,
            averaging=settings.averaging,
        )
        first = [] if settings.graph in NOT_LEARNED else [Phase("graph", prepare=self.learn_graph)]
        return [*first, main]

    def learn_graph(self, data: Dataset, seed: int) -> None:
        """Learn the edges from the training rows that have all labels."""
        result = learn_graph(data, self.settings.graph, seed)
        if result is None:
            return self.variables.set_graph(CausalGraph.empty(data.names))
        self.store_directions(result)
        graph = result.graph.to_acyclic()
        return self.variables.set_graph(CausalGraph.from_edges(data.names, graph.edges))

    def prepare_training(self, data: Dataset, seed: int) -> None:
        """Store when weights change, and which classes of each variable occur in training."""
        steps = self.settings.epochs * (len(data.train) // self.settings.batch_size)
        self.warm_up_steps.fill_(self.settings.warm_up * steps)
        self.counterfactual_step.fill_(self.settings.counterfactual_start * steps)
        labels = self.spec.normalise(data.train.labels.to(self.device))
        mark_classes(self.class_seen, labels, self.types)


def mirror_half(images: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return images (B, C, H, W), each of them mirrored left to right with probability 1/2."""
    draws = torch.rand(len(images), 1, device=images.device, generator=generator)
    return torch.where(draws[..., None, None] < 0.5, images.flip(-1), images)
