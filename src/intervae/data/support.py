"""Support of the labels: which combinations of values occur in the training data.

A combination is off support if its nearest training row is farther away than the nearest other row
is for 98% of the training rows. Distances are Euclidean, of continuous variables in standard
deviations; another class counts as two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from intervae.data.dataset import Split
from intervae.data.variables import Variable
from intervae.files import write_bytes

FILE = "support.safetensors"  # of a run
MAX_ROWS = 1000
SHARE = 0.98  # of the training rows that are on support
OTHER_CLASS = 2.0  # distance between two classes, in standard deviations
ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class LabelSupport:
    """Training rows to compare with: `labels` (K, n) in the units of `variables`, none missing."""

    variables: tuple[Variable, ...]
    labels: np.ndarray

    @classmethod
    def of(cls, variables: Sequence[Variable], split: Split) -> LabelSupport | None:
        """Return the support of at most MAX_ROWS random rows; None with fewer than two."""
        complete = split.labels[~split.missing.any(1)].cpu().numpy().astype(np.float32)
        rows = np.random.default_rng(0).permutation(len(complete))[:MAX_ROWS]
        return (
            cls(tuple(variables), complete[np.sort(rows)]) if variables and len(rows) > 1 else None
        )

    def distances(self, values: np.ndarray, names: Sequence[str] | None = None) -> np.ndarray:
        """Return the distance (N,) of values (N, n) to the nearest row.

        Arguments:
            names: the variables to compare; by default all.
        """
        return _nearest(self.variables, values, self.labels, self._columns(names))

    def limit(self, names: Sequence[str] | None = None) -> float:
        """Return the distance beyond which a combination of these variables is off support."""
        return _limit(self, self._columns(names))

    def _columns(self, names: Sequence[str] | None) -> tuple[int, ...]:
        return tuple(i for i, v in enumerate(self.variables) if names is None or v.name in names)

    def write(self, run: Path) -> None:
        """Write the rows into a run folder."""
        write_bytes(run / FILE, save({"labels": np.ascontiguousarray(self.labels)}))

    @classmethod
    def read(cls, run: Path, variables: Sequence[Variable]) -> LabelSupport | None:
        """Return what `write` wrote; None where there is no such file for these variables."""
        try:
            labels = load_file(run / FILE)["labels"]
        except (OSError, SafetensorError, KeyError):
            return None
        fits = labels.ndim == 2 and labels.shape[1] == len(variables) and len(labels) > 1
        return cls(tuple(variables), labels) if fits and np.isfinite(labels).all() else None


@cache
def _limit(support: LabelSupport, columns: tuple[int, ...]) -> float:
    distances = _nearest(support.variables, support.labels, support.labels, columns, skip_self=True)
    return float(np.quantile(distances, SHARE))


def _nearest(
    variables: Sequence[Variable],
    values: np.ndarray,
    rows: np.ndarray,
    columns: tuple[int, ...],
    *,
    skip_self: bool = False,
) -> np.ndarray:
    """Return the distance (N,) of each of `values` (N, n) to the nearest of `rows` (K, n).

    With `skip_self`, row i is not compared with value i.
    """
    nearest = np.empty(len(values))
    for start in range(0, len(values), ROWS_AT_ONCE):
        chunk = values[start : start + ROWS_AT_ONCE]
        squares = np.zeros((len(chunk), len(rows)))
        for i in columns:
            variable = variables[i]
            difference = chunk[:, None, i] - rows[None, :, i]
            squares += (
                np.square(difference / variable.std)
                if variable.kind == "continuous"
                else OTHER_CLASS**2 * (np.abs(difference) >= 0.5)
            )
        if skip_self:
            at = np.arange(len(chunk))
            squares[at, start + at] = np.inf
        nearest[start : start + ROWS_AT_ONCE] = np.sqrt(squares.min(1))
    return nearest
