"""`intervae.compilation`: compiled at the first call, kept on disk, never stale, safe to share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INNER = """
from intervae.compilation import inner

@inner
def scale(x):
    return {factor} * x
"""
OUTER = """
from intervae.compilation import compiled
from scaling import scale

@compiled
def total(values):
    result = 0.0
    for value in values:
        result += scale(value)
    return result
"""
PROGRAM = """
import sys
import numpy as np
import sums
assert "numba" not in sys.modules, "the import of a compiled function imports numba"
print(sums.total(np.arange(4.0)), sum(sums.total.dispatcher().stats.cache_hits.values()))
"""


def start(folder: Path, cache: Path) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment["INTERVAE_CACHE"] = str(cache)
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen[str]) -> tuple[float, int]:
    """Return the total and the number of functions that were read from the cache."""
    out, error = process.communicate()
    assert process.returncode == 0, error
    total, hits = out.split()
    return float(total), int(hits)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "scaling.py").write_text(INNER.format(factor=2.0))
    (tmp_path / "code" / "sums.py").write_text(OUTER)
    return tmp_path / "code"


def test_second_process_reads_the_code_and_an_edit_compiles_anew(
    folder: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    assert result(start(folder, cache)) == (12.0, 0)
    assert result(start(folder, cache)) == (12.0, 1)
    # numba itself would not notice: the file of `total` is as it was
    (folder / "scaling.py").write_text(INNER.format(factor=3.0))
    assert result(start(folder, cache)) == (18.0, 0)
    compiled = cache / "compiled"
    assert compiled.stat().st_mode & 0o022 == 0
    assert not list(folder.rglob("*.nbi"))  # nothing beside the source


def test_several_processes_share_one_cache(folder: Path, tmp_path: Path) -> None:
    processes = [start(folder, tmp_path / "cache") for _ in range(3)]
    assert [result(process)[0] for process in processes] == [12.0] * 3
    assert result(start(folder, tmp_path / "cache")) == (12.0, 1)


def test_folder_that_others_can_write_to_is_not_read(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "compiled").mkdir(parents=True)
    (cache / "compiled").chmod(0o777)
    for _ in range(2):
        assert result(start(folder, cache)) == (12.0, 0)
    assert not list(cache.rglob("*.nbi"))


def test_compiles_without_a_cache_where_its_folder_is_a_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert result(start(folder, tmp_path / "cache")) == (12.0, 0)
