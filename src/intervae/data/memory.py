"""Memory check before large arrays are read."""

from __future__ import annotations

import contextlib
import os

from intervae.errors import DataError
from intervae.memory import address_limit


def check_memory(needed: int, name: str, advice: str) -> None:
    """Raise an error if `needed` bytes exceed the memory of the machine."""
    installed = installed_memory()
    if installed is not None and needed > installed:
        raise DataError(
            f"{name}: the images need {needed / 2**30:.1f} GiB but this machine has "
            f"{installed / 2**30:.1f} GiB of memory; {advice}."
        )


def installed_memory() -> int | None:
    """Return the bytes that this process may use: installed memory or `ulimit -v`, if known."""
    limits = []
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not known on this system
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = address_limit()
    return min([*limits, *([] if limit is None else [limit])], default=None)
