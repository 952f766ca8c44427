"""The environment of a run, as config.json records it: versions, git revision, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

import intervae

REVISION = 12  # characters of a git revision


def versions() -> dict[str, str]:
    """Return the versions of intervae, Python, torch and numpy."""
    return {
        "intervae": intervae.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def revision() -> str:
    """Return the git revision of the package's checkout, with a + for uncommitted changes.

    A copy outside git has the one in INTERVAE_REVISION, or "".
    """
    package = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        # fails for a copy that lies in a checkout without being part of it
        git("ls-files", "--error-unmatch", __file__)
        changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", f"--short={REVISION}", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("INTERVAE_REVISION", "")[:REVISION]


def hardware(device: torch.device | str = "cpu") -> str:
    """Return the name of the GPU, or the number of CPU threads, in words."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
