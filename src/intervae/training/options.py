"""Options of the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    threads: int | None = setting(None, "CPU threads; none chooses the fastest number")
    progress: bool | None = setting(None, "progress bar; none shows it on a terminal only")
