"""What a run tells while it trains: metrics.jsonl, TensorBoard events, a progress bar with the time left on a terminal, elsewhere a line a minute."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from intervae.errors import RunError
from intervae.files import cannot_write

SECONDS_A_LINE = 60.0  # between two lines into a file


class MetricsLog:
    """Appends one JSON line per epoch to metrics.jsonl; without a folder it only remembers."""

    def __init__(self, folder: Path | None, keep_bytes: int, tensorboard: bool) -> None:
        self.path = folder / "metrics.jsonl" if folder else None
        self.lines: list[dict[str, Any]] = []
        if self.path is not None:
            try:
                with open(self.path, "ab") as file:
                    file.truncate(min(keep_bytes, file.tell()))  # what came after the checkpoint will come again
                self.lines = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
            except OSError as error:
                raise cannot_write(self.path, error) from error
            except ValueError as error:
                raise RunError(f"{self.path} is damaged ({error}); remove it to go on without what it tells of earlier epochs.") from None
        self.writer: Any = _tensorboard(folder, len(self.lines)) if folder and tensorboard else None

    def append(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if self.path is not None:
            try:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                if self.writer is not None:
                    self._draw(line)
            except OSError as error:
                raise cannot_write(self.path, error) from error

    def _draw(self, line: dict[str, Any]) -> None:
        for part in ("train", "validation"):
            for name, value in (line.get(part) or {}).items():
                self.writer.add_scalar(f"{line['phase']}/{name}/{part}", value, len(self.lines))

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size if self.path is not None else 0

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # an extra: pip install intervae[tensorboard]
        return None
    try:
        return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)  # a resumed run replaces what came after its checkpoint
    except OSError as error:
        raise cannot_write(folder / "tensorboard" / "events", error) from error


class Bar:
    """A progress bar per phase on standard error; a line a minute when that is not a terminal; silent where several runs share it."""

    def __init__(self, shown: bool | None) -> None:
        console = Console(stderr=True)
        alone = threading.current_thread() is threading.main_thread()
        on_terminal = console.is_terminal and sys.stderr.isatty()
        visible = on_terminal and alone if shown is None else shown
        self.lines = alone and not on_terminal if shown is None else False
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, TextColumn("{task.fields[note]}"), console=console, disable=not visible)
        self.task: Any = None

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def phase(self, name: str, epochs: int, done: int) -> None:
        self.task = self.progress.add_task(name, total=max(epochs, 1), completed=done, note="")
        self.name, self.epochs, self.done, self.begun, self.told = name, epochs, done, (time.monotonic(), done), time.monotonic()

    def advance(self, note: str) -> None:
        self.progress.update(self.task, advance=1, note=note)
        self.done += 1
        if self.lines and time.monotonic() - self.told >= SECONDS_A_LINE:
            self.told = time.monotonic()
            left = (self.told - self.begun[0]) / (self.done - self.begun[1]) * (self.epochs - self.done)
            print(f"{self.name}: {self.done} of {self.epochs} epochs, about {left / 60:.0f} min left; {note}", file=sys.stderr, flush=True)

    def finish(self) -> None:
        total = self.progress.tasks[self.task].total
        self.progress.update(self.task, completed=total)
