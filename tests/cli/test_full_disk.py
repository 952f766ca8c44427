"""Full disks and folders without permission on the command line: one sentence, nothing lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import intervae as package
from command import PENDULUM, SMALL, contents, intervae, refused, succeeded

TRAIN = ["train", "causal-vae", *SMALL]


@pytest.fixture
def full_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """`full_after(n)`: writing fails after n more files; None: it works again."""
    real, left = os.fsync, [None]

    def fsync(*arguments: Any) -> None:
        if left[0] is not None:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= 1
        real(*arguments)

    def set_left(n: int | None) -> None:
        left[0] = n  # type: ignore[call-overload]

    monkeypatch.setattr(os, "fsync", fsync)
    return set_left


@pytest.mark.parametrize("files", [0, 1, 2, 4, 6])
def test_disk_full_during_training_leaves_a_resumable_run(
    files: int, finished: Path, tmp_path: Path, full_after: Callable[[int | None], None]
) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--no-evaluate", "--out", tmp_path / "run"]
    full_after(files)
    refused(intervae(*train), 1, "no space left to write", str(tmp_path / "run"), "--resume")
    assert not list(tmp_path.rglob("*.tmp"))
    full_after(None)
    succeeded(intervae(*train, *(["--resume"] if files else [])))
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        finished / "model.safetensors"
    ).read_bytes()


def test_disk_full_during_evaluation_and_figures(
    run: Path, tmp_path: Path, full_after: Callable[[int | None], None]
) -> None:
    succeeded(intervae("evaluate", run, "--metric", "shd"))
    before = contents(run)
    full_after(0)
    refused(intervae("evaluate", run), 1, "no space left to write", "evaluation.json")
    refused(intervae("graph", run, "--out", tmp_path / "g.svg"), 1, "no space left", "g.svg")
    refused(
        intervae("intervene", run, "--do", "light=100", "--out", tmp_path / "strip.png"),
        1,
        "no space left",
        "strip.png",
    )
    assert contents(run) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# full at the first checkpoint, at the log, at the weights, at a figure
@pytest.fixture(params=[40, 132, 300, 560])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of this many KiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}k", "tmpfs", str(disk)],
        capture_output=True,
    ).returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_small_real_disk(small_disk: Path, tmp_path: Path) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--out", small_disk / "run"]
    stopped = intervae(*train)
    refused(stopped, 1, "no space left to write")
    assert not list(small_disk.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    succeeded(intervae(*train, "--resume"))
    package.load(small_disk / "run")
    package.load(Path(shutil.copytree(small_disk / "run", tmp_path / "copy")))


def test_folder_without_write_permission(run: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked").chmod(0o500)
    if os.access(tmp_path / "locked", os.W_OK):
        pytest.skip("permissions do not bind root; a path below a file is tested instead")
    run.chmod(0o500)
    try:
        refused(
            intervae(*TRAIN, *PENDULUM, "--no-evaluate", "--out", tmp_path / "locked" / "run"),
            1,
            "cannot be written to",
        )
        refused(intervae("evaluate", run), 1, "cannot be written to")
        refused(
            intervae("graph", run, "--out", tmp_path / "locked" / "g.svg"),
            1,
            "cannot be written to",
        )
    finally:
        for path in (tmp_path / "locked", run):
            path.chmod(0o700)
    assert contents(tmp_path / "locked") == {}
