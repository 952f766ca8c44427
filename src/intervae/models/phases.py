"""Training as a list of phases, each with players that minimise a loss over some parameters.

One player is ordinary training; two take turns on the same batch, as in adversarial training. A
phase without players only prepares something, such as a graph learned from the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from intervae.data import Batch, Dataset

Terms = dict[str, Tensor]  # named 0-dim tensors; the entry "loss" is minimised
Loss = Callable[[Batch, torch.Generator | None], Terms]
Optimiser = Literal["adam", "adamw", "muon", "adagrad", "rmsprop", "sgd"]
Schedule = Literal["constant", "cosine", "exponential"]


@dataclass(frozen=True)
class Player:
    """A loss and the parameters that minimise it.

    Arguments:
        loss: pure function of (parameters and buffers of the model, batch, generator).
            `batch["step"]` is the step within the phase, a 0-dim tensor, for schedules in the loss.
        parameters: prefixes of the names of the trained parameters; ("",) is all of them.
        betas: of Adam, AdamW and the AdamW part of Muon; `epsilon` likewise.
        prefix_rates: (name prefix, learning rate) of parameters that form groups of their own.
        clip: largest gradient norm, of each group separately; with Muon, of weight matrices and
            of other parameters separately.
        steps: steps of this player on each batch.
    """

    loss: Loss
    parameters: tuple[str, ...] = ("",)
    name: str = "model"
    optimiser: Optimiser = "adam"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    prefix_rates: tuple[tuple[str, float], ...] = ()
    clip: float | None = None
    steps: int = 1


@dataclass(frozen=True)
class Phase:
    """A part of the training with its own players, data and stopping rule.

    Arguments:
        epochs: passes over the training split.
        schedule: learning rate of every player over the phase: `cosine` falls to nearly zero after
            a short warm-up, `exponential` is multiplied by `decay` after every epoch.
        prepare: called with (data, seed) before the first step, and again if a run resumes inside
            the phase. It may return the data of this phase. It must be deterministic and must not
            read parameters that the phase trains.
        replaces_data: whether `prepare` returns the data of this phase.
        after_step: called after the steps on a batch, to update buffers without gradients, such as
            moving averages and codebooks. Tensor operations only: it is captured with the step.
        after_epoch: called with the mean terms of the epoch; may update buffers, such as dual
            variables. A return value of True ends the phase.
        patience: epochs without a better validation loss after which the phase ends; None: never.
        keep_best: whether the phase ends with the weights of the best validation loss.
        averaging: decay per step of the averaged weights (buffers are not averaged), by which the
            phase is validated and with which it ends; 0: none.
    """

    name: str
    players: tuple[Player, ...] = ()
    epochs: int = 0
    batch_size: int | None = None
    schedule: Schedule = "constant"
    decay: float = 1.0
    prepare: Callable[[Dataset, int], Dataset | None] | None = None
    replaces_data: bool = False
    after_step: Callable[[], None] | None = None
    after_epoch: Callable[[Mapping[str, float]], bool | None] | None = None
    patience: int | None = None
    keep_best: bool = False
    averaging: float = 0.0
