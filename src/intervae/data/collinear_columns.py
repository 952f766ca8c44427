"""Notes on columns that are linear combinations of others, up to rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intervae.data.variables import Variable
from intervae.errors import abbreviate
from intervae.notes import Note

COLLINEAR = 0.999  # R^2 of a column on the others, above which it is noted


def collinear_notes(labels: np.ndarray, variables: Sequence[Variable]) -> list[Note]:
    """Return a note on each column of labels (N, n) that others explain linearly.

    The last such column is dropped before the next is looked for, so that a pair is noted once.
    Only rows without a missing label (NaN) count.
    """
    labels = labels[~np.isnan(labels).any(axis=1)]
    if not len(labels):
        return []
    spread = labels.std(axis=0)
    columns = [i for i, v in enumerate(variables) if v.kind != "categorical" and spread[i] > 0]
    if len(labels) <= 2 * len(columns):
        return []  # so few rows are explained by anything
    scaled = (labels[:, columns] - labels[:, columns].mean(axis=0)) / spread[columns]
    correlations = scaled.T @ scaled / len(scaled)
    notes: list[Note] = []
    while len(columns) > 1:
        collinear = np.flatnonzero(_unexplained_variance(correlations) < 1 - COLLINEAR)
        if not collinear.size:
            break
        target = int(collinear[-1])
        name = variables[columns[target]].name
        sources = _explaining_columns(correlations, target)
        others = abbreviate([repr(variables[columns[j]].name) for j in sources])
        text = (
            f"columns: {name!r} follows from {others} (linear, R^2 above {COLLINEAR}), so an "
            "effect of one may be due to another; leave one of them out with variables= "
            "(--variables)"
        )
        notes.append(Note("collinear-column", name, text))
        columns.pop(target)
        correlations = np.delete(np.delete(correlations, target, 0), target, 1)
    return notes[::-1]


def _unexplained_variance(correlations: np.ndarray) -> np.ndarray:
    """Return 1 - R^2 (n,) of each column on all others, from correlations (n, n)."""
    return 1 / np.diagonal(np.linalg.inv(correlations + 1e-9 * np.eye(len(correlations))))


def _explaining_columns(correlations: np.ndarray, target: int) -> list[int]:
    """Return the fewest columns that explain `target`, added in the order of their weights."""
    others = np.delete(np.arange(len(correlations)), target)
    between = correlations[np.ix_(others, others)] + 1e-9 * np.eye(len(others))
    weights = np.linalg.solve(between, correlations[others, target])
    heaviest = others[np.argsort(-np.abs(weights))]
    for count in range(1, len(others)):
        subset = [target, *heaviest[:count]]
        if _unexplained_variance(correlations[np.ix_(subset, subset)])[0] < 1 - COLLINEAR:
            return sorted(subset[1:])
    return sorted(heaviest)
