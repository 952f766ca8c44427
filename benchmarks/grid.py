"""A grid of tiny trainings on a local Ray cluster whose workers are killed at random.

    python benchmarks/grid.py --out benchmarks/results/grid     # needs the extra [ray]

Half of the trainings have one learning rate, half another. Each is a job with a checkpoint after
every epoch; a lost one goes on elsewhere. The table is compared with that of one process, number by
number, and the whole is then given again: nothing that is finished may start again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from conditions import conditions, footer, write_results

HELPERS = Path(__file__).parents[1] / "tests" / "helpers"
WORKERS = 2


def measure(folder: Path, trainings: int, epochs: int, kills: int) -> dict[str, Any]:
    sys.path.insert(0, str(HELPERS))  # and for the workers:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    from intervae.experiments import run_experiment
    from tiny_trainings import Killer, starts, tiny_trainings

    experiment = tiny_trainings(seeds=trainings // 2, epochs=epochs)

    def table(name: str, **options: Any) -> list[dict[str, Any]]:
        place = {"runs": folder / name / "runs", "results": folder / name / "results"}
        return run_experiment(experiment, device="cpu", **place, **options)["rows"]

    alone = table("alone")
    runs = folder / "grid" / "runs" / experiment.name
    killer = Killer(runs, kills)
    killer.start()
    with mock.patch("intervae.experiments.engines.ray_cluster._local_cpus", return_value=WORKERS):
        grid = table("grid", on="ray")
        killer.stop.set()
        killer.join()
        begun = starts(runs)
        again = table("grid", on="ray")
    pairs = [
        (row["per_seed"][seed], other["per_seed"][seed])
        for row, other in zip(alone, grid, strict=True)
        for seed in row["per_seed"]
    ]
    counts = Counter(start["run"] for start in begun)
    resumed = [start for start in begun if counts[start["run"]] > 1 and start["epochs"]]
    return {
        "trainings": len(counts),
        "workers": WORKERS,
        "epochs": epochs,
        "killed": len(killer.killed),
        "resumed_from_a_checkpoint": len(resumed),
        "numbers": len(pairs),
        "equal_numbers": sum(a == b for a, b in pairs),
        "started_again_after_the_end": len(starts(runs)) - len(begun),
        "same_table_again": again == grid,
    }


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    names = {key: key.replace("_", " ") for key in document["measured"]}
    return "\n".join(
        [
            "# A grid on Ray with killed workers",
            "",
            "Tiny VAEs on a local Ray cluster; workers get SIGKILL in the middle of a training.",
            "All numbers of the table are compared with those of one process.",
            "",
            "| what | measured |",
            "|---|---|",
            *(f"| {names[key]} | {value} |" for key, value in document["measured"].items()),
            "",
            *footer(document),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trainings", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    command = " ".join(["python", "benchmarks/grid.py", *sys.argv[1:]])
    document = conditions(command, ("ray",))
    with tempfile.TemporaryDirectory() as folder:
        document["measured"] = measure(
            Path(folder), options.trainings, options.epochs, options.kills
        )
    print(document["measured"])
    if options.out is not None:
        write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
