"""Execution of a plan: run the unfinished tasks, several at once, and store their numbers."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from intervae.errors import IntervaeError, RunError, TrainingError
from intervae.experiments.base import MetricKey
from intervae.experiments.plan import Plan
from intervae.experiments.records import Record, Task, read_record, write_record
from intervae.training.concurrent_runs import run_concurrently
from intervae.training.draws import StackError


def execute(plan: Plan, notify: Callable[[str], None]) -> dict[Task, Record]:
    """Return the record of every task, in the order of the plan; unfinished tasks are run.

    A task that fails does not stop the others; at the end the error of the first is raised.
    """
    for task in plan.unfinished:
        task.job.check()
    stacks = _stacks(plan, notify)
    calls = [
        functools.partial(_record_or_error, task, plan.device, stacks.get(task))
        for task in plan.tasks
    ]
    records: dict[int, Record] = {}
    errors: list[Exception] = []
    with _matmul_precision(plan):
        for number, result in run_concurrently(calls, plan.workers, plan.device):
            task = plan.tasks[number]
            title = f"{task.job.key} seed {task.seed}"
            if isinstance(result, Exception):
                errors.append(result)
                notify(f"{title} failed: {result}")
                continue
            records[number] = result
            keys = [MetricKey(m) for m in plan.experiment.shown]
            texts = [f"{k} {result.numbers[k]:.4g}" for k in keys if k in result.numbers]
            notify(f"{title}: " + ", ".join(texts))
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise RunError(
            f"{len(errors)} of {len(plan.tasks)} runs of {plan.experiment.name} failed, the first "
            f"with: {errors[0]}{' The others are stored.' if records else ''}"
        )
    return {plan.tasks[number]: records[number] for number in sorted(records)}


class _Stack:
    """Unfinished seeds of one job, which the first task of the job trains as a stack."""

    def __init__(self, tasks: list[Task], device: str, notify: Callable[[str], None]) -> None:
        self.tasks, self.device, self.notify = tasks, device, notify
        self.job = tasks[0].job
        self.lock, self.begun = threading.Lock(), False

    def train(self) -> None:
        """Train the stack at the first call; other calls wait for its end."""
        with self.lock:
            if self.begun:
                return
            self.begun = True
            folders = {task.seed: task.folder for task in self.tasks}
            try:
                self.job.train_stack(folders, self.device, self.notify)
            except StackError as reason:
                self.notify(f"{self.job.key}: its seeds are trained one by one, because {reason}.")
            except IntervaeError as error:  # the tasks raise it again, each with its seed
                self.notify(f"{self.job.key}: the stack of its seeds failed: {error}")


def _stacks(plan: Plan, notify: Callable[[str], None]) -> dict[Task, _Stack]:
    """Return the stack of each unfinished task whose job trains several seeds as one."""
    jobs: dict[int, list[Task]] = {}
    for task in plan.unfinished if plan.stack else ():
        if task.job.trains_stacks:
            jobs.setdefault(id(task.job), []).append(task)
    stacks: dict[Task, _Stack] = {}
    for tasks in jobs.values():
        if len(tasks) > 1:
            stacks |= dict.fromkeys(tasks, _Stack(tasks, plan.device, notify))
    return stacks


def _record_or_error(task: Task, device: str, stack: _Stack | None) -> Record | Exception:
    """Return the record of a task, or the error with which it failed."""
    try:
        if stack is not None:
            stack.train()
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


@contextmanager
def _matmul_precision(plan: Plan) -> Iterator[None]:
    """Use TF32 matrix products, in training and evaluation, if every unfinished job asks for it."""
    before = torch.get_float32_matmul_precision()
    jobs = [task.job for task in plan.unfinished]
    if jobs and all(job.training.get("precision") == "tf32" for job in jobs):
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
