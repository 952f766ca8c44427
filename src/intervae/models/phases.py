"""Training as a list of phases: each names its players, and each player its loss and its parameters, so that one loop serves every model.

One player is ordinary training; two are adversarial training, taking turns on the same batch. A phase without players only
prepares something (a graph learned from the labels, images encoded once).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from intervae.data.base import Batch, Dataset

Terms = dict[str, Tensor]  # named 0-dim tensors; the entry "loss" is what is minimised
Loss = Callable[[Batch, torch.Generator | None], Terms]
Optimiser = Literal["adam", "adamw", "muon", "adagrad", "rmsprop", "sgd"]
Schedule = Literal["constant", "cosine", "exponential"]


@dataclass(frozen=True)
class Player:
    """Who learns what.

    Arguments:
        loss: a pure function of (the model's parameters and buffers, batch, generator); `batch["step"]` is the step within the
            phase as a 0-dim tensor, for schedules inside the loss.
        parameters: prefixes of the names of the parameters that move; ("",) moves all of them.
    """

    loss: Loss
    parameters: tuple[str, ...] = ("",)
    name: str = "model"
    optimiser: Optimiser = "adam"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)  # of adam, adamw and what muon leaves to adamw
    epsilon: float = 1e-8  # of the same
    weight_decay: float = 0.0
    own_rates: tuple[tuple[str, float], ...] = ()  # of parameters whose names begin so; their gradient is clipped by itself
    clip: float | None = None  # largest norm of the gradient; with muon, of that of weight matrices and of that of all others
    steps: int = 1  # of this player per batch


@dataclass(frozen=True)
class Phase:
    """A stretch of training.

    Arguments:
        epochs: passes over the training split.
        schedule: of every player's learning rate over the phase: `cosine` falls to nearly zero after a short warm-up, `exponential` is
            multiplied by `decay` after every epoch.
        prepare: called with (data, seed) before the first step, and again when a run resumes inside the phase; what it returns, if
            anything, is the data of this phase. It must be deterministic and read no parameter that the phase itself trains.
        after_step: called after the players' steps on a batch, to change buffers without gradients (moving averages, codebooks); tensor
            operations only, as it is captured with the step.
        after_epoch: called with the epoch's mean terms; may change buffers (dual updates); returning True ends the phase.
        patience: stop after so many epochs without a better validation loss; None goes on to the end.
        keep_best: end the phase with the weights of the best validation loss.
    """

    name: str
    players: tuple[Player, ...] = ()
    epochs: int = 0
    batch_size: int | None = None
    schedule: Schedule = "constant"
    decay: float = 1.0
    prepare: Callable[[Dataset, int], Dataset | None] | None = None
    after_step: Callable[[], None] | None = None
    after_epoch: Callable[[Mapping[str, float]], bool | None] | None = None
    patience: int | None = None
    keep_best: bool = False
