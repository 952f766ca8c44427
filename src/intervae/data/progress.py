"""Progress bar for long reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def progress(
    items: Iterable[T], total: int, description: str, *, after: float = 1.0
) -> Iterator[T]:
    """Yield `items`; on a terminal show a progress bar once `after` seconds have passed."""
    start = time.monotonic()
    iterator = iter(items)
    completed = 0
    for item in iterator:
        completed += 1
        yield item
        if sys.stderr.isatty() and time.monotonic() - start > after:
            break
    else:
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, completed=completed)
        for item in iterator:
            bar.advance(task)
            yield item
