"""Checks of options that people give to data sets, each refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

from intervae.errors import IntervaeError, UsageError


def check_flags(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name}={value!r} must be true or false.")


def check_whole(least: int, error: type[IntervaeError] = UsageError, /, **given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise error(f"{name}={value!r} must be a whole number, {least} or more.")


def check_fractions(**given: Any) -> dict[str, float]:
    """Those fractions of a split that are given, not None."""
    for name, fraction in given.items():
        if fraction is not None and (isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < float(fraction) < 1):
            raise UsageError(f"{name}={fraction!r} must be a fraction between 0 and 1, such as 0.1.")
    return {name: float(fraction) for name, fraction in given.items() if fraction is not None}


def read_names(given: str | Sequence[str], what: str) -> list[str]:
    """A list of names, or one text with commas."""
    if not isinstance(given, Iterable):
        raise UsageError(f"{what}={given!r} must be names, with commas between them or in a list.")
    return [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else list(given)
