"""Settings as frozen dataclasses, built from Python values or from `key=value` texts.

A field is declared with `setting(default, help)`. Unknown keys and wrong types raise a UsageError.
A dataclass may have two class variables for runs of earlier versions: `renamed`, old name -> new
name, and `removed`, old name -> the one value that the present code still corresponds to.
"""

from __future__ import annotations

import contextlib
import math
import types
import typing
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, fields
from numbers import Integral
from typing import Any, Literal, TypeVar

from intervae.errors import IntervaeError, UsageError, unknown

T = TypeVar("T")


def setting(default: Any, help: str, *, advanced: bool = False) -> Any:  # noqa: A002
    """Return a dataclass field with a help text, a noun phrase; `advanced` ones are listed last."""
    return field(default=default, metadata={"help": help, "advanced": advanced})


def describe_settings(cls: type) -> list[dict[str, Any]]:
    """Return name, type, default, help and advanced of every field, as declared."""
    hints = typing.get_type_hints(cls)
    return [
        {
            "name": f.name,
            "type": hints[f.name],
            "default": None if f.default is MISSING else f.default,
            "help": f.metadata.get("help", ""),
            "advanced": f.metadata.get("advanced", False),
        }
        for f in fields(cls)
    ]


def upgrade_settings(
    cls: type, values: Mapping[str, Any], *, strict: bool = False
) -> dict[str, Any]:
    """Return settings of an earlier version under their present names.

    A removed setting is dropped. If its value has no counterpart in the present code, that is a
    warning for a finished run (its weights are as they were), and an error if `strict`, for a run
    that is to be trained further.
    """
    renamed, removed = _history(cls)
    current: dict[str, Any] = {}
    for key, value in values.items():
        if key in removed:
            if _comparable(value) != _comparable(removed[key]):
                text = f"setting {key}={value!r} of an earlier version is no longer available"
                if strict:
                    raise UsageError(f"{text}; train the model again without it.")
                warnings.warn(f"{text}; the model is used without it.", stacklevel=2)
        else:
            current[renamed.get(key, key)] = value
    return current


def _history(cls: type) -> tuple[dict[str, str], dict[str, Any]]:
    """Return (renamed, removed) of a settings class and of its bases."""
    renamed: dict[str, str] = {}
    removed: dict[str, Any] = {}
    for parent in reversed(cls.__mro__):
        renamed |= vars(parent).get("renamed", {})
        removed |= vars(parent).get("removed", {})
    return renamed, removed


def _comparable(value: Any) -> Any:
    """Return a tuple as a list, as JSON stores it."""
    return list(value) if isinstance(value, tuple) else value


def build_settings(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance of the dataclass `cls`; texts are converted to the types of the fields."""
    hints = typing.get_type_hints(cls)
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    renamed, removed = _history(cls)
    for key in values:
        if key in renamed:
            raise UsageError(f"setting {key!r} is now called {renamed[key]!r}.")
        if key in removed:
            raise UsageError(f"setting {key!r} was removed; leave it out.")
        if key not in names:
            raise unknown("setting", key, names)
    return cls(**{key: _convert(key, value, hints[key]) for key, value in values.items()})


def split_settings(values: Mapping[str, Any], *classes: type) -> list[dict[str, Any]]:
    """Split flat settings among several dataclasses whose field names differ."""
    owners = {f.name: i for i, cls in enumerate(classes) for f in fields(cls)}
    for i, cls in enumerate(classes):  # old names too, so that the error names the new one
        owners |= {name: i for names in _history(cls) for name in names}
    groups: list[dict[str, Any]] = [{} for _ in classes]
    for key, value in values.items():
        if key not in owners:
            raise unknown("setting", key, [f.name for cls in classes for f in fields(cls)])
        groups[owners[key]][key] = value
    return groups


def check_minimum(settings: Any, **minimums: float) -> None:
    """Raise a UsageError for settings below their minimum."""
    for name, minimum in minimums.items():
        if getattr(settings, name) < minimum:
            raise UsageError(f"{name}={getattr(settings, name)} must be {minimum} or more.")


def check_flags(**values: Any) -> None:
    """Raise a UsageError for values that are neither True nor False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name}={value!r} must be true or false.")


def check_whole(minimum: int, error: type[IntervaeError] = UsageError, /, **values: Any) -> None:
    """Raise a UsageError, or `error`, for values that are not integers >= `minimum`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
            raise error(f"{name}={value!r} must be a whole number, {minimum} or more.")


def check_seed(seed: Any, error: type[IntervaeError] = UsageError) -> int:
    """Return a seed as an int; raise an error unless it is a whole number from 0 to 2^63 - 1."""
    check_whole(0, error, seed=seed)
    if seed >= 2**63:
        raise error(f"seed={seed} is too large; give a whole number below 2^63.")
    return int(seed)


def parse_settings(texts: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Parse `["dims=2", "network=mlp"]` to a dict of texts; `option` names them in the error."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text!r} is not of the form key=value.")
        values[key.strip()] = value.strip()
    return values


def plain_value(text: str) -> Any:
    """Return the value of a text: a number, True or False, else the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def _convert(key: str, value: Any, hint: Any) -> Any:
    """Return a value as the type of its field; raise a UsageError for another type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return _convert(key, value, next(a for a in arguments if a is not type(None)))
    if origin is Literal:
        if value not in arguments:
            raise UsageError(
                f"{key}={value!r} is not a choice; choose one of {', '.join(map(str, arguments))}."
            )
        return value
    if origin is tuple:
        items = value
        if isinstance(value, str):
            items = [item for item in value.strip("()[] ").split(",") if item or "," in value]
        if not isinstance(items, Iterable) or isinstance(items, Mapping):
            raise UsageError(
                f"{key}={value!r} is not a list; "
                f"give values with commas between them, such as {key}=32,64."
            )
        return tuple(
            _convert(key, item.strip() if isinstance(item, str) else item, arguments[0])
            for item in items
        )
    if hint is bool:
        return _boolean(key, value)
    if hint in (int, float):
        return _number(key, value, hint)
    if hint is str and not isinstance(value, str):
        raise UsageError(f"{key}={value!r} is not a text.")
    return value


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "yes", "on", "1"):
        return True
    if str(value).lower() in ("false", "no", "off", "0"):
        return False
    raise UsageError(f"{key}={value!r} is not true or false.")


def _number(key: str, value: Any, kind: type) -> int | float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{key}={value!r} is not a number.") from None
    if isinstance(value, bool):
        raise UsageError(f"{key}={value!r} is not a number.")
    if not math.isfinite(number):
        raise UsageError(f"{key}={value!r} must be finite.")
    if kind is int and number != int(number):
        raise UsageError(f"{key}={value!r} must be a whole number.")
    if kind is int and abs(number) >= 2**63:
        raise UsageError(f"{key}={value!r} is too large; give a whole number below 2^63.")
    return kind(number)
