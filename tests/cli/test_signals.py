"""Ends by a signal and by too little memory: one sentence, the last checkpoint intact."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import intervae.training.epochs as training_epochs
from command import (
    ENVIRONMENT,
    PENDULUM,
    PROGRAM,
    SMALL,
    Output,
    contents,
    intervae,
    refused,
    succeeded,
)

TRAIN = ["train", "vae", *PENDULUM, *SMALL, "--no-evaluate", "--set", "tensorboard=no"]
LONG = ["--epochs", "5", "--set", "patience=none", "--set", "checkpoint_seconds=0"]


def send_after(epochs: int, number: int) -> Callable[..., Any]:
    """Return `validation_terms` that sends this process a signal after some epochs."""
    calls = 0

    def validate(*arguments: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == epochs:
            os.kill(os.getpid(), number)
        return original(*arguments)

    original = training_epochs.validation_terms
    return validate


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signal_keeps_the_last_checkpoint(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    succeeded(intervae(*TRAIN, *LONG, "--out", whole))
    before = signal.getsignal(getattr(signal, name))
    with monkeypatch.context() as patched:
        patched.setattr(training_epochs, "validation_terms", send_after(3, getattr(signal, name)))
        stopped = intervae(*TRAIN, *LONG, "--out", run)
    refused(stopped, 1, f"interrupted; go on with `intervae resume {run}`")
    assert signal.getsignal(getattr(signal, name)) == before
    assert not list(run.rglob("*.tmp"))
    assert not (run / "model.safetensors").exists()
    succeeded(intervae("resume", run, "--no-evaluate"))
    weights = [contents(each)["model.safetensors"] for each in (whole, run)]
    assert weights[0] == weights[1]


def test_hangup_that_nohup_ignores_does_not_end_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(training_epochs, "validation_terms", send_after(1, signal.SIGHUP))
        succeeded(intervae(*TRAIN, "--out", tmp_path / "run"))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_while_a_package_is_imported_is_one_sentence(tmp_path: Path) -> None:
    """A package that turns the interrupt into something else, as compiled ones do."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\n"
        "except BaseException:\n    raise ImportError('half imported')\n"
    )
    program = subprocess.run(
        ["env", "--default-signal=INT", PROGRAM, *TRAIN, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
        timeout=60,
    )
    output = Output(program.returncode, program.stdout, program.stderr)
    refused(output, 1, "interrupted while starting; give the same command again")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("megabytes", [150, 600, 1100])
def test_too_little_address_space_is_one_sentence(megabytes: int, tmp_path: Path) -> None:
    limit = megabytes * 2**20
    program = subprocess.run(
        [PROGRAM, *TRAIN, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    output = Output(program.returncode, program.stdout, program.stderr)
    refused(output, 1, "not enough memory", "`ulimit -v`")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9999 bytes"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
        ImportError("libx.so: failed to map segment from shared object"),
    ],
)
def test_every_way_to_run_out_of_memory_is_named(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("intervae.cli.train.load_described_data", fail)
    refused(intervae(*TRAIN, "--out", tmp_path / "run"), 1, "not enough memory", "--size")


def test_a_crash_in_a_training_prints_the_stack() -> None:
    script = (
        "import ctypes; from intervae.cli.signals import trace_crashes; trace_crashes()\n"
        "def crash_here(): ctypes.string_at(0)\n"
        "crash_here()"
    )
    command = [sys.executable, "-c", script]
    crashed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert crashed.returncode == -signal.SIGSEGV
    assert "crash_here" in crashed.stderr
