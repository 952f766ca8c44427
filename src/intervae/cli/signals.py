"""Ends of the program by a signal: Ctrl-C at any time, SIGTERM, SIGHUP and SIGQUIT in a training.

All end a command with one sentence and exit code 1, the last checkpoint intact. This module
imports nothing large, so that Ctrl-C is handled before anything else is imported.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")  # the last two do not exist on Windows
IMPORT = "<frozen importlib._bootstrap"  # file of the frames of an import
WHILE_STARTING = "error: interrupted while starting; give the same command again.\n"


def handle_ctrl_c() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, and end the program at once during an import."""
    _set_handler("SIGINT")


def trace_crashes() -> None:
    """Print the Python stack of every thread if the process crashes, as by a segmentation fault.

    For commands that run for long.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError, RuntimeError):
        faulthandler.enable()  # fails where standard error is not a file


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM, SIGHUP (terminal closed) and SIGQUIT raise KeyboardInterrupt.

    Only where Python code runs often, as in the steps of a training: elsewhere the system ends
    the process without asking Python.
    """
    numbers = [number for name in ENDING if (number := _set_handler(name)) is not None]
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _set_handler(name: str) -> int | None:
    """Handle a signal and return its number; one that is ignored, as by nohup, stays so."""
    number = getattr(signal, name, None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        return None
    try:
        signal.signal(number, _interrupt)
    except ValueError:  # not in the main thread
        return None
    return number


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; a second signal ends the program at once.

    Compiled packages turn an exception during their import into others, or into a warning and a
    half imported module. During an import the program therefore ends here.
    """
    signal.signal(number, signal.SIG_DFL)
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORT):
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                sys.stdout.flush()
            with contextlib.suppress(OSError):
                os.write(2, WHILE_STARTING.encode())
            os._exit(1)
        frame = frame.f_back
    raise KeyboardInterrupt
