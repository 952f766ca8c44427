"""Options that people give to data sets: fractions of splits and lists of names, each refused in one sentence where it is neither."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from intervae.errors import UsageError


def check_fractions(**given: Any) -> dict[str, float]:
    """Those fractions of a split that are given, not None."""
    for name, fraction in given.items():
        if fraction is not None and (isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < float(fraction) < 1):
            raise UsageError(f"{name}={fraction!r} must be a fraction between 0 and 1, such as 0.1.")
    return {name: float(fraction) for name, fraction in given.items() if fraction is not None}


def as_data_option(transitions: str) -> str:
    """How the command line gives options of transitions, such as "ignore=weight", in brackets."""
    return f'(--data-option "transitions={transitions}")'


def read_names(given: str | Sequence[str], what: str) -> list[str]:
    """A list of names, or one text with commas."""
    if not isinstance(given, Iterable):
        raise UsageError(f"{what}={given!r} must be names, with commas between them or in a list.")
    return [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else list(given)
