"""The progress bar of long reads."""

from __future__ import annotations

import sys
import time

import pytest

from intervae.data.progress import progress


class Terminal:
    """A stderr that records what is written."""

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal, self.text = is_terminal, ""

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("is_terminal", "after", "shown"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)]
)
def test_progress_shows_on_a_terminal_after_a_delay(monkeypatch, is_terminal, after, shown):
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    items = (time.sleep(0.002) or i for i in range(5))
    assert list(progress(items, 5, "reading images", after=after)) == [0, 1, 2, 3, 4]
    assert ("reading images" in terminal.text) is shown
