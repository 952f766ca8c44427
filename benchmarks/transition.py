"""Seconds and memory of a training step of the causal transition layer, one CPU thread, beside what the authors' code takes.

    python benchmarks/transition.py
    python benchmarks/transition.py --out benchmarks/results/transition    # also write transition.json and the page transition.md there

Sizes as in the authors' configuration: 64 places (one codebook of 64 codes on an 8 x 8 grid), 12 actions, batch 16; then four codebooks, 256 places;
then the larger layers that `intervae reproduce ctvae-table1` trains (most of its rows, and Cars3D), with 64 places again.
The authors' code, measured on one CPU thread of a like machine, a step of their model of 13.8 M parameters: action mode 4.8 CPU-seconds at batch 16;
causal mode 6.8 CPU-seconds and 5.4 GB at batch 4. So the causal figure at batch 16, four times as many seconds, is an extrapolation. Ours are a
forward and backward pass and, beside it, the optimiser's step (Muon, the default), which takes as long for any batch; `times less` is of both.
Memory is what the process holds at its peak, beyond what it held before the passes; every case has a process of its own.
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
from conditions import conditions, told, write

from intervae.causal.transition import CausalTransition
from intervae.models import Model
from intervae.models.phases import Player
from intervae.training.stepper import make_optimiser

ACTIONS, BATCH = 12, 16
THEIRS = {"action": (4.8, 16), "causal": (6.8, 4)}  # CPU-seconds of the authors' code with 64 places, and the batch that they were measured at
PARAMETERS, PEAK = 13.8e6, 5.4  # of the authors' model; GB of its causal mode at that batch


class Case(NamedTuple):
    mode: str
    codebooks: int = 1
    codes: int = 64
    width: int = 128
    heads: int = 4
    rounds: int = 2
    hidden: int = 2

    @property
    def places(self) -> int:
        return 64 * self.codebooks


LARGE = {"codes": 512, "width": 256, "heads": 8, "rounds": 3}  # most rows of ctvae-table1
LARGEST = {**LARGE, "width": 512, "rounds": 5, "hidden": 4}  # its Cars3D
CASES = [Case(mode, codebooks) for codebooks in (1, 4) for mode in THEIRS] + [Case(mode, **sizes) for sizes in (LARGE, LARGEST) for mode in THEIRS]


def peak_bytes() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def measure(case: Case, steps: int) -> dict[str, float]:
    """CPU-seconds of the fastest of `steps` forward and backward passes, and of the optimiser's steps; the peak of the passes in GB."""
    torch.set_num_threads(1)
    sizes = {"width": case.width, "heads": case.heads, "rounds": case.rounds, "hidden": case.hidden}
    layer = CausalTransition(case.places, case.codebooks, case.codes, ACTIONS, **sizes)
    generator = torch.Generator().manual_seed(0)
    before, after = (torch.randint(case.codes, (BATCH, case.places), generator=generator) for _ in range(2))
    action = torch.randint(ACTIONS, (BATCH,), generator=generator)
    start, passes, moves = peak_bytes(), [], []

    def backward() -> None:
        layer.zero_grad()
        begin = time.process_time()
        draw = layer.draw(BATCH, generator, before.device)
        score = layer.score(before, after, action if case.mode == "action" else None, draw)
        (-score.log_likelihood + score.kl + score.norm + score.dependency).mean().backward()
        passes.append(time.process_time() - begin)

    for _ in range(steps):
        backward()
    peak = peak_bytes() - start
    optimiser = make_optimiser(cast(Model, layer), Player(backward, optimiser="muon", learning_rate=1e-4), on_gpu=False)
    for _ in range(steps):
        backward()  # as a step leaves matrices without a gradient
        begin = time.process_time()
        optimiser.step()
        moves.append(time.process_time() - begin)
    count = sum(parameter.numel() for parameter in layer.parameters())
    return {"parameters": count, "cpu_seconds": min(passes), "optimiser_cpu_seconds": min(moves), "peak_gb": peak / 1e9}


def authors(case: Case) -> dict[str, Any]:
    """The authors' CPU-seconds at our batch and how they were come by; nothing where theirs were not measured."""
    if case.places != 64:
        return {}
    seconds, batch = THEIRS[case.mode]
    return {"authors": seconds * BATCH / batch, "authors_batch": batch}


HEADINGS = ["mode", "places", "codes", "width", "heads", "rounds", "hidden"]
HEADINGS += ["M parameters", "CPU-seconds", "optimiser's", "authors'", "times less", "peak GB"]


def cells(case: dict[str, Any]) -> list[str]:
    """A row under HEADINGS; a star where the authors' seconds are extrapolated."""
    theirs = ["", ""]
    if "authors" in case:
        star = "" if case["authors_batch"] == BATCH else "*"
        theirs = [f"{case['authors']:.1f}{star}", f"{case['authors'] / (case['cpu_seconds'] + case['optimiser_cpu_seconds']):.1f}{star}"]
    sizes = [str(case[name]) for name in HEADINGS[:7]]
    ours = [f"{case['parameters'] / 1e6:.2f}", f"{case['cpu_seconds']:.3f}", f"{case['optimiser_cpu_seconds']:.3f}"]
    return [*sizes, *ours, *theirs, f"{case['peak_gb']:.2f}"]


def notes() -> list[str]:
    """What the authors' numbers are."""
    seconds, batch = THEIRS["causal"]
    return [
        f"The authors' seconds: one CPU thread of a like machine, 64 places, a step of their model of {PARAMETERS / 1e6:.1f} M parameters.",
        f"* An extrapolation: {seconds} CPU-seconds (and {PEAK} GB) measured at batch {batch}, times {BATCH // batch}.",
    ]


def page(document: dict[str, Any]) -> str:
    """The markdown of a measured document."""
    lines = ["# A training step of the causal transition layer", ""]
    lines += [f"Batch {BATCH}, {ACTIONS} actions, forward and backward, and the optimiser's step (Muon); `times less` is of both. One CPU thread."]
    lines += ["Memory is what the process holds at its peak, beyond what it held before."]
    lines += [
        "The first four rows have the default sizes, the last four those of `intervae reproduce ctvae-table1` (512 wide: Cars3D).",
        "",
    ]
    lines += [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    lines += [f"| {' | '.join(cells(case))} |" for case in document["cases"]]
    about, star = notes()
    return "\n".join([*lines, "", about, "", f"\\{star}", "", *told(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=5, help="passes of each case; the fastest counts")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    chosen = parser.parse_args()
    document = conditions(" ".join(["python", "benchmarks/transition.py", *sys.argv[1:]])) | {"batch": BATCH, "actions": ACTIONS, "cases": []}
    print(f"batch {BATCH}, {ACTIONS} actions, one thread")
    print("".join(f"{name:>{len(name) + 2}}" for name in HEADINGS))
    for case in CASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = {**case._asdict(), "places": case.places, **pool.apply(measure, (case, chosen.steps)), **authors(case)}
        print("".join(f"{cell:>{len(name) + 2}}" for name, cell in zip(HEADINGS, cells(found), strict=True)), flush=True)
        document["cases"].append(found)
    print("\n".join(notes()))
    if chosen.out is not None:
        write(chosen.out, document, page(document))


if __name__ == "__main__":
    main()
