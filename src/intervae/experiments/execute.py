"""Execution of a plan: run the unfinished tasks, several at once, and store their numbers."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator

from intervae.errors import IntervaeError, RunError
from intervae.experiments.base import MetricKey
from intervae.experiments.engines import Engine
from intervae.experiments.engines.progress import ProgressTable
from intervae.experiments.engines.task import stored_record
from intervae.experiments.plan import Plan
from intervae.experiments.records import Record, Task
from intervae.experiments.run_task import matmul_precision, record_or_error
from intervae.training.concurrent_runs import run_concurrently
from intervae.training.draws import StackError


def execute(plan: Plan, notify: Callable[[str], None]) -> dict[Task, Record]:
    """Return the record of every task, in the order of the plan; unfinished tasks are run.

    A task that fails does not stop the others; at the end the error of the first is raised.
    """
    for task in plan.unfinished:
        task.job.check()
    records: dict[int, Record] = {}
    errors: list[Exception] = []
    results = (
        _on_this_machine(plan, notify) if plan.engine is None else _on_engine(plan, plan.engine)
    )
    with contextlib.closing(results):
        for number, result in results:
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


Results = Generator[tuple[int, Record | Exception], None, None]


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


def _on_this_machine(plan: Plan, notify: Callable[[str], None]) -> Results:
    """Yield (number, record or error) of every task as it ends, run in this process."""
    stacks = _stacks(plan, notify)
    calls = [
        functools.partial(record_or_error, task, plan.device, before=stacks[task].train)
        if task in stacks
        else functools.partial(record_or_error, task, plan.device)
        for task in plan.tasks
    ]
    with matmul_precision(_all_tf32(plan)):
        yield from run_concurrently(calls, plan.workers, plan.device)


def _on_engine(plan: Plan, engine: Engine) -> Results:
    """Yield (number, record or error) of every task as it ends, run by an engine.

    The numbers are read from the folders of the runs, as if this machine had made them.
    """
    unfinished = [n for n, task in enumerate(plan.tasks) if task in plan.unfinished]
    table = ProgressTable(plan.tasks)
    for number in sorted(set(range(len(plan.tasks))) - set(unfinished)):
        table.finished.add(plan.tasks[number])
        yield number, record_or_error(plan.tasks[number], plan.device)
    if not unfinished:
        return
    tasks = [plan.tasks[number] for number in unfinished]
    with (
        table.shown(),
        contextlib.closing(engine.run(tasks, plan.device, tf32=_all_tf32(plan))) as ended,
    ):
        for end in ended:
            if end is not None:
                task, error = tasks[end[0]], end[1]
                record = None if error else stored_record(task)
                (table.failed if record is None else table.finished).add(task)
                error = error or f"its numbers did not appear in {task.folder}."
                yield (
                    unfinished[end[0]],
                    RunError(f"{task.job.key}, seed {task.seed}: {error}")
                    if record is None
                    else record,
                )
            table.update()


def _all_tf32(plan: Plan) -> bool:
    """Whether every unfinished job asks for TF32 matrix products, in evaluation too."""
    jobs = [task.job for task in plan.unfinished]
    return bool(jobs) and all(job.training.get("precision") == "tf32" for job in jobs)
