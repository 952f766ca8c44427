"""CPU-seconds and memory of a training step of CT-VAE's transition layer, and the authors' seconds.

    python benchmarks/transition.py
    python benchmarks/transition.py --out benchmarks/results/transition    # also .json and .md

Sizes of the authors' configuration: 64 positions (one codebook of 64 codes on an 8 x 8 grid), 12
actions, batch 16; then four codebooks (256 positions); then the larger layers of
`intervae reproduce ctvae-table1`, with 64 positions.

The authors' code was measured on one CPU thread of a similar machine (13.8 M parameters): action
mode 4.8 CPU-seconds at batch 16; causal mode 6.8 CPU-seconds and 5.4 GB at batch 4, extrapolated to
batch 16 by a factor of 4. Ours are a forward and backward pass and the optimiser's step (Muon, the
default), which does not depend on the batch; `times less` is of both. Memory is the peak of the
process beyond its start; every case has its own process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from conditions import conditions, footer, write_results

from intervae.models import Model
from intervae.models.ct_vae.transition import CausalTransition
from intervae.models.phases import Player
from intervae.training.optimisers import make_optimiser

ACTIONS, BATCH = 12, 16
AUTHORS = {"action": (4.8, 16), "causal": (6.8, 4)}  # CPU-seconds, batch; 64 positions
AUTHORS_PARAMETERS, AUTHORS_PEAK = 13.8e6, 5.4  # GB in causal mode


class Case(NamedTuple):
    mode: str
    codebooks: int = 1
    codes: int = 64
    width: int = 128
    heads: int = 4
    rounds: int = 2
    hidden: int = 2

    @property
    def positions(self) -> int:
        return 64 * self.codebooks


LARGE = {"codes": 512, "width": 256, "heads": 8, "rounds": 3}  # most rows of ctvae-table1
LARGEST = {**LARGE, "width": 512, "rounds": 5, "hidden": 4}  # its Cars3D
CASES = [Case(mode, codebooks) for codebooks in (1, 4) for mode in AUTHORS] + [
    Case(mode, **sizes) for sizes in (LARGE, LARGEST) for mode in AUTHORS
]


def peak_bytes() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def measure(case: Case, steps: int) -> dict[str, float]:
    """Return the least CPU-seconds of `steps` passes and optimiser steps, and the peak in GB."""
    torch.set_num_threads(1)
    sizes = {"width": case.width, "heads": case.heads, "rounds": case.rounds, "hidden": case.hidden}
    layer = CausalTransition(case.positions, case.codebooks, case.codes, ACTIONS, **sizes)
    generator = torch.Generator().manual_seed(0)
    before, after = (
        torch.randint(case.codes, (BATCH, case.positions), generator=generator) for _ in range(2)
    )
    action = torch.randint(ACTIONS, (BATCH,), generator=generator)
    start, passes, optimiser_steps = peak_bytes(), [], []

    def backward() -> None:
        layer.zero_grad()
        begin = time.process_time()
        noise = layer.draw_noise(BATCH, generator, before.device)
        score = layer.score(before, after, action if case.mode == "action" else None, noise)
        (-score.log_likelihood + score.kl + score.norm + score.dependency).mean().backward()
        passes.append(time.process_time() - begin)

    for _ in range(steps):
        backward()
    peak = peak_bytes() - start
    optimiser = make_optimiser(
        cast(Model, layer), Player(backward, optimiser="muon", learning_rate=1e-4), on_gpu=False
    )
    for _ in range(steps):
        backward()  # the optimiser drops the gradients of matrices
        begin = time.process_time()
        optimiser.step()
        optimiser_steps.append(time.process_time() - begin)
    count = sum(parameter.numel() for parameter in layer.parameters())
    return {
        "parameters": count,
        "cpu_seconds": min(passes),
        "optimiser_cpu_seconds": min(optimiser_steps),
        "peak_gb": peak / 1e9,
    }


def authors_cost(case: Case) -> dict[str, Any]:
    """Return the authors' CPU-seconds, scaled to our batch, if they were measured."""
    if case.positions != 64:
        return {}
    seconds, batch = AUTHORS[case.mode]
    return {"authors": seconds * BATCH / batch, "authors_batch": batch}


HEADINGS = ["mode", "places", "codes", "width", "heads", "rounds", "hidden"]
HEADINGS += ["M parameters", "CPU-seconds", "optimiser's", "authors'", "times less", "peak GB"]


def cells(case: dict[str, Any]) -> list[str]:
    """Return a row under HEADINGS; a star marks extrapolated seconds."""
    authors = ["", ""]
    if "authors" in case:
        star = "" if case["authors_batch"] == BATCH else "*"
        authors = [
            f"{case['authors']:.1f}{star}",
            f"{case['authors'] / (case['cpu_seconds'] + case['optimiser_cpu_seconds']):.1f}{star}",
        ]
    sizes = [str(case[name]) for name in HEADINGS[:7]]
    ours = [
        f"{case['parameters'] / 1e6:.2f}",
        f"{case['cpu_seconds']:.3f}",
        f"{case['optimiser_cpu_seconds']:.3f}",
    ]
    return [*sizes, *ours, *authors, f"{case['peak_gb']:.2f}"]


def notes() -> list[str]:
    """Return the notes on the authors' numbers."""
    seconds, batch = AUTHORS["causal"]
    return [
        "The authors' seconds: one CPU thread of a similar machine, 64 positions, a step of their "
        f"model of {AUTHORS_PARAMETERS / 1e6:.1f} M parameters.",
        f"* Extrapolated: {seconds} CPU-seconds (and {AUTHORS_PEAK} GB) measured at batch {batch}, "
        f"times {BATCH // batch}.",
    ]


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a measured document."""
    lines = ["# A training step of the causal transition layer", ""]
    lines += [
        f"Batch {BATCH}, {ACTIONS} actions, one CPU thread: forward and backward pass, and the "
        "optimiser's step (Muon);",
        "`times less` is of both. Memory is the peak of the process beyond its start.",
        "The first four rows have the default sizes, the last four those of",
        "`intervae reproduce ctvae-table1` (width 512: Cars3D).",
        "",
    ]
    lines += [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    lines += [f"| {' | '.join(cells(case))} |" for case in document["cases"]]
    source, star = notes()
    return "\n".join([*lines, "", source, "", f"\\{star}", "", *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--steps", type=int, default=5, help="passes of each case, of which the fastest counts"
    )
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    arguments = parser.parse_args()
    document = conditions(" ".join(["python", "benchmarks/transition.py", *sys.argv[1:]])) | {
        "batch": BATCH,
        "actions": ACTIONS,
        "cases": [],
    }
    print(f"batch {BATCH}, {ACTIONS} actions, one thread")
    print("".join(f"{name:>{len(name) + 2}}" for name in HEADINGS))
    for case in CASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            measured = {
                **case._asdict(),
                "places": case.positions,
                **pool.apply(measure, (case, arguments.steps)),
                **authors_cost(case),
            }
        print(
            "".join(
                f"{cell:>{len(name) + 2}}"
                for name, cell in zip(HEADINGS, cells(measured), strict=True)
            ),
            flush=True,
        )
        document["cases"].append(measured)
    print("\n".join(notes()))
    if arguments.out is not None:
        write_results(arguments.out, document, page(document))


if __name__ == "__main__":
    main()
