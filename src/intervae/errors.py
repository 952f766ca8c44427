"""Errors that a caller can cause: one sentence on what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class IntervaeError(Exception):
    """Base of all errors; the command line prints the text and exits with `exit_code`."""

    exit_code = 1


class DataError(IntervaeError):
    """Data that cannot be read or used: a corrupt image, a NaN label, a constant column."""


class MissingDataError(DataError):
    """Published data that are not on this disk."""


class RunError(IntervaeError):
    """A run folder that is missing, incomplete, not ours, or cannot be written."""


class TrainingError(IntervaeError):
    """Training that cannot continue, such as a loss that is not finite."""


class QueryError(IntervaeError):
    """A query that the model cannot answer, or one with wrong input."""


class MissingQueryError(QueryError, AttributeError):
    """A query that a model lacks; also an AttributeError, so that hasattr() is False."""


class DataWarning(UserWarning):
    """Something in the data that a user should know; the command line prints it as a note."""


class UsageError(IntervaeError):
    """A wrong name, setting or option; the command line exits with 2."""

    exit_code = 2


def unknown(
    what: str, name: str, known: Iterable[str], error: type[IntervaeError] = UsageError
) -> IntervaeError:
    """Return the error for an unknown name, with close matches and all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    listing = ", ".join(names) or "(none)"
    if close:
        question = f"did you mean {' or '.join(map(repr, close))}?"
        return error(f"unknown {what} {name!r}; {question} Known: {listing}.")
    return error(f"unknown {what} {name!r}; known: {listing}.")


def abbreviate(items: Sequence[str], limit: int = 6, separator: str = ", ") -> str:
    """Return the first `limit` items, joined, and the total if there are more."""
    shown = separator.join(items[:limit])
    return shown if len(items) <= limit else f"{shown}{separator}... ({len(items)} in all)"
