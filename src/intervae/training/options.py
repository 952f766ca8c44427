"""Options of the training loop: how it runs, not what it learns (that is in the model's settings)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from intervae.errors import UsageError


@dataclass(frozen=True)
class Options:
    """How to train.

    Arguments:
        cuda_graph: capture the whole step once and replay it: these small models wait for kernel launches, not for arithmetic.
        precision: float32 (a GPU's convolutions use its TF32 units, torch's default), tf32 (its matrix products too; a setting of the whole
            process while the run lasts), or bf16 autocast.
        checkpoint_seconds: how much work a killed run may lose; 0 writes after every epoch.
        tensorboard: write event files too, where the package is installed.
        progress: a bar with the time left; None shows it on a terminal only.
    """

    cuda_graph: bool = True
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    checkpoint_seconds: float = 10.0
    tensorboard: bool = True
    progress: bool | None = None


def choose_device(device: str | torch.device) -> torch.device:
    """`auto` is a GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise UsageError(f"device {device!r} is not known; use auto, cpu, cuda or cuda:N.") from None
    if chosen.type not in ("cpu", "cuda", "mps", "xpu"):
        raise UsageError(f"device {device!r} cannot train; use auto, cpu, cuda or cuda:N.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda was asked for, but torch finds no GPU here; use device='cpu' (--device cpu).")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"device {device} was asked for, but this machine has only {torch.cuda.device_count()}; they count from cuda:0.")
    return chosen
