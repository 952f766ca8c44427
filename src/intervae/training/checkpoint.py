"""Checkpoints: one safetensors file with weights, best weights, optimiser state and progress."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from intervae.errors import RunError
from intervae.files import check_regular, write_bytes

TensorGroups = dict[str, dict[str, Tensor]]  # model, best, optimiser -> name -> tensor


@dataclass
class Progress:
    """Position in the training.

    Every epoch is a function of this, the tensors and the seed, so nothing else is stored.
    """

    phase: int = 0
    epoch: int = 0  # finished epochs of the phase
    best: float | None = None  # validation loss
    best_epoch: int = 0
    log_bytes: int = 0  # length of metrics.jsonl, to which a resumed run truncates it
    seconds: float = 0.0
    finished: bool = False
    threads: int | None = None  # of the CPU, which a resumed run uses again


def save_checkpoint(path: Path, progress: Progress, groups: TensorGroups) -> None:
    """Write a checkpoint to a temporary file, then rename it."""
    tensors = {
        f"{group}/{name}": tensor.detach().cpu().contiguous()
        for group, named in groups.items()
        for name, tensor in named.items()
    }
    write_bytes(path, save(tensors, metadata={"progress": json.dumps(asdict(progress))}))


def load_checkpoint(path: Path) -> tuple[Progress, TensorGroups]:
    """Return the progress and the tensors of a checkpoint; a damaged one raises a RunError."""
    if not path.exists():
        raise RunError(
            f"{path.parent.parent} has no checkpoint to resume from; start it again with "
            "--overwrite."
        )
    groups: TensorGroups = {"model": {}, "best": {}, "optimiser": {}}
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            progress = Progress(**json.loads(file.metadata()["progress"]))
            for key in file.keys():  # noqa: SIM118 (not a dict)
                group, name = key.split("/", 1)
                groups[group][name] = file.get_tensor(key)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is not a checkpoint of intervae or is damaged ({error}).") from None
    return progress, groups
