"""Every error a person can cause: one sentence that says what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class IntervaeError(Exception):
    """Base of all errors raised on purpose; the command line prints its text and exits with `exit_code`."""

    exit_code = 1


class DataError(IntervaeError):
    """Data that cannot be read or used: a corrupt image, a NaN label, a constant column."""


class RunError(IntervaeError):
    """A run folder that is missing, incomplete, not ours, or cannot be written."""


class TrainingError(IntervaeError):
    """Training that cannot go on, such as a loss that is no longer finite."""


class QueryError(IntervaeError):
    """A question the model cannot answer, or one asked with the wrong input."""


class UsageError(IntervaeError):
    """A wrong name, setting or option: the command line exits with 2."""

    exit_code = 2


def unknown(what: str, name: str, known: Iterable[str], error: type[IntervaeError] = UsageError) -> IntervaeError:
    """The error for an unknown name: near matches first, else everything that is known."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    everything = f"nown: {', '.join(names) or '(none)'}"
    hint = f"did you mean {' or '.join(map(repr, near))}? K{everything}" if near else f"k{everything}"
    return error(f"unknown {what} {name!r}; {hint}.")
