"""Choice of the device of a training or of a loaded model."""

from __future__ import annotations

from typing import Any

import torch

from intervae.errors import UsageError

CHOICES = "use auto, cpu, cuda or cuda:N"


def choose_device(device: Any) -> torch.device:
    """Return the device; `auto` is a GPU if there is one. Missing devices raise a UsageError."""
    if not isinstance(device, str | torch.device):
        raise UsageError(f"device={device!r} is not the name of a device; {CHOICES}.")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, ValueError):
        raise UsageError(f"device {device!r} is not known; {CHOICES}.") from None
    if chosen.type not in ("cpu", "cuda", "mps", "xpu"):
        raise UsageError(f"device {device!r} cannot train; {CHOICES}.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"device {device}: torch finds no GPU here; use device='cpu' (--device cpu)."
        )
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device {device}: this machine has only {torch.cuda.device_count()}; they count "
            "from cuda:0."
        )
    try:
        torch.empty(0, device=chosen)
    except (AssertionError, NotImplementedError, RuntimeError):
        raise UsageError(f"device {device}: torch finds no such device here; {CHOICES}.") from None
    return chosen
