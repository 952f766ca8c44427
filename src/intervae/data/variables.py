"""Variable, a named quantity with its scale, and Spec, what a model knows about its data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from intervae.errors import DataError, abbreviate, unknown

Kind = Literal["continuous", "binary", "categorical"]
KINDS: tuple[Kind, ...] = ("continuous", "binary", "categorical")


@dataclass(frozen=True)
class Variable:
    """A named quantity in its own units.

    Arguments:
        categories: the words for the codes 0, 1, ... of a binary or categorical variable.
        mean, std, low, high: statistics of the training split, without missing labels.
        ordered: whether the categories are ordered, lowest first, as in small < medium < large.
    """

    name: str
    kind: Kind = "continuous"
    unit: str = ""
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    low: float = -1.0
    high: float = 1.0
    ordered: bool = False

    def __post_init__(self) -> None:
        if self.ordered and self.kind != "categorical":
            raise DataError(
                f"variable {self.name!r} is {self.kind} and cannot be ordered; "
                "make it categorical, or leave ordered= out."
            )

    def with_scale_of(self, values: np.ndarray) -> Variable:
        """Return the variable with the mean, std, low and high of `values` (N,) but NaN."""
        rows, values = len(values), values[~np.isnan(values)]
        if not len(values):
            raise DataError(
                f"variable {self.name!r} has no value in the training split of {rows}, so nothing "
                "can be learned from it; fill it in or leave it out."
            )
        low, high = float(values.min()), float(values.max())
        if low == high:
            raise DataError(
                f"variable {self.name!r} is constant (always {low:g}) in the training split of "
                f"{rows}, so nothing can be learned from it; leave it out."
            )
        return replace(self, mean=float(values.mean()), std=float(values.std()), low=low, high=high)

    def normalise(self, values: Any) -> Any:
        """Return network inputs: standardised, -1 / +1 if binary, the code if categorical."""
        if self.kind == "continuous":
            return (values - self.mean) / self.std
        return 2.0 * values - 1.0 if self.kind == "binary" else values

    def denormalise(self, values: Any) -> Any:
        """Return values in the variable's own units: the inverse of `normalise`."""
        if self.kind == "continuous":
            return values * self.std + self.mean
        return (values + 1.0) / 2.0 if self.kind == "binary" else values

    def format_value(self, value: float) -> str:
        """Return the category of a code, or the number as text."""
        return self.categories[int(value)] if value in range(len(self.categories)) else f"{value:g}"

    def describe_values(self, limit: int = 6) -> str:
        """Return the categories (at most `limit`), the codes, or the range with its unit.

        Ordered categories have a `<` between them.
        """
        separator = " < " if self.ordered else ", "
        if self.categories:
            return abbreviate(self.categories, limit, separator)
        if self.kind == "continuous":
            return f"{self.low:.4g} to {self.high:.4g} {self.unit}".rstrip()
        return abbreviate([str(code) for code in range(round(self.high) + 1)], limit, separator)

    def range_warning(self, value: float) -> str:
        """Return why a value lies outside the training data; "" if it does not."""
        if self.kind == "binary":
            words = f" ({', '.join(self.categories)})" if self.categories else ""
            return "" if value in (0, 1) else f"is neither 0 nor 1{words}"
        if self.low <= value <= self.high:
            return ""
        return f"is outside the training range {self.low:.4g} to {self.high:.4g}"

    @classmethod
    def from_json(cls, parsed: dict) -> Variable:
        return cls(**{**parsed, "categories": tuple(parsed.get("categories", ()))})


@dataclass(frozen=True)
class Spec:
    """What a model knows about its data: never the true graph, never the simulator.

    Arguments:
        image_shape: shape of one image or frame, (C, H, W).
        variables: the labels, in the order of their columns.
        frames: number of frames of a clip; None for images.
        actions: names of the actions of transitions.
    """

    image_shape: tuple[int, int, int]
    variables: tuple[Variable, ...] = ()
    frames: int | None = None
    actions: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    @cached_property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """Variable name -> the words for its codes."""
        return {v.name: v.categories for v in self.variables}

    def variable(self, name: str) -> Variable:
        """Return the variable of this name."""
        for candidate in self.variables:
            if candidate.name == name:
                return candidate
        raise unknown("variable", name, self.names, DataError)

    def normalise(self, labels: Tensor) -> Tensor:
        """Return network inputs (..., n) for labels (..., n) in their own units."""
        return torch.stack(
            [v.normalise(labels[..., i]) for i, v in enumerate(self.variables)], dim=-1
        )

    def denormalise(self, values: Tensor) -> Tensor:
        """Return labels (..., n) in their own units: the inverse of `normalise`."""
        return torch.stack(
            [v.denormalise(values[..., i]) for i, v in enumerate(self.variables)], dim=-1
        )

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, parsed: dict) -> Spec:
        return cls(
            image_shape=tuple(parsed["image_shape"]),
            variables=tuple(Variable.from_json(v) for v in parsed["variables"]),
            frames=parsed.get("frames"),
            actions=tuple(parsed.get("actions", ())),
        )
