"""Checks that several ranks train a phase as one rank would, before its first step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from intervae.data import Batch, Dataset
from intervae.errors import UsageError
from intervae.models.base import Model
from intervae.models.phases import Phase, Terms
from intervae.training.ranks import Ranks
from intervae.training.timing import undone

TOLERANCE = {"cpu": 1e-5, "cuda": 2e-3}  # of gradients and terms, for rounding (TF32 on a GPU)
BF16_TOLERANCE = 5e-2


def check_phase_splits(
    ranks: Ranks, model: Model, phase: Phase, data: Dataset, rows: int, *, bf16: bool
) -> None:
    """Give all ranks the weights of the first; raise a UsageError if they cannot train as one.

    Arguments:
        rows: of a batch.
    """
    ranks.broadcast_(list(model.state_dict().values()))
    reason = ""
    if len(phase.players) > 1:
        reason = f"its phase {phase.name!r} has {len(phase.players)} players"
    elif phase.after_step is not None:
        reason = f"its phase {phase.name!r} keeps statistics of each batch"
    elif bool(data.train.missing.any()):
        reason = "some labels are missing, so its loss is no mean over the rows of a batch"
    if not reason and ranks.count > rows:
        raise UsageError(
            f"{ranks.count} ranks are more than the {rows} rows of a batch in phase "
            f"{phase.name!r}; start fewer, or set a larger batch_size."
        )
    if not reason and not _parts_add_up(ranks, model, phase, data, rows, bf16):
        reason = f"in its phase {phase.name!r} the loss of a batch is not the mean over its rows"
    if reason:
        raise UsageError(
            f"{model.name} cannot be split over several ranks ({reason}); train it on one, without "
            "torchrun."
        )


def _parts_add_up(
    ranks: Ranks, model: Model, phase: Phase, data: Dataset, rows: int, bf16: bool
) -> bool:
    """Whether gradients and terms of a first batch are the sums of those of its parts.

    Terms with a schedule are compared at the first step and at the end of all schedules.
    """
    device, player = data.train.device, phase.players[0]
    parameters = list(model.parameters())
    every = torch.arange(rows, device=device)
    part = every[ranks.part(rows)]
    tolerance = BF16_TOLERANCE if bf16 else TOLERANCE.get(device.type, max(TOLERANCE.values()))
    equal = True
    with undone(model):
        for step in (0.0, math.inf):
            whole_noise, part_noise = (torch.Generator(device).manual_seed(1) for _ in range(2))
            whole, part_batch = data.train.batch(every), data.train.batch(part)
            for batch in (whole, part_batch):
                batch["step"] = torch.full((), step, device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                expected, terms = _gradients(model, player.loss, whole, whole_noise, 1.0)
                with ranks.noise_of(part_noise, rows):
                    weight = len(part) / rows
                    _, part_terms = _gradients(model, player.loss, part_batch, part_noise, weight)
            ranks.reduce_step(parameters, part_terms)
            actual = [p.grad for p in parameters]
            equal &= difference(expected, actual) <= tolerance
            equal &= all(
                abs(float(terms[name]) - float(part_terms[name]))
                <= tolerance * max(abs(float(terms[name])), abs(float(terms["loss"])) * 1e-3)
                for name in terms
            )
            equal &= torch.equal(whole_noise.get_state(), part_noise.get_state())
    return not ranks.any(not equal, device)


def _gradients(
    model: Model,
    loss: Callable[[Batch, torch.Generator | None], Terms],
    batch: Batch,
    generator: torch.Generator,
    weight: float,
) -> tuple[list[Tensor | None], Terms]:
    """Return copies of the gradients of all parameters, and the terms, times `weight`."""
    model.zero_grad(set_to_none=True)
    terms = loss(batch, generator)
    (terms["loss"] * weight).backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return gradients, {name: value.detach().float() * weight for name, value in terms.items()}


def difference(whole: Sequence[Tensor | None], summed: Sequence[Tensor | None]) -> float:
    """Return the largest difference of two gradients, relative to their largest entry."""
    if [g is None for g in whole] != [g is None for g in summed]:
        return math.inf
    pairs = [(a, b) for a, b in zip(whole, summed, strict=True) if a is not None and b is not None]
    scale = max((float(a.abs().max()) for a, _ in pairs if a.numel()), default=0.0)
    largest = max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)
    return largest / max(scale, 1e-30)
