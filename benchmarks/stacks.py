"""Several seeds as one stack, compared with single runs one after the other and side by side.

    python benchmarks/stacks.py                                     # small, 3 minutes on one thread
    python benchmarks/stacks.py --out benchmarks/results/stacks     # also stacks.json and .md
    python benchmarks/stacks.py --device cuda --seeds 10 32 --out benchmarks/results/stacks_gpu

Each row is a whole call of `fit_seeds` with its start-up: CPU-seconds of the process on a CPU, wall
seconds and the peak of allocated memory on a GPU, where the seconds of an epoch without start-up
and capture are also given. Times are for all seeds together.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from conditions import conditions, footer, write_results

from intervae.data import Dataset, load_data
from intervae.models import create
from intervae.models.base import Model
from intervae.training import SeedRun, fit_seeds

Case = tuple[str, str, dict[str, Any], dict[str, Any]]  # title, model, data options, settings
CPU_CASES: list[Case] = [
    ("CausalVAE, convolutions, 32 x 32", "causal-vae", {"size": 32, "samples": 900}, {}),
    ("CausalVAE, dense, 32 x 32", "causal-vae", {"size": 32, "samples": 900}, {"network": "mlp"}),
    (
        "beta-VAE, few channels, 16 x 16, batch 16",
        "beta-vae",
        {"size": 16, "samples": 900},
        {"channels": (4, 4), "hidden": 16, "batch_size": 16},
    ),
]
GPU_CASES: list[Case] = [
    ("CausalVAE, convolutions, 96 x 96", "causal-vae", {"size": 96}, {}),
    ("CausalVAE, dense, 96 x 96", "causal-vae", {"size": 96}, {"network": "mlp"}),
    ("beta-VAE, convolutions, 96 x 96", "beta-vae", {"size": 96}, {}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[8])
    parser.add_argument("--epochs", type=int, default=0, help="3 on a CPU, 16 on a GPU")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    on_gpu = options.device != "cpu"
    epochs = options.epochs or (16 if on_gpu else 3)
    if not on_gpu:
        torch.set_num_threads(1)
    rows = []
    for title, name, data_options, settings in GPU_CASES if on_gpu else CPU_CASES:
        data = load_data("pendulum", **data_options)
        model = make_model(name, data, epochs, settings)
        train(model, data, range(2), "stack", options.device)  # what the first call loads
        for count in options.seeds:
            alone = None
            for way in ("one after the other", "side by side", "stack"):
                if way == "side by side" and not on_gpu:
                    continue
                row = measure(model, data, count, way, options.device)
                alone = alone or row["seconds"]
                rows.append({"case": title, "epochs": epochs, **row})
                rows[-1]["speed_up"] = round(alone / row["seconds"], 2)
                print(rows[-1], flush=True)
    command = " ".join(["python", "benchmarks/stacks.py", *sys.argv[1:]])
    document = {**conditions(command), "device": describe_device(options.device), "rows": rows}
    text = page(document)
    print(text)
    if options.out:
        write_results(options.out, document, text)


def make_model(name: str, data: Dataset, epochs: int, settings: dict[str, Any]) -> Model:
    graph = {"graph": data.graph} if name == "causal-vae" else {}
    return create(name, data, epochs=epochs, patience=None, **graph, **settings)


def train(
    model: Model, data: Dataset, seeds: range, way: str, device: str, **options: Any
) -> list[SeedRun]:
    """Train the seeds in one of the three ways."""
    if way == "one after the other":
        return [
            SeedRun(run.seed, run.model, run.result)
            for seed in seeds
            for run in fit_seeds(model, data, seeds=[seed], device=device, **options)
        ]
    return fit_seeds(model, data, seeds=seeds, device=device, stack=way == "stack", **options)


def measure(model: Model, data: Dataset, count: int, way: str, device: str) -> dict[str, Any]:
    """Return the times of one way to train `count` seeds, and what it said."""
    on_gpu = device != "cpu"
    clock: Callable[[], float] = time.perf_counter if on_gpu else time.process_time
    notes: list[str] = []
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    begin = clock()
    runs = train(model, data, range(count), way, device, notify=notes.append)
    row: dict[str, Any] = {"seeds": count, "way": way, "seconds": round(clock() - begin, 2)}
    if on_gpu:
        spans = [steady_epoch(run) for run in runs]
        row["epoch_seconds"] = round(sum(spans) if way == "one after the other" else max(spans), 4)
        row["memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    losses = [run.result.history[-1].get("validation", {}).get("loss") for run in runs]
    return {**row, "losses": [loss and round(loss, 3) for loss in losses], "notes": notes}


def steady_epoch(run: SeedRun) -> float:
    """Return the seconds of an epoch after the first."""
    times = [line["seconds"] for line in run.result.history if "train" in line]
    return float((times[-1] - times[0]) / (len(times) - 1))


def describe_device(device: str) -> str:
    return torch.cuda.get_device_name() if device != "cpu" else "CPU, one thread"


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of the results."""
    on_gpu = "epoch_seconds" in document["rows"][0]
    unit = "wall seconds" if on_gpu else "CPU-seconds"
    more = " seconds of an epoch | memory, GiB |" if on_gpu else ""
    lines = [
        "# Several seeds as one stack",
        "",
        f"Whole calls of `fit_seeds` on Pendulum, {document['rows'][0]['epochs']} epochs, "
        f"{document['device']}.",
        "",
        f"| case | seeds | way | {unit} |{more} ratio |",
        "|---|---|---|---|" + ("---|---|" if on_gpu else "") + "---|",
    ]
    for row in document["rows"]:
        cells = [row["case"], row["seeds"], row["way"], row["seconds"]]
        cells += [row["epoch_seconds"], row["memory_gib"]] if on_gpu else []
        lines.append(f"| {' | '.join(map(str, [*cells, row['speed_up']]))} |")
    notes = sorted({note for row in document["rows"] for note in row["notes"]})
    return "\n".join([*lines, "", *notes, *([""] if notes else []), *footer(document)]) + "\n"


if __name__ == "__main__":
    main()
