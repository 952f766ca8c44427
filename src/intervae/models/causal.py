"""Models that know causes: do(), counterfactuals in Pearl's three steps, and sampling under intervention, in the variables' own units."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from intervae.causal.do import Do, interventions, propagate
from intervae.causal.graph import CausalGraph
from intervae.models.base import Model, in_batches


class CausalModel(Model):
    """A model with a graph over its latents and a mechanism for each: z_i = mechanism_i(parents) + noise_i.

    A subclass gives `graph`, `mechanism`, `draw_noise`, and the units of its latents; the queries below are then the same for all.
    """

    @property
    @abstractmethod
    def graph(self) -> CausalGraph:
        """The causal graph over `latent_names`, acyclic."""

    @abstractmethod
    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """What the parents alone make of variable `index`: latents (B, n, k) to (B, k)."""

    @abstractmethod
    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, variables, k) draws of the noises, independent between variables."""

    def to_units(self, index: int, latent: Tensor) -> Tensor:
        """One variable's latent (B, k) to its value (B,) in its own units."""
        return latent.mean(-1)

    def from_units(self, index: int, value: Tensor, latent: Tensor) -> Tensor:
        """A value (B,) in the variable's own units to a latent like `latent` (B, k)."""
        return value[:, None].expand_as(latent)

    def _changed(self, index: int, change: Any, soft: bool, latent: Tensor) -> Tensor:
        """A latent (B, k) acted on: all its dims set (hard), or moved together by as much as the value changes (soft)."""
        before = self.to_units(index, latent)
        after = change(before)
        target = self.from_units(index, after, latent)
        return latent + (target - self.from_units(index, before, latent)) if soft else target

    # ---- queries ----------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def measure(self, images: Any, labels: Any = None) -> Tensor:
        """Which variables made this picture: images (B, C, H, W) to values (B, n) in the variables' own units."""
        latents = self.encode(images, labels)
        return torch.stack([self.to_units(i, latents[:, i]) for i in range(latents.shape[1])], dim=1)

    @torch.no_grad()
    def intervene(self, latents: Tensor, do: Do) -> Tensor:
        """Latents (B, n, k) had `do` been done: abduction of the noises, action, prediction of the descendants.

        A variable that is neither acted on nor a descendant of one that is keeps its latent bit for bit.
        """
        names, graph = self.latent_names, self.graph
        changes = interventions(do, names, self.spec.categories)
        noises: dict[str, Tensor] = {}

        def recompute(name: str, values: dict[str, Tensor]) -> Tensor:
            index = names.index(name)
            if name not in noises:  # abduction: what the factual parents leave unexplained
                noises[name] = latents[:, index] - self.mechanism(index, latents)
            return self.mechanism(index, torch.stack([values[n] for n in names], dim=1)) + noises[name]

        def action(name: str) -> Any:
            return lambda latent: self._changed(names.index(name), changes[name], callable(do[name]), latent)

        factual = {name: latents[:, i] for i, name in enumerate(names)}
        after = propagate(factual, graph.topological_order, graph.parents, recompute, {name: action(name) for name in changes})
        return torch.stack([after[name] for name in names], dim=1)

    @torch.no_grad()
    def counterfactual(self, images: Any, do: Do, labels: Any = None) -> Tensor:
        """The pictures (B, C, H, W) had `do` been done, everything else that made them staying as it was.

        `do` maps a name to a number in the variable's own units, to a category, to one number per image, or to a callable of the current value.
        """
        latents = self.encode(images, labels)
        return self.decode(self.intervene(latents, do))

    @torch.no_grad()
    def sample(self, n: int, do: Do | None = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W): noises drawn, passed through the mechanisms with `do` in force, decoded."""
        noise = self.draw_noise(n, self.sampling_generator(n, seed)).to(self.device)
        names, graph = self.latent_names, self.graph
        changes = interventions(do, names, self.spec.categories)
        latents = torch.zeros_like(noise)
        for name in graph.topological_order:
            i = names.index(name)
            value = self.mechanism(i, latents) + noise[:, i]
            if name in changes:
                value = self._changed(i, changes[name], callable(do[name]), value)  # type: ignore[index]
            latents = latents.clone()
            latents[:, i] = value
        return in_batches(self.decode, latents)
