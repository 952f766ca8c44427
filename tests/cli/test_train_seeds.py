"""`intervae train --seeds` and `intervae resume` of one of its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command import intervae, refused

WORDS = ("train", "vae", "--data", "pendulum", "--size", 8, "--data-option", "samples=60")
SMALL = ("--set", "channels=4", "--set", "hidden=8", "--set", "latents=2", "--device", "cpu")


def histories(folder: Path) -> list[Any]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(text).items() if k != "seconds"} for text in lines]


def test_seeds_are_trained_evaluated_and_resumed(tmp_path: Path) -> None:
    out = tmp_path / "many"
    words = (*WORDS, *SMALL, "--epochs", 2, "--set", "batch_size=16", "--out", out)
    result = intervae(*words, "--seed", 4, "--seeds", 2, "--stack")
    assert result.code == 0, result.err
    assert "seeds 4 to 5" in result.out
    row = next(line for line in result.out.splitlines() if line.startswith("mic "))
    values = []
    for seed in (4, 5):
        folder = out / f"seed-{seed}"
        config = json.loads((folder / "config.json").read_text())
        assert (config["seed"], config["stack"]) == (seed, 2)
        assert len(histories(folder)) == 2
        assert list((folder / "figures").glob("*.png"))
        metrics = json.loads((folder / "evaluation.json").read_text())
        values.append(next(m["value"] for m in metrics if m["metric"] == "mic"))
    assert f"{sum(values) / 2:.4g}" in row.split()[1]

    refused(intervae(*words, "--seed", 4, "--seeds", 2), 1, "already holds a run")
    again = intervae(*words, "--seed", 4, "--seeds", 3, "--resume", "--no-evaluate")
    assert again.code == 0, again.err  # the third seed is new
    assert (out / "seed-6" / "model.safetensors").is_file()
    alone = intervae("resume", out / "seed-5", "--no-evaluate", "--device", "cpu")
    assert "already trained" in alone.out
    assert json.loads((out / "seed-5" / "config.json").read_text())["stack"] == 2


def test_no_stack_gives_single_runs(tmp_path: Path) -> None:
    words = (*WORDS, *SMALL, "--epochs", 1, "--set", "batch_size=16", "--no-evaluate")
    assert intervae(*words, "--seeds", 2, "--no-stack", "--out", tmp_path / "many").code == 0
    assert intervae(*words, "--seed", 1, "--out", tmp_path / "one").code == 0
    assert histories(tmp_path / "many" / "seed-1") == histories(tmp_path / "one")
    weights = [tmp_path / "many" / "seed-1", tmp_path / "one"]
    one, other = ((folder / "model.safetensors").read_bytes() for folder in weights)
    assert one == other
    assert "stack" not in json.loads((weights[0] / "config.json").read_text())


def test_interrupt_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from intervae.training.stacked_runs import StackedRuns

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(StackedRuns, "run", stop)
    result = intervae(*WORDS, *SMALL, "--seeds", 2, "--out", tmp_path / "many")
    refused(result, 1, "the same command and --resume", "seed-N")


def test_stack_without_seeds_is_refused() -> None:
    refused(intervae(*WORDS, "--stack"), 2, "add --seeds N")
