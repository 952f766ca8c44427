"""Interventions over a graph: what do() means, checked once, and how its effect travels to the descendants.

`{"light": 40.0}` sets a variable (hard), an array sets it per sample, a callable changes it (soft):
`{"light": lambda v: v + 5}`; `{"side": "right"}` names a category. Several at once are applied together; their order in the dict does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from intervae.errors import QueryError, unknown

Do = Mapping[str, Any]  # name -> number, array of one number per sample, category, or callable
Categories = Mapping[str, Sequence[str]]  # name -> the words that its codes 0, 1, ... stand for; empty where there are none
Change = Callable[[Any], Any]  # current value of the variable, shape (N,), to its new value, shape (N,)


def interventions(do: Do | None, names: Sequence[str], categories: Categories | None = None) -> dict[str, Change]:
    """Check `do` against the known variable names and turn every entry into a function of the current value.

    A text is one of the variable's `categories` and stands for its code.

    Works on numpy arrays and on tensors alike: the returned functions keep the type, device and (floating) dtype they are given.
    """
    changes: dict[str, Change] = {}
    for name, value in (do or {}).items():
        if name not in names:
            raise unknown("variable in do()", name, names, QueryError)
        if isinstance(value, str):
            value = _code(name, value, (categories or {}).get(name, ()))
        changes[name] = _soft(name, value) if callable(value) else _hard(name, value)
    return changes


def _code(name: str, text: str, categories: Sequence[str]) -> float | str:
    """The code of a category; the text itself where it is a number, or where the variable has no categories."""
    word = text.strip()
    same = [code for code, category in enumerate(categories) if category == word]
    alike = same or [code for code, category in enumerate(categories) if category.casefold() == word.casefold()]
    if len(alike) == 1:
        return float(alike[0])
    if categories and not _is_number(word):
        raise unknown(f"category of {name!r} in do()", word, categories, QueryError)
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _hard(name: str, value: Any) -> Change:
    try:
        target = _numbers(value)
    except (TypeError, ValueError):
        raise QueryError(f"do({name}={value!r}) is not a number; give a number, one number per sample, or a callable.") from None
    if not np.isfinite(target).all():
        raise QueryError(f"do({name}={value!r}) is not finite; give a finite number.")
    if target.ndim > 1:
        raise QueryError(f"do({name}=...) has shape {target.shape}; give one number, or one number per sample.")

    def change(current: Any) -> Any:
        if target.ndim == 1 and len(target) != len(current):
            raise QueryError(f"do({name}=...) has {len(target)} values for {len(current)} samples; give one, or one per sample.")
        return _like(target, current)

    return change


def _soft(name: str, function: Callable) -> Change:
    def change(current: Any) -> Any:
        new = function(current.clone() if isinstance(current, torch.Tensor) else np.array(current))  # a callable that works in place is welcome
        try:
            values = _numbers(new)
        except (TypeError, ValueError):
            raise QueryError(f"the callable for {name!r} returned {new!r}, which is not a number; return one value per sample.") from None
        if values.shape not in ((), np.shape(current)):
            raise QueryError(f"the callable for {name!r} returned shape {values.shape} for {np.shape(current)} values; return one value per sample.")
        if not np.isfinite(values).all():
            raise QueryError(f"the callable for {name!r} returned a value that is not finite.")
        if isinstance(new, torch.Tensor) and isinstance(current, torch.Tensor) and new.shape == current.shape:
            return new.to(device=current.device, dtype=_float_dtype(current))  # with its gradient
        return _like(values, current)

    return change


def _numbers(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu().double() if isinstance(value, torch.Tensor) else value, dtype=np.float64)


def _like(target: np.ndarray, current: Any) -> Any:
    if isinstance(current, torch.Tensor):
        return torch.as_tensor(target, dtype=_float_dtype(current), device=current.device).expand(current.shape).clone()
    dtype = np.asarray(current).dtype
    return np.broadcast_to(target, np.shape(current)).astype(dtype if np.issubdtype(dtype, np.floating) else np.float64)


def _float_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The tensor's own, unless it holds integers, which would cut off what an intervention sets."""
    return tensor.dtype if tensor.is_floating_point() else torch.get_default_dtype()


def propagate(
    values: dict[str, Any],
    order: Iterable[str],
    parents: Callable[[str], Sequence[str]],
    recompute: Callable[[str, dict[str, Any]], Any],
    act: Mapping[str, Callable[[Any], Any]],
) -> dict[str, Any]:
    """Action and prediction: walk the graph once in topological order, recomputing only what an intervention reaches.

    Arguments:
        values: the factual value of each variable, as abducted; any array whose first axis is the samples.
        order: the names, causes before effects.
        parents: name -> names of its direct causes.
        recompute: (name, values so far) -> the variable's value under its own mechanism, with its abducted noise.
        act: name -> function of the value the variable would have had, giving the value it is made to have.

    Returns:
        A new dict. A variable that is neither acted on nor a descendant of one that is keeps the very same object, so it is bit-equal.
    """
    after = dict(values)
    reached: set[str] = set()
    for name in order:
        if any(parent in reached for parent in parents(name)):
            after[name] = recompute(name, after)
            reached.add(name)
        if name in act:
            after[name] = act[name](after[name])
            reached.add(name)
    return after


def parse_do(texts: Iterable[str], categories: Categories | None = None) -> dict[str, float]:
    """`["light=40", "side=right"]`, as the command line gives them, to a do() dict of numbers; a category becomes its code."""
    do: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise QueryError(f"--do {text!r} is not of the form name=value, such as --do light=40.")
        try:
            number = float(_code(name.strip(), value, (categories or {}).get(name.strip(), ())))
        except ValueError:
            raise QueryError(f"--do {text!r}: {value!r} is not a number.") from None
        if not math.isfinite(number):
            raise QueryError(f"--do {text!r}: the value must be finite.")
        if name.strip() in do:
            raise QueryError(f"--do names {name.strip()!r} twice; give each variable once.")
        do[name.strip()] = number
    return do
