"""`fit_seeds`: one model trained with several seeds, as a stack where its losses allow it.

Every run has the result, the folder and the checkpoint that it would have alone. What cannot be
stacked is trained side by side on a GPU and one after the other elsewhere.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from intervae.data import Dataset
from intervae.errors import IntervaeError, RunError, UsageError
from intervae.memory import is_out_of_memory
from intervae.models.base import Model
from intervae.models.checks import check_model
from intervae.models.device import choose_device
from intervae.settings import build_settings, check_flags, check_seed
from intervae.training.arguments import check_arguments, check_out
from intervae.training.concurrent_runs import run_concurrently
from intervae.training.draws import StackError
from intervae.training.epochs import PhaseTraining
from intervae.training.logging import ProgressBar
from intervae.training.loop import Result, Trainer
from intervae.training.options import Options
from intervae.training.stacked_stepper import StackedStepper, check_stackable
from intervae.training.timing import own_arithmetic

SIDE_BY_SIDE = 8  # runs of a phase that is no stack, on a GPU; see benchmarks/concurrent_runs.py


@dataclass(frozen=True)
class SeedRun:
    """One run of `fit_seeds`: its seed, its trained model and what `fit` would return."""

    seed: int
    model: Model
    result: Result


def fit_seeds(
    model: Model,
    data: Dataset,
    *,
    seeds: int | Sequence[int] = 10,
    out: str | Path | None = None,
    device: str | torch.device = "auto",
    resume: bool = False,
    overwrite: bool = False,
    stack: bool | int | None = None,
    notify: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[SeedRun]:
    """Train copies of `model` with several seeds; each is the run that `fit` gives for its seed.

    Arguments:
        seeds: a number of seeds from 0 on, or the seeds themselves.
        out: folder of the run folders seed-0, seed-1, ...; None keeps everything in memory.
        resume: continue the runs that are there, and start the others.
        overwrite: replace runs that are there.
        stack: True trains as many runs as fit as one stack, a number is the most runs of a stack,
            and False trains none as a stack. By default True on a GPU and False elsewhere, where
            runs one after the other are faster.
        notify: called with a sentence about runs that are no stack, or a smaller one.
        options: see `Options`.
    """
    check_model(model)
    chosen = check_seeds(seeds)
    folder = check_out(out)
    return fit_stack(
        [copy.deepcopy(model) for _ in chosen],
        data,
        chosen,
        [folder / f"seed-{seed}" if folder else None for seed in chosen],
        device=device,
        resume=resume,
        overwrite=overwrite,
        stack=stack,
        notify=notify,
        **options,
    )


def check_seeds(seeds: Any) -> list[int]:
    """Return the list of seeds; none, or the same twice, raises a UsageError."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= 10_000:
            raise UsageError(f"seeds={seeds} must be a number from 1 to 10000, or a list of seeds.")
        return list(range(seeds))
    if not isinstance(seeds, Sequence) or isinstance(seeds, str) or not seeds:
        raise UsageError(f"seeds={str(seeds)[:80]!r} must be a number or a list of seeds.")
    chosen = [check_seed(seed) for seed in seeds]
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"seeds={chosen} names a seed twice; each seed is one run.")
    return chosen


def fit_stack(
    models: Sequence[Model],
    data: Dataset,
    seeds: Sequence[int],
    folders: Sequence[Path | None],
    *,
    device: str | torch.device = "auto",
    resume: bool = False,
    overwrite: bool = False,
    stack: bool | int | None = None,
    notify: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[SeedRun]:
    """Train models of one class, each with its seed and its folder; see `fit_seeds`.

    A run that fails does not stop the others; at the end the error of the first is raised.
    """
    for model in models:
        check_arguments(model, data, options, resume=resume, overwrite=overwrite)
    check_flags(resume=resume)
    chosen = choose_device(device)
    if stack is None:
        stack = chosen.type == "cuda"
    if not isinstance(stack, int) or stack < 0:
        raise UsageError(f"stack={stack!r} must be True, False or a number of runs.")
    training_options = build_settings(Options, options)
    on_device = replace(data, **{n: split.to(chosen) for n, split in data.splits.items()})
    if chosen.type != "cpu":  # one copy of training and validation for all runs
        on_device = replace(on_device, test=data.test)
    trainers = [
        Trainer(model, on_device, seed, folder, chosen, training_options)
        for model, seed, folder in zip(models, seeds, folders, strict=True)
    ]
    size = len(trainers) if stack is True else max(1, stack)
    return _Seeds(trainers, size, notify).run(resume, overwrite)


class _Seeds:
    """State of one call of `fit_stack`; `size` is the most runs of a stack."""

    def __init__(self, trainers: list[Trainer], size: int, notify: Callable[[str], None]) -> None:
        self.trainers, self.size, self.notify = trainers, size, notify
        self.device, self.options = trainers[0].device, trainers[0].options
        self.name = trainers[0].model.name
        self.errors: dict[int, Exception] = {}  # seed -> why its run failed

    def run(self, resume: bool, overwrite: bool) -> list[SeedRun]:
        with contextlib.ExitStack() as opened:
            opened.enter_context(own_arithmetic(self.options.precision))
            self.bar = opened.enter_context(ProgressBar(self.options.progress))
            for trainer in self.trainers:
                trainer.shown = False
                there = trainer.out is not None and (trainer.out / "config.json").is_file()
                opened.enter_context(trainer.opened(resume and there, overwrite))
            for index in range(len(self.trainers[0].phases)):
                self._run_phase(index)
            runs = [SeedRun(t.seed, t.model, t.finish()) for t in self._unfailed()]
        if self.errors:
            first = next(iter(self.errors.values()))
            if len(self.errors) == 1 and len(self.trainers) == 1:
                raise first
            seeds = ", ".join(map(str, self.errors))
            raise RunError(
                f"{len(self.errors)} of {len(self.trainers)} runs of {self.name} failed (seed "
                f"{seeds}), the first with: {first}"
            )
        return runs

    def _unfailed(self) -> list[Trainer]:
        return [trainer for trainer in self.trainers if trainer.seed not in self.errors]

    def _run_phase(self, index: int) -> None:
        """Train a phase of the runs that are in it; resumed runs may be in a later one."""
        members = [t for t in self._unfailed() if t.progress.phase == index]
        if not members:
            return
        phase = members[0].phases[index]
        if not phase.players:
            for trainer in members:
                trainer.run_phase(index)
            return
        datas = [trainer.begin_phase(index) for trainer in members]
        self.bar.start_phase(
            f"{phase.name}, {len(members)} seeds",
            phase.epochs,
            min(trainer.progress.epoch for trainer in members),
        )
        separate = list(zip(members, datas, strict=True))
        if min(len(members), self.size) > 1:
            try:
                separate = self._train_stacks(index, separate)
            except StackError as reason:
                separate = [pair for pair in separate if pair[0].progress.phase == index]
                how = "side by side" if self.device.type == "cuda" else "one after the other"
                self.notify(
                    f"{self.name}: {len(separate)} seeds are trained {how} in phase "
                    f"{phase.name!r}, because {reason}."
                )
        self._train_separately(index, separate)
        self.bar.finish_phase()

    def _train_separately(self, index: int, pairs: list[tuple[Trainer, Dataset]]) -> None:
        """Train runs that are no stack, side by side on a GPU."""

        def train(trainer: Trainer, data: Dataset) -> None:
            with self._failing(trainer):
                trainer.train_phase(index, data)
                trainer.end_phase(index)

        tasks = [partial(train, trainer, data) for trainer, data in pairs]
        workers = SIDE_BY_SIDE if self.device.type == "cuda" else 1
        for _ in run_concurrently(tasks, workers, self.device):
            pass

    @contextlib.contextmanager
    def _failing(self, trainer: Trainer) -> Any:
        """Store an error of one run, which then takes no further part."""
        try:
            yield
        except IntervaeError as error:
            self.errors[trainer.seed] = error

    # ---- stacks ---------------------------------------------------------------------------------
    def _train_stacks(
        self, index: int, pairs: list[tuple[Trainer, Dataset]]
    ) -> list[tuple[Trainer, Dataset]]:
        """Train a phase in stacks of at most `size` runs; return the runs that are left over.

        A stack that does not fit into memory is tried again with half of its runs.
        """
        threads = self.options.threads or pairs[0][0].progress.threads or torch.get_num_threads()
        torch.set_num_threads(threads)
        waiting = []
        for trainer, data in pairs:
            trainer.progress.threads = threads
            waiting.append(PhaseTraining(trainer, index, data, timed=False))
        check_stackable(waiting)
        while len(waiting) > 1 and self.size > 1:
            group = waiting[: self.size]
            try:
                stack = StackedStepper(group, cuda_graph=self.options.cuda_graph)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self.size = -(-len(group) // 2)
                self.notify(
                    f"{self.name}: a stack of {len(group)} seeds does not fit into the memory of "
                    f"{self.device}; {self.size} are tried at once."
                )
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                continue
            waiting = waiting[self.size :]
            self._train_stack(index, stack)
        return [(training.trainer, training.data) for training in waiting]

    def _train_stack(self, index: int, stack: StackedStepper) -> None:
        """Train the runs of a stack to the end of the phase.

        A run that ends is frozen with its weights. Its slice is left out at once on a CPU. On a
        GPU, where a new stack must be captured, it idles until half of the stack has ended.
        """
        for training in stack.trainings:
            training.trainer.stack = max(training.trainer.stack, len(stack.trainings))
        active = self._end_runs(index, stack, stack.trainings)
        while active:
            if len(active) < len(stack.trainings) and (
                stack.graph is None or 2 * len(active) <= len(stack.trainings)
            ):
                stack.release(active)
                stack = StackedStepper(
                    active, cuda_graph=self.options.cuda_graph, calls=stack.calls
                )
            results = stack.run_epoch()
            due = any(training.checkpoint_due for training in active)  # of all in one epoch
            for training, terms in zip(stack.trainings, results, strict=True):
                if training in active:
                    with self._failing(training.trainer):
                        training.end_epoch(terms, due)
            active = self._end_runs(index, stack, active)
            losses = [t.trainer.progress.best for t in stack.trainings]
            best = [loss for loss in losses if loss is not None]
            note = f"best validation {min(best):.4g} to {max(best):.4g}" if best else ""
            self.bar.advance(f"{len(active)} of {len(self.trainers)} in training; {note}")

    def _end_runs(
        self, index: int, stack: StackedStepper, trainings: list[PhaseTraining]
    ) -> list[PhaseTraining]:
        """End the phase of the runs that are through or failed; return the others."""
        active = []
        for training in trainings:
            failed = training.trainer.seed in self.errors
            if not (failed or training.ended):
                active.append(training)
                continue
            stack.release([training])
            if not failed:
                with self._failing(training.trainer):
                    training.end()
                    training.trainer.end_phase(index)
        return active
