"""Queries of the deep structural causal model: abduction, action and prediction of both parts.

Variables: `GraphVariables`. Picture: z and pixel noise are abducted with the factual variables,
the picture is predicted with the new ones. Shapes: B images, n variables, f features.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from intervae.causal.do import Action, Do
from intervae.causal.graph import CausalGraph
from intervae.causal.variable_types import VariableType, encode_values
from intervae.errors import QueryError
from intervae.models.batches import in_batches
from intervae.models.causal import CausalModel
from intervae.models.deep_scm.predicted_pictures import predict_picture
from intervae.models.deep_scm.predictor import VariablePredictor
from intervae.models.deep_scm.settings import DeepSCMSettings
from intervae.models.deep_scm.variables import GraphVariables
from intervae.models.inputs import as_tensor
from intervae.models.training_classes import check_classes
from intervae.nets.picture_mechanism import SMALLEST_SIDE, PictureMechanism
from intervae.settings import check_whole

ABDUCTION_SEED = 0  # of noises that a value does not determine, so that a query repeats


class DeepSCMQueries(CausalModel):
    """Queries; a subclass builds the networks."""

    settings: DeepSCMSettings
    variables: GraphVariables
    predictor: VariablePredictor
    picture: PictureMechanism
    types: list[VariableType]
    picture_columns: list[int]
    class_seen: Tensor
    guided: Tensor
    numbers: Tensor

    # ---- variables -----------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return self.spec.names

    @property
    def graph(self) -> CausalGraph:
        """The known or learned graph of the variables; the picture is an effect of all of them."""
        return self.variables.graph

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Return the variables (B, n, 1) of images: their labels, else what the predictor reads.

        Arguments:
            labels: (B, n) in own units; NaN where a label is missing.
        """
        x = self.as_images(images)
        values = in_batches(lambda chunk: self.predictor.values(self.predictor(chunk)), x)
        if labels is not None:
            known = self.normalise_labels(self.as_labels(labels, x.shape[0]))
            values = torch.where(known.isnan(), values, known)
        return values[..., None]

    def normalise_labels(self, labels: Tensor) -> Tensor:
        """Return labels (B, n) in normalised units; an error for a class never seen in training."""
        values = self.spec.normalise(labels)
        if not torch.compiler.is_compiling():
            for i, value in enumerate(values.unbind(1)):
                self._check_classes(i, value[~value.isnan()], "labels")
        return values

    def _check_classes(self, index: int, values: Tensor, where: str) -> None:
        """Raise a QueryError for values (B,), in normalised units, that are no class."""
        variable, present = self.spec.variables[index], self.class_seen[index]
        check_classes(variable, self.types[index], present, values, where)

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """Return the median of variable `index` given its parents, or its most probable class.

        (B, n, 1) to (B, 1).
        """
        return self.variables.median(self.spec.names[index], self._values(latents))[:, None]

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw noises (n, variables, k): k the largest number of classes, the rest 0."""
        return self.variables.pack(self.variables.draw_noise(n, generator))

    @torch.no_grad()
    def log_likelihood(self, labels: Any) -> Tensor:
        """Return log p(variable | its parents) in nats, (B, n), of labels (B, n) in own units.

        Densities are per unit of a continuous variable. 0 where the variable or a parent is NaN.
        """
        table = as_tensor(labels, "labels")
        values = self.normalise_labels(self.as_labels(table, len(table) if table.ndim > 1 else 1))
        log_prob = self.variables.log_prob(values)
        log_scales = [
            math.log(variable.std) if variable.kind == "continuous" else 0.0
            for variable in self.spec.variables
        ]
        scored = self.variables.scored(~values.isnan())
        return torch.where(scored, log_prob - log_prob.new_tensor(log_scales), 0.0)

    # ---- do() ----------------------------------------------------------------------------------
    @torch.no_grad()
    def intervene(self, latents: Tensor, do: Do) -> Tensor:
        """Return the variables (B, n, 1) under `do`, by Pearl's three steps.

        A variable that is neither acted on nor a descendant keeps its value bit for bit.
        """
        factual, actions = self._values(latents), self._actions(do)
        noises = self.variables.abduct(factual, torch.Generator().manual_seed(ABDUCTION_SEED))
        return self.variables.predict(noises, _on_columns(actions), factual)[..., None]

    def _act_on(self, index: int, action: Action, latent: Tensor) -> Tensor:
        target = super()._act_on(index, action, latent)
        self._check_classes(index, target[:, 0], "do()")
        return target

    # ---- pictures ------------------------------------------------------------------------------
    @property
    def pixel_temperature(self) -> float:
        """Share of an image's own pixel noise that `counterfactual` keeps by default."""
        return self.settings.pixel_temperature

    @torch.no_grad()
    def counterfactual(
        self,
        images: Any,
        do: Do,
        labels: Any = None,
        *,
        latent_temperature: float | None = None,
        pixel_temperature: float | None = None,
        corrections: int | None = None,
    ) -> Tensor:
        """Return the images (B, C, H, W) under `do`, with the noises of each image unchanged.

        An empty do() returns the reconstruction, and with pixel_temperature=1 the images.

        Arguments:
            do: name -> number in the variable's own units, category, one number per image, or
                a callable of the current value.
            labels: (B, n) of the images in own units, NaN where missing; what is missing is
                predicted from the image.
            latent_temperature: spread of the abducted z, relative to its posterior; by default the
                setting, which is 0 (the mean) by default.
            pixel_temperature: share of the abducted pixel noise; likewise, 0 by default.
            corrections: times that numbers are read and corrected; likewise, 0 by default.
        """
        self.check_trained()
        before = self.encode(images, labels)
        after = self.intervene(before, do)
        settings = self.settings
        spread = settings.latent_temperature if latent_temperature is None else latent_temperature
        share = settings.pixel_temperature if pixel_temperature is None else pixel_temperature
        times = settings.corrections if corrections is None else corrections
        check_whole(0, QueryError, corrections=times)
        generator = torch.Generator().manual_seed(ABDUCTION_SEED)

        def exchange(x: Tensor, old: Tensor, new: Tensor) -> Tensor:
            own = self.parents(old)
            noise = self.picture.abduct(self.pad(x), own, generator, spread)
            return predict_picture(self, noise, old, new, share, times)

        return in_batches(exchange, self.as_images(images), before[..., 0], after[..., 0])

    def reconstruct(self, images: Any, labels: Any = None) -> Tensor:
        """Return the counterfactual (B, C, H, W) of an empty do()."""
        return self.counterfactual(images, {}, labels)

    @torch.no_grad()
    def abduct_picture(self, images: Any, labels: Any = None) -> dict[str, Tensor]:
        """Return the noise (B, D) of images and the factual variables (B, n), for `decode`."""
        x, values = self.as_images(images), self.encode(images, labels)[..., 0]
        generator = torch.Generator().manual_seed(ABDUCTION_SEED)
        temperature = self.settings.latent_temperature

        def abduct(chunk: Tensor, v: Tensor) -> Tensor:
            noise = self.picture.abduct(self.pad(chunk), self.parents(v), generator, temperature)
            return self.picture.pack(noise)

        return {"noise": in_batches(abduct, x, values), "factual": values}

    @torch.no_grad()
    def decode(
        self, latents: Tensor, noise: Tensor | None = None, factual: Tensor | None = None
    ) -> Tensor:
        """Return images (B, C, H, W) of variables (B, n, 1).

        Arguments:
            noise: (B, D) of `abduct_picture`; by default z is the mean of its prior.
            factual: (B, n), the variables with which it was abducted, likewise; guidance and
                corrections read from them what has changed, so without them nothing has.
        """
        values = self._values(latents)
        if noise is None:
            return in_batches(
                lambda v: self.crop(self.picture.sample(self.parents(v), None, 0.0)), values
            )
        factual = values if factual is None else factual
        size = self.picture.noise_size
        if tuple(noise.shape) != (len(values), size) or factual.shape != values.shape:
            raise QueryError(
                f"noise {tuple(noise.shape)} and factual {tuple(factual.shape)} must be "
                f"{(len(values), size)} and {tuple(values.shape)}, as abduct_picture returns them."
            )
        pixels = self.settings.pixel_temperature

        def predict(v: Tensor, u: Tensor, old: Tensor) -> Tensor:
            noises = self.picture.unpack(u)
            return predict_picture(self, noises, old, v, pixels, self.settings.corrections)

        return in_batches(predict, values, noise, factual)

    @torch.no_grad()
    def sample(self, n: int, do: Do | None = None, *, seed: int | None = None) -> Tensor:
        """Draw `n` images (n, C, H, W): variables under `do`, z from its prior.

        Pixel noise is added with `pixel_temperature`.
        """
        generator = self.sampling_generator(n, seed)
        noises = self.variables.unpack(self.draw_noise(n, generator).to(self.device))
        values = self.variables.predict(noises, _on_columns(self._actions(do)))
        temperature = self.settings.pixel_temperature

        def draw(v: Tensor) -> Tensor:
            return self.crop(self.picture.sample(self.parents(v), generator, 1.0, temperature))

        return in_batches(draw, values)

    def parents(self, values: Tensor) -> Tensor:
        """Return the features that the picture depends on, of values (B, n)."""
        return self.picture_parents(encode_values(values, self.types))

    def picture_parents(self, features: Tensor) -> Tensor:
        """Return the features that the picture depends on, of those (B, f) of all variables."""
        slices = [self.predictor.slices[i] for i in self.picture_columns]
        return torch.cat([features[:, columns] for columns in slices], dim=1)

    def pad(self, images: Tensor) -> Tensor:
        """Repeat the last rows and columns of pictures that are too small for the mechanism."""
        below, right = (max(0, SMALLEST_SIDE - side) for side in images.shape[-2:])
        if not below and not right:
            return images
        return functional.pad(images, (0, right, 0, below), mode="replicate")

    def crop(self, images: Tensor) -> Tensor:
        """Remove the padding."""
        _, height, width = self.spec.image_shape
        return images[..., :height, :width]

    def _values(self, latents: Any) -> Tensor:
        """Return the values (B, n) of latents (B, n, 1), checked."""
        values = self.as_latents(latents)
        if values.shape[2] != 1:
            raise QueryError(
                f"the variables of {self.name} have one dim each, not {values.shape[2]}; "
                "give them as (images, variables, 1)."
            )
        return values[..., 0]


def _on_columns(actions: dict[str, Action]) -> dict[str, Action]:
    """Return actions on latents (B, 1) as actions on values (B,)."""

    def on_column(action: Action) -> Action:
        return lambda value: action(value[:, None])[:, 0]

    return {name: on_column(action) for name, action in actions.items()}
