"""`build_dataset`: arrays of images and labels to a Dataset, with random or predefined splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from intervae.causal.dense import check_dense
from intervae.causal.graph import CausalGraph
from intervae.data.column_kinds import decide_columns
from intervae.data.dataset import Dataset, Split
from intervae.data.packed.mapped_images import MappedImages
from intervae.data.packed.mapped_split import ROW, MappedSplit
from intervae.data.variables import Spec, Variable
from intervae.errors import DataError
from intervae.notes import Note

if TYPE_CHECKING:
    from intervae.data.simulators.base import Simulator


def build_dataset(
    name: str,
    images: np.ndarray | Tensor,
    labels: np.ndarray,
    variables: Sequence[Variable],
    *,
    validation: float | np.ndarray = 0.1,
    test: float | np.ndarray = 0.2,
    seed: int = 0,
    groups: np.ndarray | None = None,
    fields: Mapping[str, np.ndarray] | None = None,
    graph: CausalGraph | None = None,
    simulator: Simulator | None = None,
    source: Mapping[str, Any] | None = None,
    rescale: bool = True,
) -> Dataset:
    """Check arrays, split them, and measure the variables' scale on the training split.

    With test=1.0 the scale is that of all rows.

    Arguments:
        images: (N, C, H, W) or (N, T, C, H, W) uint8.
        labels: (N, n) in the variables' own units; NaN for a missing one.
        validation, test, seed, groups: as in `split_rows`.
        fields: more arrays with N rows.
        rescale: False to keep the scale that the variables have.
    """
    try:
        pixels = images if isinstance(images, Tensor) else torch.as_tensor(images)
    except (RuntimeError, TypeError, ValueError):
        raise DataError(
            f"{name}: images must be an array, not a {type(images).__name__} without numbers."
        ) from None
    check_dense(pixels, "the images", DataError)
    if pixels.dtype != torch.uint8 or pixels.ndim not in (4, 5):
        raise DataError(
            f"{name}: images must be uint8 of shape (N, C, H, W) or (N, T, C, H, W), "
            f"not {pixels.dtype} {tuple(pixels.shape)}."
        )
    table = _checked_labels(name, labels, len(pixels), [v.name for v in variables])
    rows = split_rows(len(pixels), validation=validation, test=test, seed=seed, groups=groups)
    if variables and len(rows[0]) == 1:
        raise DataError(
            f"{name}: {len(pixels)} samples leave a single one for the training split, "
            "of which nothing can be learned; give more data."
        )
    extra = {key: torch.as_tensor(np.asarray(value)) for key, value in (fields or {}).items()}
    values = torch.as_tensor(table, dtype=torch.float32)
    train_split, validation_split, test_split = (
        _rows_as_split(pixels, r, {"labels": values, **extra}) for r in map(torch.as_tensor, rows)
    )
    return Dataset(
        name,
        train_split,
        validation_split,
        test_split,
        variables=tuple(
            v.with_scale_of(table[rows[0] if len(rows[0]) else rows[2], i]) if rescale else v
            for i, v in enumerate(variables)
        ),
        graph=graph,
        simulator=simulator,
        source=dict(source or {}),
    )


def _rows_as_split(images: Tensor, rows: Tensor, fields: Mapping[str, Tensor]) -> Split:
    """Return rows as a split, whose images stay on the disk if they are there."""
    chosen = {name: tensor[rows] for name, tensor in fields.items()}
    if isinstance(images, MappedImages):
        return MappedSplit(images.shards, **{ROW: torch.as_tensor(images.rows)[rows]}, **chosen)
    return Split(images=images[rows], **chosen)


def _checked_labels(name: str, labels: Any, rows: int, names: Sequence[str]) -> np.ndarray:
    """Return labels (rows, n) as float64, finite or NaN, or raise an error."""
    table = np.asarray(labels, dtype=np.float64)
    if table.shape != (rows, len(names)):
        raise DataError(
            f"{name}: labels must be ({rows}, {len(names)}), one row per image "
            f"and one column per variable, not {table.shape}."
        )
    if len(set(names)) != len(names):
        duplicate = next(n for n in names if names.count(n) > 1)
        raise DataError(f"{name}: the column {duplicate!r} appears twice; rename or remove one.")
    if np.isinf(table).any():
        row, column = np.argwhere(np.isinf(table))[0]
        raise DataError(
            f"{name}: label {names[column]!r} of sample {row} is {table[row, column]}; "
            "every label must be a finite number."
        )
    return table


def build_from_columns(
    name: str,
    images: np.ndarray | Tensor,
    table: Mapping[str, np.ndarray],
    *,
    where: str,
    variables: Sequence[str] | None,
    kinds: Mapping[str, str] | None,
    group: str | None,
    notes: Sequence[Note],
    graph: CausalGraph | None = None,
    like: Spec | None = None,
    **splits: Any,
) -> Dataset:
    """Build a data set from images (N, C, H, W) and columns (N,) whose kinds are inferred.

    Arguments:
        table: name -> column (N,) of numbers or text.
        where: how errors name the source, such as a file name.
        variables, kinds, like: as in `decide_columns`.
        group: column that is no variable.
        notes: further notes of the data set.
        splits: arguments of `split_rows`.
    """
    columns = decide_columns(
        table,
        rows=len(images),
        where=lambda row: f"{where}, sample {row}",
        variables=variables,
        kinds=kinds,
        not_variables=() if group is None else (group,),
        like=like,
    )
    if graph is not None:
        graph = restrict_graph(graph, [v.name for v in columns.variables], f"{where}: 'graph'")
    dataset = build_dataset(
        name, images, columns.labels, columns.variables, graph=graph, rescale=like is None, **splits
    )
    return replace(dataset, notes=(*columns.notes, *notes))


def restrict_graph(graph: CausalGraph, names: Sequence[str], where: str) -> CausalGraph:
    """Return the true graph over these variables only; raise an error if it lacks one."""
    for name in names:
        if name not in graph.names:
            raise DataError(
                f"{where} does not have the variable {name!r}; add it there, "
                "or choose others with variables= (--variables)."
            )
    if not graph.is_acyclic:
        raise DataError(
            f"{where} has a cycle, so it cannot be the true causal graph; remove one of its edges."
        )
    return graph.subgraph(names)


def split_rows(
    n: int,
    *,
    validation: float | np.ndarray,
    test: float | np.ndarray,
    seed: int,
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sorted row numbers of the training, validation and test splits.

    Arguments:
        validation: fraction of the rows that are not test, or a mask (n,).
        test: fraction of all rows, or a mask (n,); 1.0 leaves nothing for the other splits.
        seed: seed of the random splits.
        groups: (n,) ids, such as patients: rows of one group stay in one split.
    """
    if not isinstance(test, np.ndarray) and test == 1:
        return np.arange(0), np.arange(0), np.arange(n)
    rng = np.random.default_rng(seed)
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    is_test = (
        test.astype(bool)
        if isinstance(test, np.ndarray)
        else np.isin(unit, _draw(np.unique(unit), test, rng))
    )
    rest = np.unique(unit[~is_test])
    is_validation = ~is_test & (
        validation.astype(bool)
        if isinstance(validation, np.ndarray)
        else np.isin(unit, _draw(rest, validation, rng))
    )
    masks = {"training": ~is_test & ~is_validation, "validation": is_validation, "test": is_test}
    for name, mask in masks.items():
        if not mask.any():
            fractions = ", ".join(
                f"{key}={'given' if isinstance(value, np.ndarray) else value}"
                for key, value in (("validation", validation), ("test", test))
            )
            raise DataError(
                f"{n} samples leave none for the {name} split; "
                f"give more data or other fractions ({fractions})."
            )
    train_rows, validation_rows, test_rows = map(np.flatnonzero, masks.values())
    return train_rows, validation_rows, test_rows


def consecutive_slices(splits: Sequence[np.ndarray]) -> tuple[slice, slice, slice]:
    """Return the slices of the training, validation and test rows stored one after the other."""
    ends = np.cumsum([len(rows) for rows in splits])
    first, second, third = (
        slice(int(end) - len(rows), int(end)) for rows, end in zip(splits, ends, strict=True)
    )
    return first, second, third


def _draw(units: np.ndarray, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Return a random fraction of the units, at least one."""
    return rng.permutation(units)[: max(1, round(fraction * len(units)))]
