"""Design matrix of a table: numeric inputs and targets of regressions between all variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intervae.errors import DataError

MAX_CATEGORIES = 50


@dataclass(frozen=True)
class DesignMatrix:
    """Inputs and targets of the mechanisms of n variables.

    A categorical variable has one centred input column and one output (a logit) per category; any
    other variable has one of each.

    Arguments:
        inputs: (N, P) centred; in a standardised table the columns of each variable have a total
            variance of 1.
        input_variables: (P,) the variable of each input column.
        targets: (N, O) continuous values as in `inputs`, 0 / 1 of a binary variable, one-hot of a
            categorical one.
        output_variables: (O,) the variable of each output.
        kinds: (n,) continuous, binary or categorical.
    """

    inputs: np.ndarray
    input_variables: np.ndarray
    targets: np.ndarray
    output_variables: np.ndarray
    kinds: tuple[str, ...]


def build_design_matrix(
    columns: np.ndarray, names: Sequence[str], kinds: Sequence[str], *, standardise: bool
) -> DesignMatrix:
    """Encode checked columns (N, n); without `standardise` inputs are only centred."""
    inputs: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for name, kind, column in zip(names, kinds, columns.T, strict=True):
        if kind == "categorical":
            block = one_hot(name, column)
            targets.append(block)
        elif kind == "binary":
            block = (column[:, None] == column.max()).astype(np.float64)
            values = len(np.unique(column))
            if values != 2:
                raise DataError(
                    f"column {name!r} is declared binary but has {values} values; "
                    "declare it continuous or categorical."
                )
            targets.append(block)
        else:
            block = column[:, None]
            targets.append(_centre(block, standardise))
        inputs.append(_centre(block, standardise))
    variables = np.arange(len(names))
    return DesignMatrix(
        np.concatenate(inputs, axis=1),
        np.repeat(variables, [block.shape[1] for block in inputs]),
        np.concatenate(targets, axis=1),
        np.repeat(variables, [block.shape[1] for block in targets]),
        tuple(kinds),
    )


def one_hot(name: str, column: np.ndarray) -> np.ndarray:
    """Codes (N,) to 0 and 1 (N, K), with K at most MAX_CATEGORIES."""
    levels, codes = np.unique(column, return_inverse=True)
    if len(levels) > MAX_CATEGORIES:
        raise DataError(
            f"column {name!r} has {len(levels)} categories in {len(column)} rows; "
            f"merge the rare ones ({MAX_CATEGORIES} at most) or, if it is a quantity, "
            "declare it continuous."
        )
    return np.eye(len(levels))[codes]


def _centre(block: np.ndarray, standardise: bool) -> np.ndarray:
    centred = block - block.mean(axis=0)
    return centred / np.sqrt(centred.var(axis=0).sum()) if standardise else centred
