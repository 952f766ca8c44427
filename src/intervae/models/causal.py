"""Causal models: do(), counterfactuals in Pearl's three steps, sampling under intervention."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from intervae.causal.do import (
    Action,
    Do,
    Equation,
    MaskedAction,
    SoftAction,
    Values,
    abduct,
    act,
    predict,
)
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Variable
from intervae.models.base import Model


class CausalModel(Model):
    """A model with a graph over its latents and additive noise: z_i = f_i(parents) + noise_i.

    A subclass defines `graph`, `mechanism` and `draw_noise`. A latent that has the name of a label
    is the normalised label, so do() and measure() use the label's units.
    """

    # True for generic names (z0, z1, ...): a label that happens to have one is another variable
    anonymous_latents: ClassVar[bool] = False

    @property
    @abstractmethod
    def graph(self) -> CausalGraph:
        """The causal graph over `latent_names`, acyclic."""

    @abstractmethod
    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """Return f_i of variable `index`: latents (B, n, k) to (B, k)."""

    @abstractmethod
    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the noises (n, variables, k), independent between variables."""

    # ---- units --------------------------------------------------------------------------------
    def to_units(self, index: int, latent: Tensor) -> Tensor:
        """Convert one variable's latent (B, k) to its value (B,).

        The value is in the units of the label of the same name, else the mean of the latent.
        """
        variable, value = self._label(index), latent.mean(-1)
        return value if variable is None else variable.denormalise(value)

    def from_units(self, index: int, value: Tensor, latent: Tensor) -> Tensor:
        """Convert a value (B,) to a latent like `latent` (B, k); the inverse of `to_units`."""
        variable = self._label(index)
        value = value if variable is None else variable.normalise(value)
        return value[:, None].expand_as(latent)

    def _label(self, index: int) -> Variable | None:
        """Return the label that a latent is named after."""
        variables = () if self.anonymous_latents else self.spec.variables
        name = self.latent_names[index]
        return next((variable for variable in variables if variable.name == name), None)

    # ---- queries ------------------------------------------------------------------------------
    @torch.no_grad()
    def measure(self, images: Any, labels: Any = None) -> Tensor:
        """Measure the variables of images (B, C, H, W): values (B, n), see `to_units`."""
        self.check_trained()
        latents = self.encode(images, labels)
        values = [self.to_units(i, latents[:, i]) for i in range(latents.shape[1])]
        return torch.stack(values, dim=1)

    @torch.no_grad()
    def counterfactual(self, images: Any, do: Do, labels: Any = None) -> Tensor:
        """Return the images (B, C, H, W) under `do`, with the noises of each image unchanged.

        Arguments:
            do: name -> number in the variable's own units, category, one number per image, or
                a callable of the current value.
        """
        self.check_trained()
        after = self.intervene(self.encode(images, labels), do)
        return self.decode(after, **self.abduct_picture(images))

    def abduct_picture(self, images: Any) -> dict[str, Tensor]:
        """Return what images show beside their latents, as arguments of `decode`.

        do() leaves it as it is. Empty where the latents determine the image.
        """
        return {}

    def draw_picture(self, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw what n images show beside their latents, as arguments of `decode`."""
        return {}

    def reconstruct(self, images: Any, labels: Any = None) -> Tensor:
        """Encode and decode images (B, C, H, W)."""
        return self.decode(self.encode(images, labels), **self.abduct_picture(images))

    @torch.no_grad()
    def intervene(self, latents: Tensor, do: Do) -> Tensor:
        """Return the latents (B, n, k) under `do`, by Pearl's three steps.

        A variable that is neither acted on nor a descendant keeps its latent bit for bit.
        """
        graph, names = self.graph, self.latent_names
        factual = dict(zip(names, latents.unbind(1), strict=True))
        mechanism = self._mechanism_by_name(latents[:, 0])
        noises = abduct(factual, mechanism, [name for name in names if graph.parents(name)])
        actions = self._actions(do)
        after = predict(
            graph,
            lambda name, values: mechanism(name, values) + noises[name],
            actions,
            factual,
        )
        return torch.stack([after[name] for name in factual], dim=1)

    @torch.no_grad()
    def sample(self, n: int, do: Do | None = None, *, seed: int | None = None) -> Tensor:
        """Draw `n` images (n, C, H, W): noises, then mechanisms with `do` in force, decoded."""
        generator = self.sampling_generator(n, seed)
        drawn = self.draw_noise(n, generator).to(self.device)
        noises = dict(zip(self.latent_names, drawn.unbind(1), strict=True))
        mechanism = self._mechanism_by_name(drawn[:, 0])
        values = predict(
            self.graph,
            lambda name, values: mechanism(name, values) + noises[name],
            self._actions(do),
        )
        latents = torch.stack([values[name] for name in noises], dim=1)
        return self.decode(latents, **self.draw_picture(n, generator))

    # ---- do() on latents ----------------------------------------------------------------------
    def _mechanism_by_name(self, like: Tensor) -> Equation:
        """Return (name, values) -> f_i(values), (B, k); a variable without a value yet is 0."""
        names, zero = self.latent_names, torch.zeros_like(like)

        def mechanism(name: str, values: Values) -> Tensor:
            latents = torch.stack([values.get(each, zero) for each in names], dim=1)
            return self.mechanism(names.index(name), latents)

        return mechanism

    def _actions(self, do: Do | None) -> dict[str, Action]:
        """Return the actions of `do`, which is in units, as actions on latents (B, k)."""
        names = self.latent_names
        actions = act(do, names, self.spec.categories)
        return {
            name: partial(self._act_on, names.index(name), action)
            for name, action in actions.items()
        }

    def _act_on(self, index: int, action: Action, latent: Tensor) -> Tensor:
        """Set all k dims of a latent (hard), or shift them by the change of its value (soft)."""
        value = self.to_units(index, latent)
        target = self.from_units(index, action(value), latent)
        if isinstance(action, SoftAction):
            return latent + (target - self.from_units(index, value, latent))
        if isinstance(action, MaskedAction):
            return torch.where(action.mask[:, None], target, latent)
        return target

    # ---- figures ------------------------------------------------------------------------------
    def figures(self, data: Dataset) -> dict[str, Callable[[Path], None]]:
        """Return figures of values and interventions, if the latents are the labels of images."""
        from intervae.models.causal_figures import draw_interventions, draw_sweep, draw_variables

        if self.latent_names != data.names or data.spec.frames is not None:
            return {}
        return {
            "variables.png": partial(draw_variables, self, data),
            "interventions.png": partial(draw_interventions, self, data),
            "sweep.png": partial(draw_sweep, self, data),
        }
