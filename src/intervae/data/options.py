"""Parsing of data options: fractions of splits and lists of names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from intervae.errors import UsageError


def check_fractions(**fractions: Any) -> dict[str, float]:
    """Return the fractions that are not None, each checked to lie between 0 and 1.

    `test` may be 1: everything is for testing.
    """
    for name, fraction in fractions.items():
        if fraction is not None and (
            isinstance(fraction, bool)
            or not isinstance(fraction, Real)
            or not (0 < float(fraction) < 1 or (name == "test" and float(fraction) == 1))
        ):
            whole = " (test=1.0: everything)" if name == "test" else ""
            raise UsageError(
                f"{name}={fraction!r} must be a fraction between 0 and 1, such as 0.1{whole}."
            )
    return {name: float(fraction) for name, fraction in fractions.items() if fraction is not None}


def as_data_option(transitions: str) -> str:
    """Return the command-line form of options of transitions, such as "ignore=weight"."""
    return f'(--data-option "transitions={transitions}")'


def read_names(names: str | Sequence[str], option: str) -> list[str]:
    """Return a list of names from a list, or from one text with commas."""
    if not isinstance(names, Iterable):
        raise UsageError(
            f"{option}={names!r} must be names, with commas between them or in a list."
        )
    if isinstance(names, str):
        return [name.strip() for name in names.split(",") if name.strip()]
    return list(names)
