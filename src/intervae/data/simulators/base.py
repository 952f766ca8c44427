"""`Simulator`: a known structural causal model with a renderer, and its true counterfactuals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from intervae.causal.do import Do, act, predict
from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.variables import Variable
from intervae.errors import DataError, UsageError

SMALLEST = 8  # pixels per side
MAX_SAMPLES = 100_000_000
LARGEST_VALUE = 1e6  # to which renderers clip variables; outside every canvas


class Simulator(ABC):
    """Known mechanisms and a renderer: noises -> variables -> images.

    A subclass defines `name`, `variables`, `graph`, `exogenous_names` and the abstract methods.
    Images are rendered from the variables, so do() on an effect is visible: do(shadow_length=3)
    draws that shadow under an unchanged light.

    `objects` maps each object of the image to the variables that draw it, for metrics of what do()
    must not change; every pixel that a variable can change belongs to an object of that variable. A
    simulator that names objects also defines `object_masks`.
    """

    name: ClassVar[str]
    variables: ClassVar[tuple[Variable, ...]]
    graph: ClassVar[CausalGraph]
    exogenous_names: ClassVar[tuple[str, ...]]
    objects: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # empty: not known
    without_true_image: ClassVar[tuple[str, ...]] = ()  # do() of these has no unique true image

    @abstractmethod
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw noises (n, e), independent and continuous over the published ranges."""

    @abstractmethod
    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the authors' grid: noises (N, e), and the mask (N,) of their test images."""

    @abstractmethod
    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        """Return the value (N,) of one variable from its parents' values and its noise."""

    @abstractmethod
    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> np.ndarray:
        """Render variables (N, n) to images (N, 3, size, size) uint8.

        Arguments:
            exogenous: noises (N, e), for what only the image shows, such as a jet's wobble.
        """

    def object_masks(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> dict[str, np.ndarray]:
        """Return object -> mask (N, size, size) bool of the images of `render`.

        A mask has the pixels that the object covers at all, also where another hides it.
        """
        raise UsageError(f"the simulator {self.name!r} does not name the objects that it draws.")

    def simulate(self, exogenous: np.ndarray, do: Do | None = None) -> np.ndarray:
        """Return the variables (N, n) of noises (N, e), under `do`: action and prediction."""
        table = self._table(exogenous, self.exogenous_names, "noises")
        noises = dict(zip(self.exogenous_names, table.T, strict=True))
        after = predict(
            self.graph,
            lambda name, values: self.mechanism(name, values, noises),
            act(do, self.graph.names),
        )
        return np.stack([after[v.name] for v in self.variables], axis=1)

    def counterfactual(
        self, exogenous: np.ndarray, do: Do, *, size: int = 64
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images (N, 3, size, size) uint8 and variables (N, n) of the noises under `do`."""
        values = self.simulate(exogenous, do)
        return self.render(values, exogenous, size=size), values

    def dataset(
        self, *, size: int = 64, samples: int | None = None, validation: float = 0.1, seed: int = 0
    ) -> Dataset:
        """Return the authors' grid and split, or random draws.

        Arguments:
            samples: number of random draws, a quarter of them for testing; None for the grid.
            seed: seed of the draws and of the validation split; the published test split is fixed.
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
        """Build the data set.

        Arguments:
            label: true values (N, n) -> labels; the identity by default.
            options: further options of a subclass, recorded in `Dataset.source`.
        """
        if samples is None:
            exogenous, test = self.published_grid()
        else:
            if isinstance(samples, bool) or not isinstance(samples, int):
                raise UsageError(f"samples={samples!r} is not a whole number.")
            if samples < 8:
                raise UsageError(
                    f"samples={samples} is too few to split into training, validation and test; "
                    "use 8 or more."
                )
            if samples > MAX_SAMPLES:
                raise UsageError(f"samples={samples} is more than {MAX_SAMPLES}; give fewer.")
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
            source={
                "name": self.name,
                "options": {
                    "size": size,
                    "samples": samples,
                    "validation": validation,
                    "seed": seed,
                    **options,
                },
            },
        )

    def _table(self, rows: Any, columns: Sequence[str], what: str) -> np.ndarray:
        """Return `rows`, an array or tensor, as (N, len(columns)) of finite float64."""
        table = np.asarray(
            rows.detach().cpu() if isinstance(rows, Tensor) else rows, dtype=np.float64
        )
        if table.ndim != 2 or table.shape[1] != len(columns):
            raise DataError(
                f"{self.name}: {what} must be (N, {len(columns)}), one column each for "
                f"{', '.join(columns)}, not shape {table.shape}."
            )
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0]
            raise DataError(
                f"{self.name}: {what} must be finite, but {columns[column]!r} of sample {row} is "
                f"{table[row, column]}."
            )
        return table

    def _values(self, values: Any, size: int) -> np.ndarray:
        """Check the arguments of a renderer; return the variables (N, n), clipped."""
        if size < SMALLEST:
            raise UsageError(f"size={size} is too small to show anything; use {SMALLEST} or more.")
        table = self._table(values, self.graph.names, "variables")
        return np.clip(table, -LARGEST_VALUE, LARGEST_VALUE)
