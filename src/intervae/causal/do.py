"""do() on a graph in Pearl's three steps, for models and simulators alike.

    noises = abduct(values, mechanism, names)          # what the parents leave unexplained
    actions = act(do, names, categories)               # how do() changes each variable
    after = predict(graph, equation, actions, values)  # the descendants, with their noises

A do() is a dict. `{"light": 40.0}` sets a variable (hard), an array sets it per sample, a text
names a category, and a callable changes the value that the variable would have had (soft):
`{"light": lambda v: v + 5}`. Several entries act together; their order does not matter.
Values are numpy arrays or tensors whose first axis is the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from intervae.causal.graph import CausalGraph
from intervae.errors import QueryError, unknown

Do = Mapping[str, Any]  # name -> number, array of one number per sample, category, or callable
Values = dict[str, Any]  # name -> value of a variable, (N, ...)
Action = Callable[[Any], Any]  # value that a variable would have had -> value that it gets
Equation = Callable[[str, Values], Any]  # (name, values of its causes) -> value
Categories = Mapping[str, Sequence[str]]  # name -> names of its codes 0, 1, ...; () if it has none


# ---- the three steps ---------------------------------------------------------------------------
def abduct(
    values: Values, mechanism: Equation, names: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return the noises of some or all variables: value minus the mechanism of its parents."""
    noises: dict[str, Any] = {}
    for name in values if names is None else names:
        noises[name] = values[name] - mechanism(name, values)
    return noises


def act(
    do: Do | None, names: Sequence[str], categories: Categories | None = None
) -> dict[str, Action]:
    """Check `do` and return one action per variable that it names.

    Actions keep the type, device and floating dtype of the values that they get.
    """
    actions: dict[str, Action] = {}
    for name, value in (do or {}).items():
        if name not in names:
            raise unknown("variable in do()", name, names, QueryError)
        if isinstance(value, str):
            value = _code(name, value, (categories or {}).get(name, ()))
        actions[name] = SoftAction(name, value) if callable(value) else HardAction(name, value)
    return actions


def predict(
    graph: CausalGraph,
    equation: Equation,
    actions: Mapping[str, Action],
    factual: Values | None = None,
) -> dict[str, Any]:
    """Compute variables along the graph, causes before effects, and apply their actions.

    Arguments:
        graph: acyclic graph over the variables.
        equation: (name, values so far) -> value of the variable, its noise included.
        actions: actions by name, see `act`.
        factual: values before do(). A variable that has one, is not acted on and is no
            descendant of an acted one keeps it: the same object, so bit for bit. Without it every
            variable is computed, as in sampling.

    Returns:
        name -> value under do().
    """
    values: Values = dict(factual or {})
    changed: set[str] = set()
    for name in graph.topological_order:
        if name not in values or changed.intersection(graph.parents(name)):
            values[name] = equation(name, values)
            changed.add(name)
        if name in actions:
            values[name] = actions[name](values[name])
            changed.add(name)
    return values


# ---- actions -----------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class HardAction:
    """Set a variable to a number, or to one number per sample."""

    name: str
    value: Any

    def __post_init__(self) -> None:
        try:
            target = _as_array(self.value)
        except (TypeError, ValueError):
            raise QueryError(
                f"do({self.name}={self.value!r}) is not a number; "
                "give a number, one number per sample, or a callable."
            ) from None
        if not np.isfinite(target).all():
            raise QueryError(f"do({self.name}={self.value!r}) is not finite; give a finite number.")
        if target.ndim > 1:
            raise QueryError(
                f"do({self.name}=...) has shape {target.shape}; "
                "give one number, or one number per sample."
            )
        object.__setattr__(self, "value", target)

    def __call__(self, current: Any) -> Any:
        if self.value.ndim == 1 and len(self.value) != len(current):
            raise QueryError(
                f"do({self.name}=...) has {len(self.value)} values for {len(current)} samples; "
                "give one, or one per sample."
            )
        return _like(self.value, current)


@dataclass(frozen=True, eq=False)
class SoftAction:
    """Change a variable by a function of the value that it would have had."""

    name: str
    function: Callable[[Any], Any]

    def __call__(self, current: Any) -> Any:
        is_tensor = isinstance(current, torch.Tensor)
        # a copy, as the function may work in place
        result = self.function(current.clone() if is_tensor else np.array(current))
        try:
            target = _as_array(result)
        except (TypeError, ValueError):
            raise QueryError(
                f"the callable for {self.name!r} returned {result!r}, which is not a number; "
                "return one value per sample."
            ) from None
        if target.shape not in ((), np.shape(current)):
            raise QueryError(
                f"the callable for {self.name!r} returned shape {target.shape} for "
                f"{np.shape(current)} values; return one value per sample."
            )
        if not np.isfinite(target).all():
            raise QueryError(f"the callable for {self.name!r} returned a value that is not finite.")
        keeps_gradients = isinstance(result, torch.Tensor) and result.shape == current.shape
        return _like(result if is_tensor and keeps_gradients else target, current)


@dataclass(frozen=True)
class LinearChange:
    """The soft do() `factor * value + shift`, as `light+=5` and `light*=1.2` name it."""

    factor: float = 1.0
    shift: float = 0.0

    def __call__(self, value: Any) -> Any:
        return self.factor * value + self.shift

    def __str__(self) -> str:
        scaled = "v" if self.factor == 1 else f"{self.factor:g} v"
        return scaled if not self.shift else f"{scaled} {'+-'[self.shift < 0]} {abs(self.shift):g}"


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().double()
    return np.asarray(value, dtype=np.float64)


def _like(target: np.ndarray | torch.Tensor, current: Any) -> Any:
    """Return `target` with the shape, type, device and floating dtype of `current`."""
    if isinstance(current, torch.Tensor):
        floating = current.is_floating_point()  # integers would truncate what do() sets
        dtype = current.dtype if floating else torch.get_default_dtype()
        tensor = torch.as_tensor(target, dtype=dtype, device=current.device)
        return tensor.expand(current.shape).clone()
    array = np.asarray(current)
    is_floating = np.issubdtype(array.dtype, np.floating)
    return np.broadcast_to(target, array.shape).astype(array.dtype if is_floating else np.float64)


# ---- categories and the command line -----------------------------------------------------------
def _code(name: str, text: str, categories: Sequence[str]) -> float | str:
    """Return the code of a category, or the text itself if it may be a number."""
    word = text.strip()
    matches = [code for code, category in enumerate(categories) if category == word]
    if not matches:
        folded = word.casefold()
        matches = [
            code for code, category in enumerate(categories) if category.casefold() == folded
        ]
    if len(matches) == 1:
        return float(matches[0])
    if categories and not _is_number(word):
        raise unknown(f"category of {name!r} in do()", word, categories, QueryError)
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_do(
    texts: Iterable[str], categories: Categories | None = None
) -> dict[str, float | LinearChange]:
    """Parse `["light=40", "side=right", "angle+=5"]` of the command line to a do().

    A category becomes its code; `+=`, `-=` and `*=` are soft.
    """
    do: dict[str, float | LinearChange] = {}
    for text in texts:
        left, equals, value = (part.strip() for part in text.partition("="))
        is_name = left in (categories or {})  # such as a column "ER+"
        operator = "" if is_name or left[-1:] not in ("+", "-", "*") else left[-1:]
        name = left.removesuffix(operator).rstrip()
        if not equals or not name:
            raise QueryError(f"--do {text!r} is not of the form name=value, such as --do light=40.")
        words = () if operator else (categories or {}).get(name, ())
        try:
            number = float(_code(name, value, words))
        except ValueError:
            raise QueryError(f"--do {text!r}: {value!r} is not a number.") from None
        if not math.isfinite(number):
            raise QueryError(f"--do {text!r}: the value must be finite.")
        if name in do:
            raise QueryError(f"--do names {name!r} twice; give each variable once.")
        do[name] = _change(operator, number) if operator else number
    return do


def _change(operator: str, number: float) -> LinearChange:
    if operator == "*":
        return LinearChange(factor=number)
    return LinearChange(shift=-number if operator == "-" else number)
