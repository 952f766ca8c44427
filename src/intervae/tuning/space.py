"""Search spaces: a range or a list of choices for each setting, and the defaults of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from intervae.errors import UsageError
from intervae.models.base import Model
from intervae.settings import build_settings, describe_settings, split_settings
from intervae.training import Options

FORMS = "LOW:HIGH, log:LOW:HIGH or A|B|C"
NOT_SEARCHED = {"epochs": "--epochs", "threads": "--set threads="}  # setting -> where it is set


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; `log` draws their logarithm evenly."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values by which the types and limits of a setting are checked."""
        return (self.low, self.high)


@dataclass(frozen=True)
class Choices:
    """Texts of values, as --set takes them."""

    values: tuple[str, ...]

    @property
    def examples(self) -> tuple[Any, ...]:
        return self.values


Space = dict[str, Range | Choices]


def default_search(model: type[Model]) -> dict[str, str]:
    """Return the search space that the model declares, else one of its rate and batch size.

    The default has the learning rate from a tenth to ten times its default, and half and double
    batches.
    """
    if model.search_space:
        return dict(model.search_space)
    defaults = {field.name: field.default for field in fields(model.Settings)}
    search: dict[str, str] = {}
    if isinstance(rate := defaults.get("learning_rate"), float):
        search["learning_rate"] = f"log:{rate / 10:.3g}:{rate * 10:.3g}"
    if isinstance(size := defaults.get("batch_size"), int):
        search["batch_size"] = f"{max(1, size // 2)}|{size}|{size * 2}"
    return search


def parse_search(model: type[Model], search: Mapping[str, str]) -> Space:
    """Return the ranges and choices of texts such as `log:1e-4:1e-2`, `2:8` and `8,8|32,32`.

    Both ends of a range and every choice are checked against the types of the settings.
    """
    space: Space = {}
    for name, text in search.items():
        if name in NOT_SEARCHED:
            raise UsageError(
                f"--search {name} would compare trainings of unequal cost; set it with "
                f"{NOT_SEARCHED[name]}."
            )
        space[name] = _parse(name, str(text), whole=name in _whole_settings(model))
        for value in space[name].examples:
            check_values(model, {name: value})
    return space


def check_values(model: type[Model], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the values split into settings of the model and of the training, after checks."""
    settings, options = split_settings(values, model.Settings, Options)
    build_settings(model.Settings, settings)
    build_settings(Options, options)
    return [settings, options]


def _whole_settings(model: type[Model]) -> set[str]:
    """Return the names of the settings that are whole numbers."""
    settings = [*describe_settings(model.Settings), *describe_settings(Options)]
    return {s["name"] for s in settings if s["type"] in (int, int | None)}


def _parse(name: str, text: str, *, whole: bool) -> Range | Choices:
    if "|" in text:
        values = tuple(value.strip() for value in text.split("|"))
        if "" in values or len(set(values)) < len(values):
            raise UsageError(f"--search {name}={text}: the choices must differ and not be empty.")
        return Choices(values)
    words = text.split(":")
    log = words[0].strip().lower() == "log"
    ends = words[1:] if log else words
    try:
        low, high = (float(word) for word in ends)
    except ValueError:
        raise UsageError(f"--search {name}={text} is not of the form {FORMS}.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"--search {name}={text}: the first number must be below the second.")
    if log and low <= 0:
        raise UsageError(f"--search {name}={text}: a logarithmic range must be above 0.")
    return Range(low, high, log, whole)
