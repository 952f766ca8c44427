"""The training loop: phases in order, epochs, checkpoints, early stopping.

Every epoch seeds its own shuffling and noise from (seed, phase, epoch). An interrupted run
therefore resumes to the same weights, and a checkpoint holds only tensors and counters.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intervae.data import Dataset
from intervae.errors import RunError
from intervae.files import keep_until_complete, only_writer, write_json
from intervae.memory import keep_freed_memory
from intervae.models.base import Model
from intervae.models.device import choose_device
from intervae.models.phases import Phase
from intervae.models.storage import describe_model, load_tensors, save_model
from intervae.settings import build_settings, check_seed
from intervae.training.arguments import check_arguments, check_out
from intervae.training.checkpoint import Progress, TensorGroups, load_checkpoint, save_checkpoint
from intervae.training.epochs import PhaseTraining
from intervae.training.logging import MetricsLog, ProgressBar
from intervae.training.options import Options
from intervae.training.ranks import current_ranks, restarted
from intervae.training.result import Result
from intervae.training.run_folder import (
    check_resumed_run,
    clear_run_folder,
    current_command,
    describe_training,
    remove_partial_files,
    resumed_files,
    write_support,
)
from intervae.training.stepper import Stepper
from intervae.training.timing import own_arithmetic
from intervae.training.validation import check_phase


def fit(
    model: Model,
    data: Dataset,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    device: str | torch.device = "auto",
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> Result:
    """Train `model` on `data`, phase by phase.

    Arguments:
        seed: seed of the weights of an untrained model, the order of batches and all noise.
        out: run folder (config, weights, metrics, checkpoints); None keeps everything in memory.
        resume: continue from the checkpoint in `out`; on a CPU the result is bit-identical to that
            of an uninterrupted run.
        overwrite: replace a run in `out`.
        options: see `Options`.
    """
    check_arguments(model, data, options, resume=resume, overwrite=overwrite)
    seed = check_seed(seed)
    training_options = build_settings(Options, options)
    trainer = Trainer(model, data, seed, check_out(out), choose_device(device), training_options)
    return trainer.run(resume=resume, overwrite=overwrite)


class Trainer:
    """State of one call of `fit`."""

    def __init__(
        self,
        model: Model,
        data: Dataset,
        seed: int,
        out: Path | None,
        device: torch.device,
        options: Options,
    ) -> None:
        self.ranks = current_ranks()
        if self.ranks is not None:
            device = self.ranks.device(device)
        self.writes = self.ranks is None or self.ranks.first
        self.model, self.seed, self.run_folder = model, seed, out
        self.out = out if self.writes else None  # what this process writes
        self.device, self.options = device, options
        self.stack = 1  # the most runs that were trained as one stack with this one
        # whether a progress bar is shown; None: on a terminal
        self.shown = options.progress if self.writes else False
        self.source = dict(data.source)
        train, validation = data.train.to(device), data.validation.to(device)
        self.data = replace(data, train=train, validation=validation)
        self.progress = Progress()
        self.saved: TensorGroups = {}
        self.last_write = time.monotonic()
        self.command = current_command()

    # ---- the run folder -------------------------------------------------------------------------
    @property
    def checkpoint(self) -> Path | None:
        folder = self.run_folder
        return folder / "checkpoints" / "last.safetensors" if folder else None

    def describe(self) -> dict[str, Any]:
        """Return what config.json holds beside the model."""
        description = describe_training(
            self.source, self.seed, self.options, self.device, self.command
        )
        stack = {"stack": self.stack} if self.stack > 1 else {}
        return {**description, "threads": self.progress.threads, **stack}

    def open_run(self, resume: bool, overwrite: bool) -> None:
        """Create the run folder, or load the checkpoint of the one that is resumed."""
        if not self.writes:
            self._initialise()
        elif self.out is None:
            if resume:
                raise RunError("resume needs the folder of the run: pass out=.")
            self._initialise()
        elif resume:
            self._resume(self.out)
        else:
            clear_run_folder(self.out, overwrite)
            self._initialise()
            write_json(self.out / "config.json", {**describe_model(self.model), **self.describe()})
            self.write_checkpoint()
        if self.out is not None:
            remove_partial_files(self.out)
        if self.ranks is not None:  # all start from the checkpoint of the first
            self.ranks.wait()
            if self.checkpoint is not None and not self.writes:
                self.progress, self.saved = load_checkpoint(self.checkpoint)
            self.ranks.broadcast_(list(self.model.state_dict().values()))

    def _initialise(self) -> None:
        if not self.model.trained:
            self.model.initialise(self.seed)
        self.model.to(self.device)

    def _resume(self, out: Path) -> None:
        config = check_resumed_run(out, self.model, self.seed, self.options)
        self.command = str(config.get("command") or self.command)  # the first command
        self.stack = config["stack"] if isinstance(config.get("stack"), int) else 1
        self._initialise()
        path = out / "checkpoints" / "last.safetensors"
        if path.exists() or (out / "model.safetensors").exists():
            self.progress, self.saved = load_checkpoint(path)
            load_tensors(self.model, self.saved["model"], path)
        else:  # interrupted before the first checkpoint
            self.write_checkpoint()

    def write_checkpoint(
        self, stepper: Stepper | None = None, best: dict[str, Tensor] | None = None
    ) -> None:
        """Write the state of the run, if it has a folder and this process writes it."""
        if self.checkpoint is None or not self.writes:
            return
        groups = {
            "model": self.model.state_dict(),
            "optimiser": stepper.state() if stepper else {},
            "best": best or {},
        }
        save_checkpoint(self.checkpoint, self.progress, groups)
        self.last_write = time.monotonic()

    # ---- training -------------------------------------------------------------------------------
    def run(self, *, resume: bool, overwrite: bool) -> Result:
        """Train to the end, with the run folder locked against other processes."""
        if self.device.type == "cpu":
            keep_freed_memory()
        with self.opened(resume, overwrite), own_arithmetic(self.options.precision):
            for index in range(self.progress.phase, len(self.phases)):
                self.run_phase(index)
            return self.finish()

    @contextlib.contextmanager
    def opened(self, resume: bool, overwrite: bool) -> Iterator[None]:
        """Check the data, open the run folder and lock it within a `with` block."""
        if restarted() and self.out is not None and (self.out / "config.json").is_file():
            resume, overwrite = True, False
        if not resume:  # before anything is written
            for phase in self.model.phases():
                check_phase(phase, None if phase.replaces_data else self.data)
        self.model.check(self.data)
        if self.out is not None and not resume:
            with contextlib.suppress(OSError):  # open_run raises the error
                self.out.mkdir(parents=True, exist_ok=True)
        with only_writer(self.out), keep_until_complete(resumed_files(self.out, resume)):
            self.open_run(resume, overwrite)
            self.log = MetricsLog(self.out, self.progress.log_bytes, self.options.tensorboard)
            self.seconds_before = self.progress.seconds
            self.start_time = time.monotonic() - self.seconds_before
            self.phases = self.model.phases()
            with contextlib.closing(self.log), ProgressBar(self.shown) as self.bar:
                yield

    def finish(self) -> Result:
        """Write the trained model; return the result."""
        self.model.trained = self.progress.finished = True
        self.model.eval()
        seconds = self.progress.seconds
        if self.out is not None:
            write_support(self.out, self.data)
            save_model(self.model, self.out, **self.describe(), seconds=round(seconds, 1))
            self.write_checkpoint()
        return Result(self.log.lines, seconds, self.seconds_before)

    def run_phase(self, index: int) -> None:
        """Train one phase from its beginning or from the checkpoint to its end."""
        data = self.begin_phase(index)
        if self.phases[index].players:
            self.train_phase(index, data)
        self.end_phase(index)

    def train_phase(self, index: int, data: Dataset) -> None:
        """Run the epochs of a phase, from its beginning or from the checkpoint."""
        training = PhaseTraining(self, index, data, timed=True)
        while not training.ended:
            training.end_epoch(training.run_epoch())
        training.end()

    def begin_phase(self, index: int) -> Dataset:
        """Prepare a phase; return its data."""
        phase = self.phases[index]
        self.bar.start_phase(phase.name, phase.epochs, self.progress.epoch)
        self.model.train()
        return self._prepare(phase)

    def end_phase(self, index: int) -> None:
        """Move on to the next phase, and write a checkpoint."""
        self.bar.finish_phase()
        self.progress = Progress(index + 1, threads=self.progress.threads)
        self.progress.seconds, self.progress.log_bytes = self.elapsed(), self.log.bytes
        self.saved = {}
        self.write_checkpoint()

    def _prepare(self, phase: Phase) -> Dataset:
        """Call `phase.prepare` and return the data of the phase; keep resumed weights."""
        if phase.prepare is None:
            return self.data
        resumed = None
        if self.progress.epoch:
            resumed = {k: v.clone() for k, v in self.model.state_dict().items()}
        data = phase.prepare(self.data, self.seed) or self.data
        if not phase.players:
            for i, state in enumerate(self.model.logged_states()):
                line = {"phase": phase.name, "epoch": i, "seconds": round(self.elapsed(), 3)}
                self.log.append({**line, **state})
        if resumed is not None:
            self.model.load_state_dict(resumed)
        return data

    def elapsed(self) -> float:
        """Return the seconds of training so far."""
        return time.monotonic() - self.start_time
