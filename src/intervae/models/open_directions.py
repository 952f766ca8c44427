"""Open directions of a learned graph: stored with the weights, and a warning before training."""

from __future__ import annotations

import warnings
from typing import ClassVar

import torch
from torch import Tensor

from intervae.discovery import Discovery, OpenDirectionWarning
from intervae.models.base import Model


class OpenDirections(Model):
    """A model whose graph may be learned from the labels of `spec`.

    The buffer `open_directions` (n, n) marks edges whose direction the labels do not determine.
    The model uses such an edge as it is in `graph`.
    """

    optional_tensors: ClassVar[frozenset[str]] = frozenset({"open_directions"})
    open_directions: Tensor

    def make_open_directions(self) -> None:
        n = len(self.spec.variables)
        self.register_buffer("open_directions", torch.zeros(n, n, dtype=torch.bool))

    def store_directions(self, result: Discovery) -> None:
        """Mark the open directions of a discovery, and warn about each of them."""
        names = self.spec.names
        self.open_directions.zero_()
        for cause, effect in result.open_directions:
            self.open_directions[names.index(cause), names.index(effect)] = True
        confidences = {(d.cause, d.effect): d for d in result.directions}
        for cause, effect in result.open_directions:
            direction = confidences.get((cause, effect))
            why = (
                f"confidence {direction.confidence:.0%}: {direction.reason}"
                if direction is not None and direction.is_open
                else "both directions fit equally well"
            )
            warnings.warn(
                OpenDirectionWarning(
                    f"the direction of {cause} -> {effect} is open ({why}); training uses "
                    f"{cause} -> {effect}, and do() would differ in the other direction: if you "
                    "know it, give the graph (graph=, --graph)"
                ),
                stacklevel=2,
            )

    @property
    def undirected_edges(self) -> tuple[tuple[str, str], ...]:
        """Edges (cause, effect) whose direction the labels leave open."""
        names, is_open = self.spec.names, self.open_directions
        return tuple(
            (cause, effect)
            for cause, effect, _ in self.graph.edges
            if is_open[names.index(cause), names.index(effect)]
        )
