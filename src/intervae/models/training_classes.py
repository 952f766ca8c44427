"""Classes of binary and categorical variables that occur in training, for checks of queries.

Values (B, n) are in normalised units: -1 or +1 if binary, the code 0, 1, ... if categorical.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from intervae.causal.variable_types import VariableType
from intervae.data import Variable
from intervae.errors import QueryError, abbreviate


def all_classes(types: Sequence[VariableType]) -> Tensor:
    """Return booleans (n, largest number of classes), all True: before training."""
    largest = max(max(each.classes for each in types), 1)
    return torch.ones(len(types), largest, dtype=torch.bool)


def mark_classes(present: Tensor, values: Tensor, types: Sequence[VariableType]) -> None:
    """Set which classes occur in values (B, n); NaN is no class. `present`: of `all_classes`."""
    for i, kind in enumerate(types):
        if kind.classes:
            column = values[:, i][~values[:, i].isnan()]
            counts = torch.bincount(kind.codes(column), minlength=present.shape[1])
            present[i] = counts > 0


def check_classes(
    variable: Variable, kind: VariableType, present: Tensor, values: Tensor, where: str
) -> None:
    """Raise a QueryError for values (B,) that are no class of training.

    Arguments:
        present: (largest number of classes,) row of the variable.
        where: the argument that has these values, such as `do()`.
    """
    if not kind.classes or torch.compiler.is_compiling():  # a traced program checks no values
        return
    codes = kind.codes(values)
    wrong = (kind.values(codes, values.dtype) != values) | ~present[codes]
    if wrong.any():
        codes_in_training = present.nonzero()[:, 0].tolist()
        value = variable.format_value(float(variable.denormalise(values[wrong][0])))
        raise QueryError(
            f"{where}: {variable.name} = {value} was never seen in training; give one of "
            f"{abbreviate([variable.format_value(code) for code in codes_in_training], 12)}."
        )
