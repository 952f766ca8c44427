"""A simulator is a structural causal model with a camera: noises -> variables -> image, and the TRUE counterfactual of any do()."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from intervae.causal.do import Do, interventions, propagate
from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.errors import DataError, UsageError

SMALLEST = 8  # pixels a side
OUT_OF_SIGHT = 1e6  # a variable is drawn as this where do() makes it larger: off every canvas, and safe to compute with


class Simulator(ABC):
    """Known mechanisms and a renderer.

    A subclass gives `name`, `variables`, `graph`, `exogenous_names`, the mechanisms, the renderer and the published grid.
    The image is drawn from the variables (not from the noises), so an intervention on an effect shows: do(shadow_length=3)
    draws that shadow under an unchanged light.
    """

    name: ClassVar[str]
    variables: ClassVar[tuple[Variable, ...]]
    graph: ClassVar[CausalGraph]
    exogenous_names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, e) independent draws of the noises, continuous over the published ranges."""

    @abstractmethod
    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """The authors' grid: noises (N, e), and the mask (N,) of their test images."""

    @abstractmethod
    def mechanism(self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]) -> np.ndarray:
        """The value (N,) of one variable from its parents' values and its own noise."""

    @abstractmethod
    def render(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64) -> np.ndarray:
        """(N, n) variables to (N, 3, size, size) uint8; `exogenous` carries what only the picture sees, such as a jet's wobble."""

    def simulate(self, exogenous: np.ndarray, do: Do | None = None) -> np.ndarray:
        """(N, e) noises to (N, n) variables, under an intervention if one is given: Pearl's action and prediction."""
        noises = dict(zip(self.exogenous_names, self._table(exogenous, self.exogenous_names, "noises").T, strict=True))
        order, parents = self.graph.topological_order, self.graph.parents
        factual: dict[str, np.ndarray] = {}
        for name in order:
            factual[name] = self.mechanism(name, factual, noises)
        after = propagate(factual, order, parents, lambda name, values: self.mechanism(name, values, noises), interventions(do, self.graph.names))
        return np.stack([after[v.name] for v in self.variables], axis=1)

    def counterfactual(self, exogenous: np.ndarray, do: Do, *, size: int = 64) -> tuple[np.ndarray, np.ndarray]:
        """What the same noises would have shown under `do`: images (N, 3, size, size) uint8 and variables (N, n)."""
        values = self.simulate(exogenous, do)
        return self.render(values, exogenous, size=size), values

    def dataset(self, *, size: int = 64, samples: int | None = None, validation: float = 0.1, seed: int = 0) -> Dataset:
        """The authors' grid and split, or `samples` continuous random draws (a quarter of them test) when that is given.

        `seed` draws the samples and the validation split; the published test split is the same for every seed.
        """
        return self._build(size=size, samples=samples, validation=validation, seed=seed)

    def _build(
        self,
        *,
        size: int,
        samples: int | None,
        validation: float,
        seed: int,
        label: Callable[[np.ndarray], np.ndarray] | None = None,
        **options: Any,
    ) -> Dataset:
        """`dataset`, with what a subclass adds: `label` turns the true values (N, n) into the labels given out, `options` are kept in the source."""
        if samples is None:
            exogenous, test = self.published_grid()
        else:
            if isinstance(samples, bool) or not isinstance(samples, int):
                raise UsageError(f"samples={samples!r} is not a whole number.")
            if samples < 8:
                raise UsageError(f"samples={samples} is too few to split into training, validation and test; use 8 or more.")
            exogenous = self.sample_exogenous(samples, np.random.default_rng(seed))
            test = np.arange(samples) % 4 == 0
        values = self.simulate(exogenous)
        return build_dataset(
            self.name,
            self.render(values, exogenous, size=size),
            values if label is None else label(values),
            self.variables,
            validation=validation,
            test=test,
            seed=seed,
            fields={"exogenous": exogenous},
            graph=self.graph,
            simulator=self,
            source={"name": self.name, "options": {"size": size, "samples": samples, "validation": validation, "seed": seed, **options}},
        )

    def _table(self, rows: Any, columns: Sequence[str], what: str) -> np.ndarray:
        """`rows` (an array or a tensor on any device) as (N, len(columns)) finite float64, or an error that says what is wrong."""
        table = np.asarray(rows.detach().cpu() if isinstance(rows, Tensor) else rows, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != len(columns):
            raise DataError(f"{self.name}: {what} must be (N, {len(columns)}), one column each for {', '.join(columns)}, not shape {table.shape}.")
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0]
            raise DataError(f"{self.name}: {what} must be finite, but {columns[column]!r} of sample {row} is {table[row, column]}.")
        return table

    def _values(self, values: Any, size: int) -> np.ndarray:
        """What a renderer is given, checked: (N, n) variables and a size that can show something."""
        if size < SMALLEST:
            raise UsageError(f"size={size} is too small to show anything; use {SMALLEST} or more.")
        return np.clip(self._table(values, self.graph.names, "variables"), -OUT_OF_SIGHT, OUT_OF_SIGHT)
