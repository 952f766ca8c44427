"""Counterfactuals per second of deep-scm, in batches of 128 pictures of 32x32 pixels.

python benchmarks/counterfactuals.py --out benchmarks/results/counterfactuals
python benchmarks/counterfactuals.py --device cuda --out benchmarks/results/counterfactuals_gpu

Whole calls of `model.counterfactual` with the labels of the pictures: abduction of variables and
picture, action, prediction. Networks are trained for one epoch of a
few pictures. The flow has the sizes of the experiment
counterfactual-morphomnist, hvae the published ones. Published hvae code makes 751 pictures a second
on an A100.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from conditions import conditions, footer, write_results

import intervae
from intervae.experiments.counterfactual_morphomnist import FLOW
from intervae.testing import ramps

BATCH, SIZE = 128, 32
PICTURES: dict[str, dict[str, Any]] = {
    "vae": {"picture": "vae"},
    "hvae": {"picture": "hvae"},
    "flow": FLOW,
}


def pictures_per_second(picture: str, device: str, repeats: int) -> dict[str, float]:
    """Return the median over calls of do(number) and of do(class)."""
    data = ramps((1, SIZE, SIZE), samples=3 * BATCH, kinds=("continuous", "binary"))
    settings = {**PICTURES[picture], "epochs": 1, "batch_size": 32}
    model = intervae.create("deep-scm", data, graph="empty", **settings)
    model.fit(data, seed=0, device=device, progress=False)
    index = torch.arange(BATCH) % len(data.train)
    images, labels = data.train.images[index].to(device), data.train.labels[index].to(device)
    number, binary = data.names
    speeds = {}
    for name, do in (
        ("do(number)", {number: labels[:, 0] + 0.5}),
        ("do(class)", {binary: 1 - labels[:, 1]}),
    ):
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            model.counterfactual(images, do, labels).cpu()
            seconds.append(time.perf_counter() - start)
        speeds[name] = BATCH / statistics.median(seconds[1:])
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    command = f"python benchmarks/counterfactuals.py --device {options.device} --out {options.out}"
    document = conditions(command)
    document["device"] = options.device
    document["machine"] = document["machine"].replace("one thread", f"{options.threads} threads")
    rows = {name: pictures_per_second(name, options.device, options.repeats) for name in PICTURES}
    document["pictures_per_second"] = rows
    lines = [
        "# Counterfactuals per second",
        "",
        f"Batches of {BATCH} pictures, {SIZE}x{SIZE}, device {options.device}.",
        "",
        "| picture | do(number) | do(class) |",
        "|---|---|---|",
        *(
            f"| {name} | {speeds['do(number)']:.0f} | {speeds['do(class)']:.0f} |"
            for name, speeds in rows.items()
        ),
        "",
        *footer(document),
    ]
    write_results(options.out, document, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
