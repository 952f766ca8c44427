"""Seconds and memory of a training step of the causal transition layer, one CPU thread, beside what the authors' code takes.

    python benchmarks/transition.py
    python benchmarks/transition.py --out benchmarks/results/transition    # also write transition.json and the page transition.md there

Sizes as in the authors' configuration: 64 places (one codebook of 64 codes on an 8 x 8 grid), 12 actions, batch 16; then four codebooks, 256 places.
The authors' code, measured on one CPU thread of a like machine: action mode 4.8 CPU-seconds at batch 16; causal mode 6.8 CPU-seconds and 5.4 GB at
batch 4. Memory is what the process holds at its peak, beyond what it held before the step; every case has a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from conditions import conditions, told

from intervae.causal.transition import CausalTransition
from intervae.files import write_json, write_text

ACTIONS, BATCH = 12, 16
THEIRS = {("action", 64): 4.8, ("causal", 64): 6.8 * 4}  # CPU-seconds at batch 16; the causal mode was measured at batch 4
CASES = [("action", 1), ("causal", 1), ("action", 4), ("causal", 4)]


def peak_bytes() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def measure(case: tuple[str, int], steps: int) -> tuple[float, float]:
    """CPU-seconds of the fastest of `steps` forward and backward passes, and the peak in GB."""
    mode, codebooks = case
    torch.set_num_threads(1)
    places = 64 * codebooks
    layer = CausalTransition(places, codebooks, 64, ACTIONS)
    generator = torch.Generator().manual_seed(0)
    before, after = (torch.randint(64, (BATCH, places), generator=generator) for _ in range(2))
    action = torch.randint(ACTIONS, (BATCH,), generator=generator)
    start, seconds = peak_bytes(), []
    for _ in range(steps):
        layer.zero_grad()
        begin = time.process_time()
        draw = layer.draw(BATCH, generator, before.device)
        score = layer.score(before, after, action if mode == "action" else None, draw)
        (-score.log_likelihood + score.kl + score.norm + score.dependency).mean().backward()
        seconds.append(time.process_time() - begin)
    return min(seconds), (peak_bytes() - start) / 1e9


def page(document: dict[str, Any]) -> str:
    """The markdown of a measured document; every number in it comes from there."""
    lines = ["# A training step of the causal transition layer", ""]
    lines += [f"Batch {BATCH}, {ACTIONS} actions, forward and backward, one CPU thread; the authors' code on a like machine."]
    lines += ["Memory is what the process holds at its peak, beyond what it held before.", ""]
    lines += ["| mode | places | CPU-seconds | authors' | times less | peak GB |", "|---|---|---|---|---|---|"]
    for case in document["cases"]:
        theirs = f"{case['authors']:.1f} | {case['authors'] / case['cpu_seconds']:.0f}" if "authors" in case else " | "
        lines.append(f"| {case['mode']} | {case['places']} | {case['cpu_seconds']:.3f} | {theirs} | {case['peak_gb']:.2f} |")
    return "\n".join([*lines, "", *told(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=5, help="passes of each case; the fastest counts")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    chosen = parser.parse_args()
    document = conditions(" ".join(["python", "benchmarks/transition.py", *sys.argv[1:]])) | {"batch": BATCH, "actions": ACTIONS, "cases": []}
    print(f"batch {BATCH}, {ACTIONS} actions, one thread")
    print(f"{'mode':8}{'places':>8}{'CPU-seconds':>13}{'authors':>9}{'times less':>12}{'peak GB':>9}")
    for mode, codebooks in CASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, memory = pool.apply(measure, ((mode, codebooks), chosen.steps))
        theirs = THEIRS.get((mode, 64 * codebooks))
        compared = f"{theirs:9.1f}{theirs / seconds:12.0f}" if theirs else f"{'-':>9}{'-':>12}"
        print(f"{mode:8}{64 * codebooks:8}{seconds:13.3f}{compared}{memory:9.2f}")
        case = {"mode": mode, "places": 64 * codebooks, "cpu_seconds": seconds, "peak_gb": memory}
        document["cases"].append({**case, "authors": theirs} if theirs else case)
    if chosen.out is not None:
        write_json(chosen.out.with_suffix(".json"), document)
        write_text(chosen.out.with_suffix(".md"), page(document))


if __name__ == "__main__":
    main()
