"""Logs of a training: metrics.jsonl, TensorBoard events, a progress bar or progress lines."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from intervae.errors import RunError
from intervae.files import cannot_write, check_regular
from intervae.training.timing import Timing, describe_time

SHORT = 10.0  # seconds below which no estimate is shown on a terminal
SHORT_ELSEWHERE = 60.0
LINE_INTERVAL = 60.0  # seconds between two progress lines


class MetricsLog:
    """Appends one JSON line per epoch to metrics.jsonl; without a folder, to memory only.

    Arguments:
        keep_bytes: length to which an existing file is truncated, that of the checkpoint.
    """

    def __init__(self, folder: Path | None, keep_bytes: int, tensorboard: bool) -> None:
        self.path = folder / "metrics.jsonl" if folder else None
        self.lines: list[dict[str, Any]] = []
        if self.path is not None:
            try:
                if os.path.lexists(self.path):
                    check_regular(self.path)
                with open(self.path, "ab") as file:
                    file.truncate(min(keep_bytes, file.tell()))
                texts = self.path.read_text(encoding="utf-8").splitlines()
                self.lines = [json.loads(text) for text in texts]
            except OSError as error:
                raise cannot_write(self.path, error) from error
            except ValueError as error:
                raise RunError(
                    f"{self.path} is damaged ({error}); remove it to resume without the metrics "
                    "of earlier epochs."
                ) from None
        self.writer: Any = None
        if folder and tensorboard:
            self.writer = _tensorboard_writer(folder, len(self.lines))

    def append(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if self.path is not None:
            try:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                if self.writer is not None:
                    self._write_events(line)
            except OSError as error:
                raise cannot_write(self.path, error) from error

    def _write_events(self, line: dict[str, Any]) -> None:
        for split in ("train", "validation"):
            for name, value in (line.get(split) or {}).items():
                self.writer.add_scalar(f"{line['phase']}/{name}/{split}", value, len(self.lines))

    @property
    def bytes(self) -> int:
        """Length of metrics.jsonl."""
        return self.path.stat().st_size if self.path is not None else 0

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _tensorboard_writer(folder: Path, step: int) -> Any:
    """Return a SummaryWriter that replaces events after `step`, None without the package."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # an extra: pip install intervae[tensorboard]
        return None
    try:
        return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
    except OSError as error:
        raise cannot_write(folder / "tensorboard" / "events", error) from error


class ProgressBar:
    """Progress on standard error: a bar on a terminal, else one line per minute.

    Concurrent runs, which are not in the main thread, show neither.

    Arguments:
        shown: whether to show the bar; None decides as above.
    """

    def __init__(self, shown: bool | None) -> None:
        console = Console(stderr=True)
        main_thread = threading.current_thread() is threading.main_thread()
        on_terminal = console.is_terminal and sys.stderr.isatty()
        visible = on_terminal and main_thread if shown is None else shown
        self.print_lines = main_thread and not on_terminal if shown is None else False
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.progress = Progress(*columns, console=console, disable=not visible)
        self.task: Any = None

    def __enter__(self) -> ProgressBar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def start_phase(self, name: str, epochs: int, done: int) -> None:
        """Start a phase of which `done` epochs are finished."""
        self.task = self.progress.add_task(name, total=max(epochs, 1), completed=done, note="")
        self.name, self.epochs = name, epochs
        self.done = self.first = done
        self.start_time = self.line_time = time.monotonic()

    def show_estimate(self, timing: Timing, epochs: int) -> None:
        """Print how long `epochs` epochs of a phase take at most, if that is long enough."""
        shortest = SHORT_ELSEWHERE if self.progress.disable else SHORT
        if timing.epoch_seconds is None or timing.epoch_seconds * epochs < shortest:
            return
        threads = f"{timing.threads} CPU thread{'s' if timing.threads > 1 else ''}"
        duration = describe_time(timing.epoch_seconds * epochs)
        text = f"{self.name}: {duration} for at most {epochs} epochs, on {threads}"
        if not self.progress.disable:
            self.progress.console.print(text, markup=False, highlight=False)
        elif self.print_lines:
            print(text, file=sys.stderr, flush=True)

    def advance(self, note: str) -> None:
        """Count one epoch and show a note, such as its loss."""
        self.progress.update(self.task, advance=1, note=note)
        self.done += 1
        now = time.monotonic()
        if self.print_lines and now - self.line_time >= LINE_INTERVAL:
            self.line_time = now
            per_epoch = (now - self.start_time) / (self.done - self.first)
            minutes = per_epoch * (self.epochs - self.done) / 60
            print(
                f"{self.name}: {self.done} of {self.epochs} epochs, about {minutes:.0f} min left; "
                f"{note}",
                file=sys.stderr,
                flush=True,
            )

    def finish_phase(self) -> None:
        """Fill the bar of a phase that may have stopped early."""
        total = self.progress.tasks[self.task].total
        self.progress.update(self.task, completed=total)
