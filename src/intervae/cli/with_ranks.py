"""The program under torchrun: only the first rank prints, and only trainings have ranks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from intervae.errors import UsageError

TRAININGS = ("train", "resume")
PATIENCE = 2.0  # seconds in which torchrun ends a rank whose error is that of rank 0


def other_rank() -> int:
    """Return the number of this rank if it is not the first, else 0."""
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdigit() and os.environ.get("WORLD_SIZE", "1") != "1" else 0


def check_command(words: Sequence[str]) -> None:
    """Silence all ranks but the first; raise a UsageError for a command without ranks."""
    if other_rank():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    command = next((word for word in words if not word.startswith("-")), "")
    several = os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ
    if several and command and command not in TRAININGS:
        raise UsageError(
            f"torchrun starts several processes, and `{command}` needs one; give the command "
            "without torchrun."
        )


def before_error() -> str:
    """Return what precedes an error of this rank; most are those of rank 0, which prints first."""
    if rank := other_rank():
        time.sleep(PATIENCE)
        return f"rank {rank}: "
    return ""
