"""Memory of this process: what the allocator keeps between the steps of a training."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
import sys
import torch
from intervae.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    blocks = [torch.zeros(2**22) for _ in range(5)]  # 16 MiB each
    return sum(float(block[0]) for block in blocks)
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the options of glibc's malloc")
def test_kept_memory_is_not_cleared_again_in_every_step() -> None:
    faults = {
        mode: int(subprocess.check_output([sys.executable, "-c", STEPS, mode], text=True))
        for mode in ("default", "keep")
    }
    assert faults["default"] > 1000  # pages that the system clears, in 20 steps
    assert faults["keep"] < 0.02 * faults["default"]
