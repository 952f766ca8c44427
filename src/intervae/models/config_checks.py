"""Checks of a parsed config.json: the field that is damaged, and what was expected in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from intervae.data.variables import KINDS, Variable
from intervae.errors import RunError

Test = Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_whole, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


FIELDS: dict[str, tuple[Test, str]] = {
    "model": (_is_text, "the name of a model"),
    "preset": (_is_text, "the name of a preset"),
    "settings": (lambda value: isinstance(value, dict), "an object of settings"),
    "spec": (lambda value: isinstance(value, dict), "an object with image_shape and variables"),
    "graph": (lambda value: isinstance(value, dict), "an object with variables and edges"),
    "spec.image_shape": (_is_shape, "[channels, height, width], three whole numbers above 0"),
    "spec.variables": (
        lambda value: isinstance(value, list) and all(isinstance(v, dict) for v in value),
        "a list of objects",
    ),
    "spec.frames": (lambda value: value is None or _is_whole(value), "null or a whole number"),
    "spec.actions": (_is_texts, "a list of texts"),
}
VARIABLE_FIELDS: dict[str, tuple[Test, str]] = {
    "name": (_is_text, "a text"),
    "kind": (lambda value: value in KINDS, " or ".join(KINDS)),
    "unit": (_is_text, "a text"),
    "categories": (_is_texts, "a list of texts"),
    "ordered": (lambda value: isinstance(value, bool), "true or false"),
    **dict.fromkeys(("mean", "std", "low", "high"), (_is_number, "a number")),
}
REQUIRED = ("model", "spec", "spec.image_shape", "spec.variables")


def check_config(config: dict[str, Any], where: object) -> None:
    """Raise a RunError that names the first damaged field of config.json; `where` is its path."""
    spec: Any = config.get("spec")
    for name, (test, expected) in FIELDS.items():
        outer, _, inner = name.rpartition(".")
        holder: Any = spec if outer else config
        if inner not in holder:
            if name in REQUIRED:
                raise RunError(f"{where} has no field {name!r}; expected {expected}.")
        elif not test(holder[inner]):
            raise _damaged(where, name, holder[inner], expected)
    known = {field.name for field in fields(Variable)}
    for i, variable in enumerate(config["spec"]["variables"]):
        name = f"spec.variables[{i}]"
        if "name" not in variable:
            raise RunError(f"{where} has no field '{name}.name'; expected a text.")
        for key, value in variable.items():
            if key not in known:
                raise RunError(f"{where}: the field '{name}.{key}' is not known; remove it.")
            test, expected = VARIABLE_FIELDS[key]
            if not test(value):
                raise _damaged(where, f"{name}.{key}", value, expected)


def _damaged(where: object, name: str, value: Any, expected: str) -> RunError:
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return RunError(f"{where}: the field {name!r} is {shown}; expected {expected}.")
