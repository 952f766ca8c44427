"""Options of the training loop, and the choice of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from intervae.errors import UsageError
from intervae.settings import setting


@dataclass(frozen=True)
class Options:
    """Options of the training loop; what is learned is in the settings of the model.

    `precision="float32"` uses torch's defaults: TF32 convolutions on a GPU, full matrix products.
    `"tf32"` uses TF32 matrix products too, in the whole process while the run lasts. `"bf16"` is
    bfloat16 autocast.
    """

    cuda_graph: bool = setting(True, "capture of a whole step as a CUDA graph, on a GPU")
    precision: Literal["float32", "tf32", "bf16"] = setting("float32", "arithmetic of the steps")
    checkpoint_seconds: float = setting(10.0, "seconds between checkpoints; 0 is every epoch")
    tensorboard: bool = setting(True, "TensorBoard event files, if the package is installed")
    progress: bool | None = setting(None, "progress bar; none shows it on a terminal only")


def choose_device(device: str | torch.device) -> torch.device:
    """Return the device; `auto` is a GPU if there is one. Missing devices raise a UsageError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise UsageError(
            f"device {device!r} is not known; use auto, cpu, cuda or cuda:N."
        ) from None
    if chosen.type not in ("cpu", "cuda", "mps", "xpu"):
        raise UsageError(f"device {device!r} cannot train; use auto, cpu, cuda or cuda:N.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"device {device}: torch finds no GPU here; use device='cpu' (--device cpu)."
        )
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device {device}: this machine has only {torch.cuda.device_count()}; they count "
            "from cuda:0."
        )
    return chosen
