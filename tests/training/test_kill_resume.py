"""Processes killed at any time: the resumed run ends with the same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# forks one child per request after the slow imports, so that kills fall into the training
SERVER = """
import json, os, signal, sys, time, traceback
import torch
from torch.utils import tensorboard
from intervae.data.simulators import Pendulum
from intervae.models import create
from intervae.training import fit

torch.set_num_threads(1)
torch.optim.Adam([torch.zeros(1, requires_grad=True)])
data = Pendulum().dataset(size=16, samples=200)


def train(out, graph, epochs, resume):
    settings = dict(dims=2, channels=(8, 8), hidden=32, mechanism_hidden=8, batch_size=16)
    settings |= dict(graph=data.graph if graph == "given" else graph, epochs=epochs, patience=None)
    model = create("causal-vae", data, **settings)
    fit(model, data, seed=5, out=out, resume=resume, checkpoint_seconds=0, device="cpu")


for line in sys.stdin:
    request = json.loads(line)
    kill_after = request.pop("kill_after")
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            train(**request)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    while not (status := os.waitpid(child, os.WNOHANG))[0]:
        if kill_after is not None and time.monotonic() - started > kill_after:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)
            break
        time.sleep(0.001)
    code, seconds = os.waitstatus_to_exitcode(status[1]), time.monotonic() - started
    print(json.dumps({"code": code, "seconds": seconds}), flush=True)
"""
KILLED = -9

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")


class Server:
    """`train` runs one training process to its end, or kills it after so many seconds."""

    def __init__(self) -> None:
        words = [sys.executable, "-c", SERVER]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def train(
        self, out: Path, graph: str, epochs: int, kill_after: float | None = None
    ) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        resume = (out / "config.json").exists()
        request = {
            "out": str(out),
            "graph": graph,
            "epochs": epochs,
            "resume": resume,
            "kill_after": kill_after,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["code"] == 0 or (answer["code"] == KILLED and kill_after is not None)
        return answer

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


def check_equal(out: Path, whole: Path) -> None:
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (out / "graph.json").read_bytes() == (whole / "graph.json").read_bytes()
    lines, expected = (
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (out, whole)
    )
    assert [{**line, "seconds": 0} for line in lines] == [
        {**line, "seconds": 0} for line in expected
    ]
    assert not list(out.rglob("*.tmp"))


def kill_and_resume(server: Server, out: Path, graph: str, epochs: int, delays: list[float]) -> int:
    """Kill after each of `delays`, then let it finish; return the number of effective kills."""
    kills = sum(server.train(out, graph, epochs, delay)["code"] == KILLED for delay in delays)
    server.train(out, graph, epochs)
    return kills


def test_two_kills_in_one_run_change_nothing(server: Server, tmp_path: Path) -> None:
    seconds = server.train(tmp_path / "whole", "given", 12)["seconds"]
    kills = kill_and_resume(server, tmp_path / "run", "given", 12, [0.5 * seconds, 0.3 * seconds])
    check_equal(tmp_path / "run", tmp_path / "whole")
    assert kills >= 1


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["given", "joint", "lagrangian"])
def test_kills_at_random_moments_change_nothing(graph: str, server: Server, tmp_path: Path) -> None:
    """27 kills in 16 runs: anywhere, at the start, at the end, and several in one run."""
    seconds = min(server.train(tmp_path / f"whole{i}", graph, 12)["seconds"] for i in range(2))
    check_equal(tmp_path / "whole1", tmp_path / "whole0")
    rng = np.random.default_rng(["given", "joint", "lagrangian"].index(graph))
    spans = (
        [[(0, 1)]] * 6
        + [[(0, 0.1)]] * 3
        + [[(0.85, 1.05)]] * 2
        + [[(0, 0.6)] * 2] * 3
        + [[(0, 0.4)] * 5] * 2
    )
    kills = 0
    for number, intervals in enumerate(spans):
        delays = [float(rng.uniform(low * seconds, high * seconds)) for low, high in intervals]
        kills += kill_and_resume(server, tmp_path / f"run{number}", graph, 12, delays)
        check_equal(tmp_path / f"run{number}", tmp_path / "whole0")
    assert kills >= 12  # the others came after the end
