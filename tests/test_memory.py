"""Memory of this process: what the allocator keeps between the steps of a training."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

STEP = """
import sys
import torch
from pathlib import Path
from intervae.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def mapped():  # bytes of address space
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096
blocks = [torch.zeros(2**22) for _ in range(5)]  # 16 MiB each
before = mapped()
del blocks
print((before - mapped()) / 2**20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the options of glibc's malloc")
def test_freed_memory_stays_with_the_process() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    given_back = {
        mode: float(
            subprocess.check_output([sys.executable, "-c", STEP, mode], text=True, env=environment)
        )
        for mode in ("default", "keep")
    }
    assert given_back["default"] > 70  # MiB
    assert given_back["keep"] < 1
