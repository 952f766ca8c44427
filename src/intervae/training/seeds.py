"""`fit_seeds`: one model trained with several seeds, as a stack where its losses allow it.

Every run has the result, the folder and the checkpoint that it would have alone. What cannot be
stacked is trained side by side on a GPU and one after the other elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from intervae.data import Dataset
from intervae.errors import UsageError
from intervae.models.base import Model
from intervae.models.checks import check_model
from intervae.models.device import choose_device
from intervae.settings import build_settings, check_flags, check_seed
from intervae.training.arguments import check_arguments, check_out
from intervae.training.loop import Result, Trainer
from intervae.training.options import Options
from intervae.training.ranks import current_ranks
from intervae.training.stacked_runs import StackedRuns


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
            and False, the default, trains none as a stack: side by side on a GPU, else one after
            the other.
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
    required: bool = False,
    notify: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[SeedRun]:
    """Train models of one class, each with its seed and its folder; see `fit_seeds`.

    A run that fails does not stop the others; at the end the error of the first is raised.

    Arguments:
        required: raise a StackError for runs that are no stack instead of training them alone.
    """
    for model in models:
        check_arguments(model, data, options, resume=resume, overwrite=overwrite)
    check_flags(resume=resume)
    if current_ranks() is not None:
        raise UsageError(
            "torchrun trains one run on several ranks; train several seeds without it, or one seed "
            "with it."
        )
    chosen = choose_device(device)
    stack = stack or False
    if not isinstance(stack, int) or stack < 0:
        raise UsageError(f"stack={stack!r} must be True, False or a number of runs.")
    training_options = build_settings(Options, options)
    # one copy of training and validation for all runs
    train, validation = data.train.to(chosen), data.validation.to(chosen)
    on_device = replace(data, train=train, validation=validation)
    trainers = [
        Trainer(model, on_device, seed, folder, chosen, training_options)
        for model, seed, folder in zip(models, seeds, folders, strict=True)
    ]
    size = len(trainers) if stack is True else max(1, stack)
    results = StackedRuns(trainers, size, required, notify).run(resume, overwrite)
    return [
        SeedRun(trainer.seed, trainer.model, result)
        for trainer, result in zip(trainers, results, strict=True)
    ]
