"""Progress of a grid: one row per job with its runs, read from their folders."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from intervae.experiments.records import Task

COLUMNS = ("job", "finished", "running", "waiting", "failed", "last epoch")
TAIL = 65_536  # bytes at the end of metrics.jsonl that hold its last line


@dataclass
class JobProgress:
    """Numbers of runs of one job, and where the running ones are."""

    job: str
    finished: int = 0
    running: int = 0
    waiting: int = 0
    failed: int = 0
    epoch: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        numbers = (self.finished, self.running, self.waiting, self.failed)
        return (self.job, *(str(n) if n else "" for n in numbers), self.epoch)


def grid_progress(
    tasks: Sequence[Task], finished: set[Task], failed: set[Task]
) -> list[JobProgress]:
    """Return one entry per job; a run whose folder exists counts as running."""
    rows: dict[str, JobProgress] = {}
    for task in tasks:
        row = rows.setdefault(task.job.key, JobProgress(task.job.key))
        if task in finished:
            row.finished += 1
        elif task in failed:
            row.failed += 1
        elif task.folder.is_dir():
            row.running += 1
            row.epoch = last_epoch(task) or row.epoch
        else:
            row.waiting += 1
    return list(rows.values())


def last_epoch(task: Task) -> str:
    """Return phase and epoch of the last line of a run's metrics.jsonl, "" before it."""
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, TypeError):
        with open(task.folder / "metrics.jsonl", "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            line = json.loads(file.read().splitlines()[-1])
        return f"{line['phase']} {line['epoch']}"
    return ""


class ProgressTable:
    """The table on a terminal; elsewhere nothing, as every ended run is printed."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        self.finished: set[Task] = set()
        self.failed: set[Task] = set()
        self.live: Live | None = None

    @contextlib.contextmanager
    def shown(self) -> Iterator[ProgressTable]:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield self
            return
        with Live(self._table(), console=console, auto_refresh=False, transient=True) as self.live:
            yield self

    def update(self) -> None:
        if self.live is not None:
            self.live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in COLUMNS[::5] else "right")
        for row in grid_progress(self.tasks, self.finished, self.failed):
            table.add_row(*(Text(cell) for cell in row.cells))
        return table
