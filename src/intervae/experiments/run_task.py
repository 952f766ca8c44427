"""One task of an experiment in this process: its stored record, or a run and its record."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import torch

from intervae.errors import TrainingError
from intervae.experiments.records import Record, Task, read_record, write_record


def record_or_error(
    task: Task, device: str, *, before: Callable[[], None] | None = None
) -> Record | Exception:
    """Return the record of a task, or the error with which it failed.

    Arguments:
        before: called first, such as the training of a stack to which the task belongs.
    """
    try:
        if before is not None:
            before()
        return _record(task, device)
    except Exception as error:
        return error


def _record(task: Task, device: str) -> Record:
    """Return the stored record of a task, or run the task and store its numbers."""
    record = read_record(task)
    if record is not None:
        return record
    numbers = task.job.run(task.seed, device, task.folder)
    for key, value in numbers.items():
        if not math.isfinite(value):
            raise TrainingError(
                f"{task.job.key}, seed {task.seed}: {key} is {value}, which no table can show; "
                f"the run is in {task.folder}."
            )
    return write_record(task, numbers, device)


@contextlib.contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """Use TF32 matrix products in training and evaluation if `tf32`."""
    before = torch.get_float32_matmul_precision()
    if tf32:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
