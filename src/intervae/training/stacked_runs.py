"""Several runs of one model, phase by phase, as stacks where their losses allow it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch

from intervae.data import Dataset
from intervae.errors import IntervaeError, RunError
from intervae.memory import is_out_of_memory
from intervae.training.concurrent_runs import run_concurrently
from intervae.training.draws import StackError
from intervae.training.epochs import PhaseTraining
from intervae.training.logging import ProgressBar
from intervae.training.loop import Result, Trainer
from intervae.training.stacked_stepper import StackedStepper, check_stackable, why_no_stack
from intervae.training.timing import own_arithmetic

SIDE_BY_SIDE = 8  # runs of a phase that is no stack, on a GPU; see benchmarks/concurrent_runs.py


class StackedRuns:
    """State of one call of `fit_stack`; see there.

    Arguments:
        size: the most runs of a stack.
    """

    def __init__(
        self,
        trainers: list[Trainer],
        size: int,
        required: bool,
        notify: Callable[[str], None],
    ) -> None:
        self.trainers, self.size, self.required, self.notify = trainers, size, required, notify
        self.device, self.options = trainers[0].device, trainers[0].options
        self.name = trainers[0].model.name
        self.errors: dict[int, Exception] = {}  # seed -> why its run failed

    def run(self, resume: bool, overwrite: bool) -> list[Result]:
        """Train all runs to the end; raise the errors of those that failed."""
        with contextlib.ExitStack() as opened:
            opened.enter_context(own_arithmetic(self.options.precision))
            self.bar = opened.enter_context(ProgressBar(self.options.progress))
            for trainer in self.trainers:
                trainer.shown = False
                there = trainer.out is not None and (trainer.out / "config.json").is_file()
                opened.enter_context(trainer.opened(resume and there, overwrite))
            self._check_phases()
            for index in range(len(self.trainers[0].phases)):
                self._run_phase(index)
            results = [trainer.finish() for trainer in self._unfailed()]
        if self.errors:
            first = next(iter(self.errors.values()))
            if len(self.errors) == 1 and len(self.trainers) == 1:
                raise first
            seeds = ", ".join(map(str, self.errors))
            raise RunError(
                f"{len(self.errors)} of {len(self.trainers)} runs of {self.name} failed (seed "
                f"{seeds}), the first with: {first}"
            )
        return results

    def _check_phases(self) -> None:
        """Say before the first step which phases cannot be a stack, or raise a StackError."""
        self.separate: set[int] = set()
        if min(len(self.trainers), self.size) < 2:
            return
        first = min(trainer.progress.phase for trainer in self.trainers)  # of resumed runs
        for index, phase in enumerate(self.trainers[0].phases):
            trained = phase.players and index >= first
            reason = why_no_stack(phase, self.trainers[0].data) if trained else ""
            if reason and self.required:
                raise StackError(reason)
            if reason:
                self.separate.add(index)
                self._explain(len(self.trainers), phase.name, reason)

    def _explain(self, seeds: int, phase: str, reason: object) -> None:
        how = "side by side" if self.device.type == "cuda" else "one after the other"
        self.notify(
            f"{self.name}: {seeds} seeds are trained {how} in phase {phase!r}, because {reason}."
        )

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
        if min(len(members), self.size) > 1 and index not in self.separate:
            try:
                separate = self._train_stacks(index, separate)
            except StackError as reason:
                if self.required:
                    raise
                separate = [pair for pair in separate if pair[0].progress.phase == index]
                self._explain(len(separate), phase.name, reason)
        self._train_separately(index, separate)
        self.bar.finish_phase()

    def _train_separately(self, index: int, pairs: list[tuple[Trainer, Dataset]]) -> None:
        """Train runs that are no stack, side by side on a GPU."""

        workers = SIDE_BY_SIDE if self.device.type == "cuda" else 1

        def train(trainer: Trainer, data: Dataset) -> None:
            with self._failing(trainer):
                if workers == 1:
                    phase, trainer.bar = trainer.phases[index], self.bar
                    name = f"{phase.name}, seed {trainer.seed}"
                    self.bar.start_phase(name, phase.epochs, trainer.progress.epoch)
                trainer.train_phase(index, data)
                trainer.end_phase(index)

        tasks = [partial(train, trainer, data) for trainer, data in pairs]
        for _ in run_concurrently(tasks, workers, self.device):
            pass

    @contextlib.contextmanager
    def _failing(self, trainer: Trainer) -> Iterator[None]:
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
