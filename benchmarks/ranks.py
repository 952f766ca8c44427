"""One training on two ranks of torchrun against one process, and with a rank that is killed.

    python benchmarks/ranks.py --out benchmarks/results/ranks

A VAE on 96 Pendulum pictures of 16 x 16, batches of 15 rows, so that the parts are unequal. The
ranks are CPU processes (gloo). All terms of all epochs of both splits are compared. The second
training has a checkpoint after every epoch; one of its ranks gets SIGKILL in the middle, torchrun
starts both again, and its log is compared with that of a training without a kill.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from conditions import conditions, footer, write_results

RANKS = 2
VAE = "train vae --data pendulum --data-option samples=96 --size 16 --set channels=4,4 " + (
    "--set hidden=16 --set batch_size=15 --no-evaluate --device cpu"
)
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
TORCHRUN += ["--max-restarts", "2", "-m"]
LOGGED = 5  # epochs before the kill


def start(out: Path, epochs: int, *, ranks: bool) -> subprocess.Popen[bytes]:
    """Start a training with a checkpoint after every epoch, on one process or on the ranks."""
    words = [*VAE.split(), "--epochs", str(epochs), "--set", "checkpoint_seconds=0"]
    command = [sys.executable, "-m", *(TORCHRUN if ranks else []), "intervae", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""}
    return subprocess.Popen(
        [*command, "--out", str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait(process: subprocess.Popen[bytes]) -> None:
    if process.wait(timeout=1800):
        sys.exit(f"a training ended with exit code {process.returncode}.")


def log(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def largest_difference(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> float:
    """Return the largest relative difference of a term in two logs of the same epochs."""
    differences = [
        abs(value - b[split][name]) / max(abs(value), 1e-12)
        for a, b in zip(one, other, strict=True)
        for split in ("train", "validation")
        for name, value in a[split].items()
    ]
    return max(differences)


def kill_a_rank(launcher: subprocess.Popen[bytes], run: Path) -> int:
    """Kill the last rank once some epochs are logged; return their number."""
    while len(log(run)) <= LOGGED:
        if launcher.poll() is not None:
            sys.exit("the training ended before a rank could be killed; give more --epochs.")
        time.sleep(0.02)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    ranks = [c for c in children if b"intervae" in Path(f"/proc/{c}/cmdline").read_bytes()]
    os.kill(int(ranks[-1]), signal.SIGKILL)
    return len(log(run))


def measure(folder: Path, epochs: int) -> dict[str, Any]:
    one, two, killed = folder / "one", folder / "two", folder / "killed"
    wait(start(one, epochs, ranks=False))
    wait(start(two, epochs, ranks=True))
    launcher = start(killed, epochs, ranks=True)
    at = kill_a_rank(launcher, killed)
    wait(launcher)
    numbers = [line["epoch"] for line in log(killed)]
    return {
        "ranks": RANKS,
        "epochs": epochs,
        "difference": largest_difference(log(one), log(two)),
        "killed_after_epoch": at,
        "epochs_once_each": sum(numbers.count(epoch) == 1 for epoch in range(1, epochs + 1)),
        "difference_to_no_kill": largest_difference(log(two), log(killed)),
    }


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    m = document["measured"]
    return "\n".join(
        [
            "# Ranks of torchrun",
            "",
            f"A VAE on Pendulum, 16 x 16, {m['epochs']} epochs of batches of 15 rows, on",
            f"{m['ranks']} CPU ranks (gloo); differences are the largest of any term of any epoch.",
            "",
            "| what | measured |",
            "|---|---|",
            f"| relative difference of {m['ranks']} ranks to one process | {m['difference']:.2g} |",
            f"| a rank is killed after epoch | {m['killed_after_epoch']} |",
            f"| epochs that are then logged once, of {m['epochs']} | {m['epochs_once_each']} |",
            f"| relative difference to no kill | {m['difference_to_no_kill']:.2g} |",
            "",
            *footer(document),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    document = conditions(" ".join(["python", "benchmarks/ranks.py", *sys.argv[1:]]))
    with tempfile.TemporaryDirectory() as folder:
        document["measured"] = measure(Path(folder), options.epochs)
    print(document["measured"])
    if options.out is not None:
        write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
