"""Timed steps: they change no result, choose the fastest threads, and give an estimate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from command import PENDULUM, SMALL, contents, intervae, succeeded
from intervae.data import Dataset
from intervae.models import MODELS
from intervae.testing import ModelCase
from intervae.training import timing
from intervae.training.loop import fit
from intervae.training.stepper import Stepper
from quick_settings import QUICK

TRAINED = sorted(
    name for name in MODELS if name not in ("pca", "ica", "raw-pixels", "untrained-vae")
)


@pytest.mark.parametrize("name", TRAINED)
def test_timed_steps_leave_no_trace_in_the_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every model: bit-equal weights with and without timed steps."""
    case = ModelCase(MODELS[name], QUICK.get(name, lambda data: {}))
    data = case.data()
    weights = []
    steps: list[int] = []
    monkeypatch.setattr(timing, "SECONDS", 0.001)
    original = Stepper.try_step
    monkeypatch.setattr(Stepper, "try_step", lambda self: (steps.append(1), original(self)))
    for shortest in (10**9, 0):
        monkeypatch.setattr(timing, "MIN_STEPS", shortest)
        assert bool(steps) is False
        model = case.model(data)
        fit(model, data, seed=0, device="cpu", progress=False)
        weights.append({key: value.clone() for key, value in model.state_dict().items()})
    assert steps
    assert weights[0].keys() == weights[1].keys()
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key]), key


def test_fewer_threads_are_chosen_only_where_they_are_clearly_faster() -> None:
    assert timing.thread_counts(1) == [1]
    assert timing.thread_counts(6) == [6, 4, 2, 1]
    assert timing.choose_threads({2: 1.0, 1: 0.12}) == 1  # a busy machine
    assert timing.choose_threads({2: 1.0, 1: 0.9}) == 2
    assert timing.choose_threads({4: 1.0, 2: 0.5, 1: 1.7}) == 2


def test_slow_threads_are_not_used(pendulum: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose(pendulum, monkeypatch, {2: 0.8, 1: 0.1})
    assert chosen.threads == 1
    assert chosen.epoch_seconds == pytest.approx(0.1 * (65 // 16 + 7 / 16 / 3))
    assert choose(pendulum, monkeypatch, {2: 0.1, 1: 0.2}).threads == 2


def test_threads_of_the_user_are_used(pendulum: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {2: 0.8, 1: 0.1}
    assert choose(pendulum, monkeypatch, seconds, threads=2).threads == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert choose(pendulum, monkeypatch, seconds, unset=False).threads == 2


def choose(
    data: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    seconds: dict[int, float],
    threads: int | None = None,
    unset: bool = True,
) -> timing.Timing:
    """Return the timing of a phase on a machine of two threads on which steps take `seconds`."""
    if unset:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(timing, "MIN_STEPS", 0)
    monkeypatch.setattr(timing, "_step_seconds", lambda stepper, count: seconds[count])
    model = MODELS["vae"](data.spec, channels=(8, 8), batch_size=16)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        phase = model.phases()[0]
        result = timing.time_phase(model, phase, data, 16, bf16=False, threads=threads)
        assert torch.get_num_threads() == result.threads
    finally:
        torch.set_num_threads(before)
    return result


def test_number_of_threads_is_stored_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    words = ["train", "vae", *PENDULUM, *SMALL, "--no-evaluate", "--threads", 2]
    succeeded(intervae(*words, "--epochs", 3, "--set", "checkpoint_seconds=0", "--out", run))
    assert torch.get_num_threads() == 1  # restored
    assert json.loads((run / "config.json").read_text())["threads"] == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    succeeded(intervae("resume", run, "--no-evaluate"))
    assert json.loads((run / "config.json").read_text())["threads"] == 2


def test_a_long_training_prints_one_line_and_a_short_one_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", "vae", *PENDULUM, *SMALL, "--no-evaluate", "--overwrite"]
    words += ["--set", "tensorboard=no", "--out", tmp_path / "run"]
    output = succeeded(intervae(*words))
    assert output.out.splitlines()[0] == "reading pendulum"
    weights = contents(tmp_path / "run")["model.safetensors"]
    monkeypatch.setattr(timing, "MIN_STEPS", 0)
    monkeypatch.setattr("intervae.training.logging.SHORT_ELSEWHERE", 0.0)
    output = intervae(*words)
    assert output.code == 0
    (line,) = output.err.splitlines()
    assert ": about " in line
    assert line.endswith(" s for at most 1 epochs, on 1 CPU thread")
    assert contents(tmp_path / "run")["model.safetensors"] == weights


def test_times_in_words() -> None:
    assert timing.describe_time(42) == "about 42 s"
    assert timing.describe_time(600) == "about 10 min"
    assert timing.describe_time(9000) == "about 2.5 h"
