"""Kinds of the variables of a structural causal model, and their encoding for networks.

Values (B, n) are in the normalised units of `Spec.normalise`: standardised if continuous, -1 or +1
if binary, the code 0, 1, ... if categorical or ordinal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from intervae.errors import UsageError

VARIABLE_KINDS = ("continuous", "binary", "categorical", "ordinal")


class NamedVariable(Protocol):
    """What is read of a variable; `intervae.data.Variable` has it."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def categories(self) -> Sequence[str]: ...
    @property
    def high(self) -> float: ...
    @property
    def ordered(self) -> bool: ...


@dataclass(frozen=True)
class VariableType:
    """Kind of a variable and the number of its classes, 0 if continuous."""

    kind: str = "continuous"
    classes: int = 0

    def __post_init__(self) -> None:
        if self.kind not in VARIABLE_KINDS:
            raise UsageError(f"kind {self.kind!r} is not one of {', '.join(VARIABLE_KINDS)}.")
        if self.kind == "binary":
            object.__setattr__(self, "classes", 2)
        if self.kind in ("categorical", "ordinal") and self.classes < 2:
            raise UsageError(f"a {self.kind} variable needs 2 classes or more, not {self.classes}.")

    @classmethod
    def of(cls, variable: NamedVariable) -> VariableType:
        """Return the type of a variable of the data; ordered categories are ordinal."""
        if variable.kind == "continuous":
            return cls()
        kind = "ordinal" if variable.ordered else variable.kind
        return cls(kind, max(len(variable.categories), round(variable.high) + 1))

    @property
    def width(self) -> int:
        """Number of features: one per class, or 1 if continuous or binary."""
        return self.classes if self.kind in ("categorical", "ordinal") else 1

    def codes(self, values: Tensor) -> Tensor:
        """Return the codes 0, 1, ... (int64) of values; the nearest class of other numbers."""
        if self.kind == "binary":
            return (values > 0).long()
        return values.nan_to_num().round().clamp(0, self.classes - 1).long()

    def values(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the values of codes: the inverse of `codes`."""
        values = codes.to(dtype)
        return 2 * values - 1 if self.kind == "binary" else values

    def encode(self, values: Tensor) -> Tensor:
        """Return the features (..., width) of values (...)."""
        if self.width == 1:
            return values[..., None]
        classes = torch.arange(self.classes, device=values.device)
        return (self.codes(values)[..., None] == classes).to(values.dtype)


def encode_values(values: Tensor, types: Sequence[VariableType]) -> Tensor:
    """Return the features (B, f) of values (B, n): numbers, -1 / +1, and one-hot classes."""
    if not types:
        return values.new_zeros(*values.shape[:-1], 0)
    columns = zip(values.unbind(-1), types, strict=True)
    return torch.cat([kind.encode(column) for column, kind in columns], dim=-1)


def feature_slices(types: Sequence[VariableType]) -> list[slice]:
    """Return the columns of each variable in the features of `encode_values`."""
    ends = [0]
    for each in types:
        ends.append(ends[-1] + each.width)
    return [slice(start, end) for start, end in pairwise(ends)]
