"""Graph discovery from the labels of a data set; rows with missing labels are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from intervae.data import Dataset, Split
from intervae.discovery.base import Discovery
from intervae.discovery.registry import discover
from intervae.errors import DataError
from intervae.notes import Note


def discover_labels(
    data: Dataset, method: str = "independence", *, seed: int = 0, **settings: Any
) -> Discovery:
    """Learn the causal graph of the variables from the labels of the training split.

    Only rows that have all labels are used; a note of the result says how many.

    Arguments:
        method, seed, settings: as in `discover`.
    """
    rows = complete_rows(data.train)
    if not len(rows):
        raise DataError(
            f"{data.name}: no training row has all labels, so no graph can be learned from them; "
            "fill in some, or give a known graph (graph=, --graph)."
        )
    result = discover(
        rows.labels.cpu().numpy(),
        method,
        names=data.names,
        kinds=[v.kind for v in data.variables],
        seed=seed,
        **settings,
    )
    return replace(result, notes=(*result.notes, *complete_rows_notes(data)))


def complete_rows(split: Split) -> Split:
    """Return the rows of a split that have all labels."""
    return split[~split.missing.any(1)]


def complete_rows_notes(data: Dataset) -> list[Note]:
    """Return the note on how many training rows a graph is learned from; [] if from all."""
    rows, used = len(data.train), int((~data.train.missing.any(1)).sum())
    if used == rows:
        return []
    text = f"graph: learned from the {used} of {rows} training rows that have all labels"
    return [Note("complete-rows", "", text)]
