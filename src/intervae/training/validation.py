"""Checks of the data, of a phase before it starts and of its losses, and the validation loss."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intervae.data import Batch, Dataset, MappedSplit, Spec, Split
from intervae.errors import DataError, TrainingError, UsageError
from intervae.models.base import Model
from intervae.models.phases import Phase
from intervae.training.read_ahead import read_ahead

DEFAULT_BATCH = 64
VALIDATION_BATCH = {"cpu": 512, "cuda": 2048}  # on a GPU launches cost more than memory


def check_spec(expected: Spec, spec: Spec) -> None:
    """Raise a DataError that names the first field in which the data differ from the model's."""
    for name in ("image_shape", "frames", "actions", "variables"):
        before, now = getattr(expected, name), getattr(spec, name)
        if before == now:
            continue
        if name == "variables":
            before, now = (", ".join(each.names) or "none" for each in (expected, spec))
        change = f"{name} was {before}, now {now}"
        if before == now:
            change = "the variables have other kinds, ranges or categories"
        raise DataError(
            f"the model was created for other data: {change}; create it from this data."
        )


def check_phase(phase: Phase, data: Dataset | None) -> int:
    """Return the batch size of a phase, after checking its numbers.

    Without `data`, which `prepare` may make later, the size of the split is not checked.
    """
    batch_size = DEFAULT_BATCH if phase.batch_size is None else phase.batch_size
    minima = {
        "batch_size": (batch_size, 1),
        "epochs": (phase.epochs, 0),
        "patience": (phase.patience, 1),
    }
    for name, (value, minimum) in minima.items():
        if value is not None and value < minimum:
            raise UsageError(f"{name}={value} in phase {phase.name!r} must be at least {minimum}.")
    if not 0 <= phase.averaging < 1:
        raise UsageError(
            f"averaging={phase.averaging} in phase {phase.name!r} must be at least 0 and below 1."
        )
    for player in phase.players:
        if not player.learning_rate > 0:
            raise UsageError(
                f"learning_rate={player.learning_rate} in phase {phase.name!r} must be positive."
            )
    if phase.players and data is not None and len(data.train) < batch_size:
        raise DataError(
            f"the training split has {len(data.train)} samples, fewer than one batch of "
            f"{batch_size}; set batch_size={len(data.train)} or less."
        )
    return batch_size


@torch.no_grad()
def validation_terms(model: Model, phase: Phase, split: Split, seed: int) -> dict[str, float]:
    """Return the mean terms of the first player's loss on a split, with fixed noise."""
    model.eval()
    generator = torch.Generator(split.device).manual_seed(seed)
    sums: dict[str, Any] = {}
    chunk = VALIDATION_BATCH.get(split.device.type, 512)
    for rows, batch in batches_of(split, chunk):
        batch["step"] = torch.full((), math.inf, device=split.device)
        for name, value in phase.players[0].loss(batch, generator).items():
            sums[name] = sums.get(name, 0) + value.double() * len(rows)
    model.train()
    return {name: float(value) / len(split) for name, value in sums.items()}


def batches_of(split: Split, size: int) -> Iterator[tuple[Tensor, Batch]]:
    """Yield the rows and the batch of every `size` rows in order; packed data is read ahead."""
    chunks = torch.arange(len(split), device=split.device).split(size)
    if not isinstance(split, MappedSplit):
        yield from ((rows, split.batch(rows)) for rows in chunks)
        return
    with contextlib.closing(read_ahead(split, chunks)) as ahead:
        for rows, images in zip(chunks, ahead, strict=True):
            pixels = images.to(split.device, non_blocking=True)
            yield rows, split.with_pixels(rows, pixels)


def check_finite_steps(
    terms: Tensor, names: list[str], phase: Phase, epoch: int, checkpoint: Path | None
) -> None:
    """Raise a TrainingError for the first step whose terms (steps, t) are not all finite."""
    bad = ~torch.isfinite(terms).all(1)
    if bool(bad.any()):
        step = int(bad.nonzero()[0, 0])
        values = dict(zip(names, terms[step].tolist(), strict=True))
        raise not_finite(phase, epoch, f"step {step + 1}", values, checkpoint)


def check_finite_validation(
    terms: dict[str, float], phase: Phase, epoch: int, checkpoint: Path | None
) -> None:
    """Raise a TrainingError if a validation term is not finite."""
    if not all(map(math.isfinite, terms.values())):
        raise not_finite(phase, epoch, "on the validation split", terms, checkpoint)


def not_finite(
    phase: Phase, epoch: int, where: str, terms: dict[str, float], checkpoint: Path | None
) -> TrainingError:
    """Return the error for a loss that is not finite."""
    values = ", ".join(f"{name}={value:.4g}" for name, value in terms.items())
    saved = (
        f"the last good checkpoint is {checkpoint}"
        if checkpoint
        else "nothing was saved, because there is no out="
    )
    return TrainingError(
        f"the loss stopped being finite in phase {phase.name!r}, epoch {epoch + 1}, {where} "
        f"({values}); {saved}; try a smaller learning_rate."
    )
