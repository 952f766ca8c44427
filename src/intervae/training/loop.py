"""The one training loop: phases in order, epochs that are pure functions of (weights, seed, epoch), checkpoints, early stopping.

Because every epoch seeds its own shuffling and noise, a killed run resumes to the very same weights, and nothing but tensors and
counters has to be kept.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.base import Dataset, Split
from intervae.errors import DataError, RunError, TrainingError, UsageError
from intervae.files import cannot_write, leftovers, only_writer, read_json, write_json
from intervae.models.base import Model
from intervae.models.phases import Phase
from intervae.models.storage import describe_model, hardware, load_tensors, revision, save_model, versions
from intervae.settings import build_settings
from intervae.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from intervae.training.options import Options, choose_device
from intervae.training.report import Bar, MetricsLog
from intervae.training.stepper import Stepper

DEFAULT_BATCH = 64
VALIDATION_BATCH = {"cpu": 512, "cuda": 2048}  # on a GPU launches cost more than memory


@dataclass
class Result:
    """What `fit` returns: the lines of metrics.jsonl and the seconds spent, those before a resume included.

    Arguments:
        earlier: the seconds of them that were spent before this call, on a run that was resumed.
    """

    history: list[dict[str, Any]] = field(repr=False)
    seconds: float
    earlier: float = 0.0


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
        seed: draws the initial weights of an untrained model, the order of the batches and all noise.
        out: a folder for the run (config, weights, metrics, checkpoints); None keeps everything in memory.
        resume: go on from the folder's checkpoint; the result is bit-equal to an uninterrupted run on a CPU.
        overwrite: replace a run that is already in `out`.
        options: see `Options`.
    """
    if model.spec != data.spec:
        raise DataError(
            f"the model was made for {model.spec.image_shape} images with {', '.join(model.spec.names)}; this data differs. Create it from this data."
        )
    for name in options:
        if name in {f.name for f in fields(model.Settings)}:
            raise UsageError(f"{name} is a setting of the model, not of its training: create it with {name}=.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"seed={seed!r} must be a whole number, 0 or more.")
    how, seed = build_settings(Options, options), int(seed)
    trainer = Trainer(model, data, seed, Path(out) if out is not None else None, choose_device(device), how)
    return trainer.run(resume=resume, overwrite=overwrite)


class Trainer:
    """State of one call of `fit`."""

    def __init__(self, model: Model, data: Dataset, seed: int, out: Path | None, device: torch.device, options: Options) -> None:
        self.model, self.seed, self.out, self.device, self.options = model, seed, out, device, options
        self.source = dict(data.source)
        self.data = replace(data, train=data.train.to(device), validation=data.validation.to(device))
        self.progress = Progress()
        self.saved: dict[str, dict[str, Tensor]] = {}
        self.last_write = time.monotonic()
        self.command = shlex.join(["intervae", *sys.argv[1:]]) if Path(sys.argv[0]).name == "intervae" else ""

    # ---- the run folder ---------------------------------------------------------------------------------------------
    @property
    def checkpoint(self) -> Path | None:
        return self.out / "checkpoints" / "last.safetensors" if self.out else None

    def config(self) -> dict[str, Any]:
        return {
            **describe_model(self.model),
            "data": self.source,
            "seed": self.seed,
            "training": asdict(self.options),
            "hardware": hardware(self.device),
            "versions": versions(),
            "revision": revision(),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "command": self.command,
        }

    def open_run(self, resume: bool, overwrite: bool) -> None:
        """Start a run folder, or read where the one that is there stopped."""
        if self.out is None:
            if resume:
                raise RunError("resume needs the folder of the run: pass out=.")
            self._start()
        elif resume:
            self._resume(self.out)
        else:
            self._clear(self.out, overwrite)
            self._start()
            write_json(self.out / "config.json", self.config())
            self._write_checkpoint()

    def _clear(self, out: Path, overwrite: bool) -> None:
        """Make sure that `out` may be written to, and take away what an older run left there."""
        names = ("model.safetensors", "metrics.jsonl", "graph.json", "README.md", "report.html", "checkpoints/last.safetensors")
        try:
            if (out / "config.json").exists() and not overwrite:
                raise RunError(
                    f"{out} already holds a run; pass resume=True (--resume) to go on with it, overwrite=True (--overwrite) to replace it, "
                    "or choose another out= (--out)."
                )
            if out.is_file():
                raise RunError(f"{out} is a file, and a run needs a folder; choose another out= (--out).")
            if out.exists() and not (out / "config.json").exists() and (not out.is_dir() or set(out.iterdir()) - set(leftovers(out))):
                raise RunError(f"{out} is not empty and not a run of intervae; choose another out= (--out).")
            for stale in [*(out / name for name in names), *(out / "tensorboard").glob("events.*")]:
                stale.unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(out / "config.json", error) from error

    def _start(self) -> None:
        if not self.model.trained:
            self.model.initialise(self.seed)
        self.model.to(self.device)

    def _resume(self, out: Path) -> None:
        if not out.exists():
            raise RunError(f"{out} does not exist, so there is nothing to go on with; start it without resume=True (--resume).")
        before = read_json(out / "config.json", "the run's settings")
        if not isinstance(before, dict):
            raise RunError(f"{out / 'config.json'} is not the config of an intervae run.")
        now = _plain({**describe_model(self.model), "seed": self.seed, "precision": self.options.precision})  # what the result depends on
        del now["intervae"]
        self.command = str(before.get("command") or self.command)  # the one that began it says what was trained
        before["precision"] = (before.get("training") or {}).get("precision")
        if isinstance(settings := before.get("settings"), dict):  # one that came after the run was started is what it was without it
            before["settings"] = {**_plain(asdict(type(self.model).Settings())), **settings}
        changes = list(_differences({key: before.get(key) for key in now}, now))
        if changes:
            raise RunError(
                f"{out} was started otherwise ({'; '.join(changes[:3])}): resume it as it was, or start anew with overwrite=True (--overwrite)."
            )
        self._start()
        path = out / "checkpoints" / "last.safetensors"
        if path.exists() or (out / "model.safetensors").exists():
            self.progress, self.saved = load_checkpoint(path)
            load_tensors(self.model, self.saved["model"], path)
        else:  # it was killed before its first checkpoint
            self._write_checkpoint()

    def _write_checkpoint(self, stepper: Stepper | None = None, best: dict[str, Tensor] | None = None) -> None:
        if self.checkpoint is None:
            return
        groups = {"model": self.model.state_dict(), "optimiser": stepper.state() if stepper else {}, "best": best or {}}
        save_checkpoint(self.checkpoint, self.progress, groups)
        self.last_write = time.monotonic()

    # ---- training ---------------------------------------------------------------------------------------------------
    def run(self, *, resume: bool, overwrite: bool) -> Result:
        if not resume:  # before anything is written
            for phase in self.model.phases():
                check_phase(phase, self.data if _keeps_data(phase) else None)
        self.model.check(self.data)
        if self.out is not None and not resume:
            with contextlib.suppress(OSError):  # open_run says what is wrong
                self.out.mkdir(parents=True, exist_ok=True)
        with only_writer(self.out):
            return self._run(resume, overwrite)

    def _run(self, resume: bool, overwrite: bool) -> Result:
        self.open_run(resume, overwrite)
        for folder in (self.out, self.out / "checkpoints") if self.out else ():
            for half_written in leftovers(folder):
                half_written.unlink(missing_ok=True)
        self.log = MetricsLog(self.out, self.progress.log_bytes, self.options.tensorboard)
        earlier = self.progress.seconds
        self.clock = time.monotonic() - earlier
        phases = self.model.phases()
        matrix_precision = torch.get_float32_matmul_precision()
        try:
            if self.options.precision == "tf32":
                torch.set_float32_matmul_precision("high")
            with Bar(self.options.progress) as self.bar:
                for number in range(self.progress.phase, len(phases)):
                    self._run_phase(number, phases[number])
        finally:
            self.log.close()
            torch.set_float32_matmul_precision(matrix_precision)
        self.model.trained = True
        self.model.eval()
        self.progress.finished = True
        seconds = self.progress.seconds
        if self.out is not None:
            save_model(
                self.model, self.out, **{k: v for k, v in self.config().items() if k not in describe_model(self.model)}, seconds=round(seconds, 1)
            )
            self._write_checkpoint()
        return Result(self.log.lines, seconds, earlier)

    def _run_phase(self, number: int, phase: Phase) -> None:
        self.bar.phase(phase.name, phase.epochs, self.progress.epoch)
        self.model.train()
        data = self.data
        if phase.prepare is not None:
            resumed = {k: v.clone() for k, v in self.model.state_dict().items()} if self.progress.epoch else None
            data = phase.prepare(self.data, self.seed) or self.data
            for number_of_state, state in enumerate(self.model.states_prepared() if not phase.players else ()):
                self.log.append({"phase": phase.name, "epoch": number_of_state, "seconds": round(self._elapsed(), 3), **state})
            if resumed is not None:
                self.model.load_state_dict(resumed)
        if phase.players:
            self._run_epochs(number, phase, data)
        self.bar.finish()
        self.progress = replace(self.progress, phase=number + 1, epoch=0, best=None, best_epoch=0, seconds=self._elapsed(), log_bytes=self.log.bytes)
        self.saved = {}
        self._write_checkpoint()

    def _run_epochs(self, number: int, phase: Phase, data: Dataset) -> None:
        batch_size = check_phase(phase, data)
        how = self.options
        stepper = Stepper(self.model, phase, data.train, batch_size, cuda_graph=how.cuda_graph, bf16=how.precision == "bf16")
        stepper.load_state(self.saved.get("optimiser", {}))
        best = {k: v.to(self.device) for k, v in self.saved.get("best", {}).items()}
        for epoch in range(self.progress.epoch, phase.epochs):
            seed = int(np.random.SeedSequence([self.seed, number, epoch]).generate_state(1, np.uint64)[0] >> 1)
            terms = stepper.run_epoch(epoch, phase.epochs, seed)
            self._check_steps(terms, stepper.names, phase, epoch)
            train = dict(zip(stepper.names, terms.double().mean(0).tolist(), strict=True))
            validation = self._validate(phase, data.validation)
            if not all(map(math.isfinite, validation.values())):  # before these weights can become a checkpoint
                raise self._not_finite(phase, epoch, "on the validation split", validation)
            self.progress.epoch = epoch + 1
            if self.progress.best is None or validation["loss"] < self.progress.best:
                self.progress.best, self.progress.best_epoch = validation["loss"], epoch + 1
                if phase.keep_best:
                    best = {k: v.clone() for k, v in self.model.state_dict().items()}
            ended = bool(phase.after_epoch(train)) if phase.after_epoch else False
            self._log_epoch(phase, epoch, train, validation)
            if ended or (phase.patience is not None and epoch + 1 - self.progress.best_epoch >= phase.patience):
                break
            if time.monotonic() - self.last_write >= how.checkpoint_seconds:
                self._write_checkpoint(stepper, best)
        if phase.keep_best and best:
            self.model.load_state_dict(best)

    def _log_epoch(self, phase: Phase, epoch: int, train: dict[str, float], validation: dict[str, float]) -> None:
        seconds = self._elapsed()
        line = {"phase": phase.name, "epoch": epoch + 1, "seconds": round(seconds, 3), "train": train, "validation": validation}
        self.log.append({**line, **self.model.state_to_log()})
        self.progress.seconds, self.progress.log_bytes = seconds, self.log.bytes
        self.bar.advance(f"loss {train['loss']:.4g}, validation {validation['loss']:.4g}" if "loss" in train else "")

    def _elapsed(self) -> float:
        return time.monotonic() - self.clock

    @torch.no_grad()
    def _validate(self, phase: Phase, split: Split) -> dict[str, float]:
        """Mean terms of the first player's loss on a split, with noise that is the same every time."""
        self.model.eval()
        generator = torch.Generator(split.device).manual_seed(self.seed)
        sums: dict[str, Any] = {}
        for rows in torch.arange(len(split), device=split.device).split(VALIDATION_BATCH.get(split.device.type, 512)):
            batch = split.batch(rows)
            batch["step"] = torch.full((), math.inf, device=split.device)
            for name, value in phase.players[0].loss(batch, generator).items():
                sums[name] = sums.get(name, 0) + value.double() * len(rows)
        self.model.train()
        return {name: float(value) / len(split) for name, value in sums.items()}

    def _check_steps(self, terms: Tensor, names: list[str], phase: Phase, epoch: int) -> None:
        """Refuse terms (steps, t) that are not all finite."""
        bad = ~torch.isfinite(terms).all(1)
        if bool(bad.any()):
            step = int(bad.nonzero()[0, 0])
            raise self._not_finite(phase, epoch, f"step {step + 1}", dict(zip(names, terms[step].tolist(), strict=True)))

    def _not_finite(self, phase: Phase, epoch: int, where: str, terms: dict[str, float]) -> TrainingError:
        values = ", ".join(f"{name}={value:.4g}" for name, value in terms.items())
        saved = f"the last good checkpoint is {self.checkpoint}" if self.checkpoint else "nothing was saved, as no out= was given"
        return TrainingError(
            f"the loss stopped being finite in phase {phase.name!r}, epoch {epoch + 1}, {where} ({values}); {saved}; try a smaller learning_rate."
        )


def check_phase(phase: Phase, data: Dataset | None) -> int:
    """The phase's batch size, after refusing numbers that make no sense, and a batch larger than the data (where they are known yet)."""
    size = DEFAULT_BATCH if phase.batch_size is None else phase.batch_size
    smallest = {"batch_size": (size, 1), "epochs": (phase.epochs, 0), "patience": (phase.patience, 1)}
    for name, (value, least) in smallest.items():
        if value is not None and value < least:
            raise UsageError(f"{name}={value} in phase {phase.name!r} must be at least {least}.")
    for player in phase.players:
        if not player.learning_rate > 0:
            raise UsageError(f"learning_rate={player.learning_rate} in phase {phase.name!r} must be positive.")
    if phase.players and data is not None and len(data.train) < size:
        raise DataError(
            f"the training split has {len(data.train)} samples, fewer than one batch of {size}; set batch_size={len(data.train)} or less."
        )
    return size


def _keeps_data(phase: Phase) -> bool:
    """Whether a phase trains on the data as they are: nothing is prepared, or by its signature that gives nothing back."""
    return phase.prepare is None or inspect.signature(phase.prepare).return_annotation in (None, "None")


def _plain(value: Any) -> Any:
    """As it looks after a trip through JSON."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _differences(theirs: Any, mine: Any, where: str = "") -> Iterator[str]:
    """Where two parsed JSON values differ, in words."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in {**theirs, **mine}:
            yield from _differences(theirs.get(key), mine.get(key), f"{where}.{key}" if where else key)
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        for i, (one, other) in enumerate(zip(theirs, mine, strict=True)):
            yield from _differences(one, other, f"{where}[{i}]")
    elif theirs != mine:
        yield f"{where} was {theirs!r}, now {mine!r}"
