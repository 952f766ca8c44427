"""Epochs of one phase of one run: steps, validation, early stopping, logs and checkpoints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from torch import Tensor

from intervae.data import Dataset
from intervae.training.rank_checks import check_phase_splits
from intervae.training.stepper import Stepper, epoch_seed
from intervae.training.timing import time_phase
from intervae.training.validation import (
    check_finite_steps,
    check_finite_validation,
    check_phase,
    validation_terms,
)

if TYPE_CHECKING:
    from intervae.training.loop import Trainer


class PhaseTraining:
    """State of a phase of a run that is trained, from its first epoch or from a checkpoint.

    Arguments:
        data: the data of the phase.
        timed: choose the number of threads by timed steps, and capture a step on a GPU; without
            it, a stack runs the steps.
    """

    def __init__(self, trainer: Trainer, index: int, data: Dataset, *, timed: bool) -> None:
        self.trainer, self.index, self.data = trainer, index, data
        self.phase = phase = trainer.phases[index]
        options = trainer.options
        batch_size, bf16 = check_phase(phase, data), options.precision == "bf16"
        self.ranks = ranks = trainer.ranks
        if timed:
            threads = options.threads or trainer.progress.threads
            timing = time_phase(
                trainer.model,
                phase,
                data,
                batch_size,
                bf16=bf16,
                threads=threads,
                timed=ranks is None,
            )
            trainer.progress.threads = timing.threads
            trainer.bar.show_estimate(timing, phase.epochs - trainer.progress.epoch)
        self.stepper = Stepper(
            trainer.model,
            phase,
            data.train,
            batch_size,
            cuda_graph=options.cuda_graph and timed,
            bf16=bf16,
            ranks=ranks,
        )
        if ranks is not None:
            check_phase_splits(ranks, trainer.model, phase, data, batch_size, bf16=bf16)
        self.stepper.load_state(trainer.saved.get("optimiser", {}))
        saved_best = trainer.saved.get("best", {})
        self.best = {k: v.to(trainer.device) for k, v in saved_best.items()}
        self.ended = trainer.progress.epoch >= phase.epochs

    @property
    def epoch(self) -> int:
        """The number of finished epochs, which is the number of the next one from 0."""
        return self.trainer.progress.epoch

    @property
    def seed(self) -> int:
        """The seed of the order and the noise of the next epoch."""
        return epoch_seed(self.trainer.seed, self.index, self.epoch)

    def run_epoch(self) -> Tensor:
        """Run the steps of the next epoch; return their terms (steps, t)."""
        return self.stepper.run_epoch(self.epoch, self.phase.epochs, self.seed)

    @property
    def checkpoint_due(self) -> bool:
        """Whether the last checkpoint is old enough for another one."""
        options = self.trainer.options
        return time.monotonic() - self.trainer.last_write >= options.checkpoint_seconds

    def end_epoch(self, terms: Tensor, due: bool | None = None) -> None:
        """Validate after the steps of an epoch, and log; decide whether the phase ends.

        Arguments:
            due: whether to write a checkpoint; without it, `checkpoint_due`.
        """
        trainer, phase, stepper, epoch = self.trainer, self.phase, self.stepper, self.epoch
        progress = trainer.progress
        check_finite_steps(terms, stepper.names, phase, epoch, trainer.checkpoint)
        train = dict(zip(stepper.names, terms.double().mean(0).tolist(), strict=True))
        with stepper.averaged_weights():
            validation = validation_terms(trainer.model, phase, self.data.validation, trainer.seed)
            if self.ranks is not None:
                self.ranks.check_equal(stepper.generator, trainer.model, trainer.device)
                validation = self.ranks.agree(validation, trainer.device)
            check_finite_validation(validation, phase, epoch, trainer.checkpoint)
            progress.epoch = epoch + 1
            if progress.best is None or validation["loss"] < progress.best:
                progress.best, progress.best_epoch = validation["loss"], epoch + 1
                if phase.keep_best:
                    self.best = {k: v.clone() for k, v in trainer.model.state_dict().items()}
        ended = bool(phase.after_epoch(train)) if phase.after_epoch else False
        self._log(epoch, train, validation)
        waited = epoch + 1 - progress.best_epoch
        stopped = ended or (phase.patience is not None and waited >= phase.patience)
        if not stopped and (self.checkpoint_due if due is None else due):
            trainer.write_checkpoint(stepper, self.best)
        self.ended = stopped or epoch + 1 >= phase.epochs

    def end(self) -> None:
        """Leave the model with the averaged or the best weights, if the phase asks for them."""
        self.stepper.end_with_average()
        if self.phase.keep_best and self.best:
            self.trainer.model.load_state_dict(self.best)

    def _log(self, epoch: int, train: dict[str, float], validation: dict[str, float]) -> None:
        trainer = self.trainer
        trainer.progress.seconds = trainer.elapsed()
        line = {
            "phase": self.phase.name,
            "epoch": epoch + 1,
            "seconds": round(trainer.progress.seconds, 3),
            "train": train,
            "validation": validation,
        }
        trainer.log.append({**line, **trainer.model.state_to_log()})
        trainer.progress.log_bytes = trainer.log.bytes
        losses = ""
        if "loss" in train:
            losses = f"loss {train['loss']:.4g}, validation {validation['loss']:.4g}"
        trainer.bar.advance(losses)
