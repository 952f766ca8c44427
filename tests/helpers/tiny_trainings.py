"""Small trainings that log the processes that ran them, and a thread that kills those processes."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from intervae.experiments import Experiment, Job, Numbers
from intervae.models import create
from intervae.testing.data import ramps
from intervae.training import fit


@dataclass(frozen=True)
class TinyTraining(Job):
    """Train a VAE of 8 units on 32 images, with a checkpoint after every epoch.

    Each start writes a line to starts.jsonl of the run folder's parent: job and seed, process, and
    the number of epochs before.
    """

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        log = folder / "metrics.jsonl"
        start = {
            "run": folder.name,
            "process": os.getpid(),
            "epochs": len(log.read_text().splitlines()) if log.is_file() else 0,
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.parent / "starts.jsonl", "a") as file:
            file.write(json.dumps(start) + "\n")
        data = ramps((1, 8, 8), samples=48)
        model = create("vae", data, **self.settings)
        resume = (folder / "config.json").is_file()
        options = {"checkpoint_seconds": 0, "tensorboard": False, "threads": 1}
        result = fit(model, data, seed=seed, out=folder, device=device, resume=resume, **options)
        losses = [line["validation"]["loss"] for line in result.history]
        return {"last_loss": losses[-1], "best_loss": min(losses), "epochs": float(len(losses))}


def tiny_trainings(seeds: int, epochs: int) -> Experiment:
    """Return an experiment of two rows of tiny trainings."""
    settings = {
        "channels": [4],
        "hidden": 8,
        "latents": 2,
        "batch_size": 8,
        "epochs": epochs,
    }
    jobs = [
        TinyTraining("ramps", "vae", {}, {**settings, "learning_rate": rate}, f"rate {rate}")
        for rate in (1e-2, 1e-3)
    ]
    return Experiment("tiny", "Tiny", tuple(jobs), seeds, shown=("last_loss",))


def starts(runs: Path) -> list[dict[str, object]]:
    """Return the starts of trainings in a folder of runs, in order."""
    path = runs / "starts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


class Killer(threading.Thread):
    """Kills processes at random in the middle of their trainings."""

    def __init__(self, runs: Path, kills: int) -> None:
        super().__init__(daemon=True)
        self.runs, self.left, self.killed = runs, kills, set[object]()
        self.random, self.stop = random.Random(5), threading.Event()

    def run(self) -> None:
        while self.left and not self.stop.is_set():
            time.sleep(0.02)
            for start in starts(self.runs)[-2:]:
                folder = self.runs / str(start["run"])
                log = folder / "metrics.jsonl"
                training = log.is_file() and log.stat().st_size > 0
                ended = (folder / "model.safetensors").is_file() or start["process"] in self.killed
                if not training or ended or not self.left or self.random.random() > 0.05:
                    continue
                os.kill(int(str(start["process"])), signal.SIGKILL)
                self.killed.add(start["process"])
                self.left -= 1
