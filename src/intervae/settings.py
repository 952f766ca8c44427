"""Settings as frozen dataclasses: built from Python values or from `key=value` texts, with unknown keys and wrong types refused."""

from __future__ import annotations

import contextlib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any, Literal, TypeVar

from intervae.errors import IntervaeError, UsageError, unknown

T = TypeVar("T")


def build_settings(cls: type[T], values: Mapping[str, Any]) -> T:
    """An instance of the dataclass `cls`; texts (as the command line gives them) are turned into the fields' types."""
    hints = typing.get_type_hints(cls)
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for key in values:
        if key not in names:
            raise unknown("setting", key, names)
    return cls(**{key: _convert(key, value, hints[key]) for key, value in values.items()})


def split_settings(values: Mapping[str, Any], *classes: type) -> list[dict[str, Any]]:
    """Share out flat settings among several dataclasses whose field names do not clash."""
    owners = {f.name: i for i, cls in enumerate(classes) for f in fields(cls)}
    parts: list[dict[str, Any]] = [{} for _ in classes]
    for key, value in values.items():
        if key not in owners:
            raise unknown("setting", key, owners)
        parts[owners[key]][key] = value
    return parts


def at_least(settings: Any, **smallest: float) -> None:
    """Refuse settings below the smallest value that makes sense, each in a sentence of its own."""
    for name, least in smallest.items():
        if getattr(settings, name) < least:
            raise UsageError(f"{name}={getattr(settings, name)} must be {least} or more.")


def check_flags(**given: Any) -> None:
    """Refuse what is neither True nor False."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name}={value!r} must be true or false.")


def check_whole(least: int, error: type[IntervaeError] = UsageError, /, **given: Any) -> None:
    """Refuse what is no whole number, or one below the least."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise error(f"{name}={value!r} must be a whole number, {least} or more.")


def parse_settings(texts: Iterable[str], option: str = "--set") -> dict[str, str]:
    """`["dims=2", "network=mlp"]`, as `--set` gives them, to a dict of texts; `option` is what the error calls them."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text!r} is not of the form key=value.")
        values[key.strip()] = value.strip()
    return values


def plain_value(text: str) -> Any:
    """What a person means by the text of an option: a number, true or false, or the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def _convert(key: str, value: Any, hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return _convert(key, value, next(a for a in arguments if a is not type(None)))
    if origin is Literal:
        if value not in arguments:
            raise UsageError(f"{key}={value!r} is not a choice; choose one of {', '.join(map(str, arguments))}.")
        return value
    if origin is tuple:
        parts = [part for part in value.strip("()[] ").split(",") if part or "," in value] if isinstance(value, str) else value
        if not isinstance(parts, Iterable) or isinstance(parts, Mapping):
            raise UsageError(f"{key}={value!r} is not a list; give values with commas between them, such as {key}=32,64.")
        return tuple(_convert(key, part.strip() if isinstance(part, str) else part, arguments[0]) for part in parts)
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
    return kind(number)
