"""`intervae pack`: pack, train, evaluate, check; a full disk and Ctrl-C leave nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from command import SMALL, contents, intervae, make_folder, refused, succeeded
from intervae.data.packed.shard_sink import ShardSink


def test_pack_train_evaluate_check(tmp_path: Path) -> None:
    make_folder(tmp_path / "mine")
    out = tmp_path / "packed"
    packed = succeeded(
        intervae("pack", tmp_path / "mine", out, "--size", "16", "--shard-mb", "0.01")
    )
    assert f"wrote {out}" in packed.out
    assert len(list(out.glob("images-*.npy"))) > 1
    train = ["train", "causal-vae", *SMALL, "--graph", "level -> width"]
    succeeded(intervae(*train, "--data", out, "--out", tmp_path / "run"))
    succeeded(
        intervae(*train, "--data", tmp_path / "mine", "--size", "16", "--out", tmp_path / "memory")
    )
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        tmp_path / "memory" / "model.safetensors"
    ).read_bytes()
    assert _names(tmp_path / "run") == _names(tmp_path / "memory")
    assert "all checksums agree" in succeeded(intervae("pack", out, "--check")).out
    shard = out / "images-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-1])
    refused(intervae("pack", out, "--check"), 1, "images-00000.npy", "truncated")
    refused(intervae("evaluate", tmp_path / "run"), 1, "images-00000.npy", "truncated")


def _names(run: Path) -> set[str]:
    return {name for name in contents(run) if "tensorboard" not in name}


def test_wrong_usage(tmp_path: Path) -> None:
    make_folder(tmp_path / "mine")
    refused(intervae("pack", tmp_path / "mine"), 2, "needs a folder to write")
    refused(intervae("pack", tmp_path / "mine", tmp_path / "x", "--check"), 2, "--check takes one")
    refused(intervae("pack", tmp_path / "mine", "--check"), 1, "packed.json")
    refused(intervae("pack", tmp_path / "mine", tmp_path / "x", "--shard-mb", "0"), 2, "--shard-mb")
    refused(intervae("pack", "pendulun", tmp_path / "x"), 2, "did you mean 'pendulum'")
    refused(intervae("pack", tmp_path / "mine", tmp_path / "mine"), 2, "holds the source")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("files", [0, 1, 3, 5])
def test_disk_that_fills_leaves_nothing(
    files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "mine")
    real, left = os.fsync, [files]

    def fsync(*arguments: Any) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        real(*arguments)

    monkeypatch.setattr(os, "fsync", fsync)
    command = ["pack", tmp_path / "mine", tmp_path / "packed", "--shard-mb", "0.05"]
    refused(intervae(*command), 1, "no space left to write", "nothing was written")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "mine")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    refused(
        intervae("pack", tmp_path / "mine", tmp_path / "packed"),
        1,
        "no space to write",
        "nothing was written",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signal_leaves_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "mine")
    original, calls = ShardSink.append, []

    def append(sink: ShardSink, pixels: Any) -> None:
        calls.append(1)
        if len(calls) == 20:
            os.kill(os.getpid(), getattr(signal, name))
        original(sink, pixels)

    monkeypatch.setattr(ShardSink, "append", append)
    command = ["pack", tmp_path / "mine", tmp_path / "packed", "--shard-mb", "0.01"]
    refused(intervae(*command), 1, "interrupted", "was not written")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
