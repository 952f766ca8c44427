"""What a worker of an engine does with a job: run it, or resume it, and store its numbers."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from intervae.errors import RunError
from intervae.experiments.records import Record, Task, read_record
from intervae.experiments.run_task import matmul_precision, record_or_error
from intervae.files import only_writer
from intervae.models.device import choose_device

LOCK_SECONDS = 60.0  # in which a worker that was given up may still end
STORAGE_SECONDS = 60.0  # in which a file written elsewhere appears on shared storage


def run_task(task: Task, device: str, marker: Path, tf32: bool) -> str:
    """Run a job on this machine and store its numbers; return "" or the error."""
    if not marker.is_file():
        return (
            f"{marker.parent} is not visible on {socket.gethostname()}; put --runs on storage that "
            "all machines share."
        )
    _await_writer(task.folder)
    with matmul_precision(tf32):
        result = record_or_error(task, str(choose_device(device)))
    return str(result) if isinstance(result, Exception) else ""


def _await_writer(folder: Path) -> None:
    """Wait until no other process trains in a folder: a lost worker may be a slow one."""
    end = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < end:
        try:
            with only_writer(folder):
                return
        except RunError:
            time.sleep(1)


def stored_record(task: Task) -> Record | None:
    """Return the record that a worker stored; shared storage may show it late."""
    end = time.monotonic() + STORAGE_SECONDS
    while (record := read_record(task)) is None and time.monotonic() < end:
        time.sleep(0.2)
    return record


@contextmanager
def shared_storage(tasks: Sequence[Task]) -> Iterator[Path]:
    """Yield a file in the folder of the runs, by which a worker checks that it sees them."""
    folder = tasks[0].folder.parent
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / f".grid-{secrets.token_hex(8)}"
    marker.touch()
    try:
        yield marker
    finally:
        marker.unlink(missing_ok=True)


def absolute(task: Task) -> Task:
    """Return the task with an absolute folder: workers start in other folders."""
    return replace(task, folder=task.folder.resolve())
