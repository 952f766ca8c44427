"""Memory check before large arrays are read."""

from __future__ import annotations

import os

from intervae.errors import DataError


def check_memory(needed: int, name: str, advice: str) -> None:
    """Raise an error if `needed` bytes exceed the memory of the machine."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on this system
        return
    if needed > installed:
        raise DataError(
            f"{name}: the images need {needed / 2**30:.1f} GiB but this machine has "
            f"{installed / 2**30:.1f} GiB of memory; {advice}."
        )
