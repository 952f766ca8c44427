"""Trainings under torchrun: two ranks equal one, a killed rank recovers, what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from command import PENDULUM, SMALL, intervae, succeeded

pytestmark = pytest.mark.slow
RUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""}
CAUSAL = ["train", "causal-vae", *PENDULUM, *SMALL, "--graph", "true", "--no-evaluate"]
# 96 images of 16 x 16, of which 65 are in the training split
VAE = [
    "train", "vae", *PENDULUM, "--set", "channels=4,4", "--set", "hidden=16", "--no-evaluate",
    "--device", "cpu",
]  # fmt: skip


def torchrun(*words: object, ranks: int = 2, restarts: int = 0, background: bool = False) -> Any:
    options = ["--nproc-per-node", ranks, "--max-restarts", restarts, "-m", "intervae"]
    command = [str(word) for word in (*RUN, *options, *words)]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=ENVIRONMENT, **streams)
    if background:
        return process
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path) -> list[float]:
    """Return all terms of all epochs, in order."""
    return [
        value
        for line in lines(run)
        for split in ("train", "validation")
        for _, value in sorted(line.get(split, {}).items())
    ]


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ([*CAUSAL, "--set", "epochs=3"], 2),
        ([*VAE, "--set", "epochs=3", "--set", "batch_size=15"], 2),  # parts of 7 and 8 rows
        ([*VAE, "--set", "epochs=3", "--set", "batch_size=16"], 3),
    ],
)
def test_losses_of_ranks_are_those_of_one_process(
    words: list[str], ranks: int, tmp_path: Path
) -> None:
    words = [word for i, word in enumerate(words) if "--epochs" not in words[max(0, i - 1) : i + 1]]
    succeeded(intervae(*words, "--out", tmp_path / "one"))
    code, out, err = torchrun(*words, "--out", tmp_path / "several", ranks=ranks)
    assert code == 0, err
    assert out.count("training ") == 1  # only the first rank prints
    one, several = losses(tmp_path / "one"), losses(tmp_path / "several")
    assert len(one) > 6
    assert several == pytest.approx(one, rel=1e-6, abs=1e-6)
    config = json.loads((tmp_path / "several" / "config.json").read_text())
    assert config["seed"] == 0


def test_a_killed_rank_recovers(tmp_path: Path) -> None:
    words = [*VAE, "--set", "batch_size=16", "--set", "checkpoint_seconds=0", "--epochs", 60]
    succeeded(intervae(*words, "--out", tmp_path / "one"))
    run = tmp_path / "several"
    process = torchrun(*words, "--out", run, restarts=2, background=True)
    while not ((run / "metrics.jsonl").is_file() and len(lines(run)) > 5):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(rank_processes(process.pid)[1], signal.SIGKILL)
    before = len(lines(run))
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert before < 60
    assert [line["epoch"] for line in lines(run)] == list(range(1, 61))
    assert losses(run) == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def rank_processes(parent: int) -> list[int]:
    """Return the children of a process, in the order in which they were started."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    children = [int(word) for word in path.read_text().split()]
    return [
        child for child in children if b"intervae" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize(
    ("words", "ranks", "sentence"),
    [
        ([*VAE, "--set", "batch_size=2"], 3, r"3 ranks are more than the 2 rows of a batch"),
        (
            ["train", "factor-vae", *VAE[2:], "--set", "batch_size=16"],
            2,
            r"factor-vae cannot be split over several ranks \(its phase '\w+' has 2 players\)",
        ),
        (
            ["train", "dip-vae", *VAE[2:], "--set", "batch_size=16"],
            2,
            r"dip-vae cannot be split over several ranks \(.*not the mean over its rows",
        ),
        (
            ["train", "beta-tcvae", *VAE[2:], "--set", "batch_size=16"],
            2,
            r"beta-tcvae cannot be split over several ranks",
        ),
        (["models"], 2, "`models` needs one"),
    ],
)
def test_what_cannot_be_split_is_one_sentence(
    words: list[str], ranks: int, sentence: str, tmp_path: Path
) -> None:
    more = ["--out", tmp_path / "run"] if "train" in words else []
    code, _, err = torchrun(*words, *more, ranks=ranks)
    assert code == 1  # of torchrun
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, err
    assert re.search(sentence, errors[0]), errors
    assert not (tmp_path / "run" / "model.safetensors").exists()
