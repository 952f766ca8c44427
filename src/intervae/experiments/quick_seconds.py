"""CPU seconds of every quick form, measured once on one core of a shared machine."""

from __future__ import annotations

QUICK_SECONDS: dict[str, float] = {}
