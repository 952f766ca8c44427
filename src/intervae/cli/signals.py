"""Ends of the program by a signal: Ctrl-C, SIGTERM, SIGHUP (terminal closed) and SIGQUIT.

All of them end a command as Ctrl-C does: one sentence, exit code 1, the last checkpoint intact.
This module imports nothing large, so that the handlers are there before anything else is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")  # the last two do not exist on Windows
IMPORT = "<frozen importlib._bootstrap"  # file of the frames of an import
WHILE_STARTING = "error: interrupted while starting; give the same command again.\n"


def install_handlers() -> None:
    """Let the signals raise KeyboardInterrupt; one that is ignored, as by nohup, stays so."""
    for name in NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(number, _interrupt)


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
