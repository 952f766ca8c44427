"""Fraction of the roofline that a training step reaches: large batch, wide decoder, bf16.

python benchmarks/roofline.py --device cuda --out benchmarks/results/roofline
python benchmarks/roofline.py --batch 8 --size 16 --channels 8,16 --steps 2   # tiny, on a CPU

How it is counted. Floating-point operations are those of all matrix products and convolutions of
one eager step, forward and backward (torch.utils.flop_counter). Bytes are what the operators of
that step read and write, each input and output once; views and allocations cost nothing. Fusing
operators would need fewer bytes, so this is the bound of the step as it is written. The time is the
median of captured steps (CUDA graph; eager on a CPU), between device synchronisations. A step
cannot be faster than operations / peak or bytes / bandwidth; the larger of the two is the roofline,
and the fraction is that bound divided by the time. Peaks are the data sheet's for a known GPU;
elsewhere they are those of a large matrix product and of a copy, measured here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conditions import conditions, footer, write_results
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import intervae
from intervae.training.stepper import Stepper

GOAL = 0.4  # of the roofline
PEAKS = {"H200": (989.5e12, 4.8e12), "H100": (989.5e12, 3.35e12)}
"""Name of a GPU -> dense bf16 operations per second, bytes per second (SXM data sheets)."""
FREE = (
    "empty",
    "detach",
    "lift_fresh",
    "_unsafe_view",
    "_reshape_alias",
)  # operators that move no data, beside views


class TrafficCounter(TorchDispatchMode):
    """Sums the bytes that operators read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Any = (), settings: Any = None
    ) -> Any:
        result = operator(*arguments, **(settings or {}))
        name = operator.name().removeprefix("aten::")
        if not (operator.is_view or name.startswith(FREE)):
            tensors = [
                leaf
                for leaf in tree_leaves((arguments, settings or {}, result))
                if isinstance(leaf, torch.Tensor)
            ]
            distinct = {(t.data_ptr(), t.numel()): t.numel() * t.element_size() for t in tensors}
            self.bytes += sum(distinct.values())
        return result


def make_stepper(
    batch: int, size: int, channels: tuple[int, ...], device: str, *, capture: bool
) -> Stepper:
    """Return the steps of a CausalVAE on random pictures of four variables."""
    rng = np.random.default_rng(0)
    rows = 3 * batch
    images = rng.integers(0, 256, (rows, 3, size, size), dtype=np.uint8)
    labels = rng.normal(size=(rows, 4))
    variables = [intervae.Variable(name) for name in "abcd"]
    data = intervae.build_dataset("noise", images, labels, variables)
    edges = "a -> c, b -> c, c -> d"
    model = intervae.create(
        "causal-vae", data, graph=edges, channels=channels, batch_size=batch, hidden=1024
    )
    model.initialise(0)
    model.to(device)
    (phase,) = [phase for phase in model.phases() if phase.epochs > 0]
    if phase.prepare is not None:
        phase.prepare(data, 0)
    return Stepper(
        model, phase, data.train.to(torch.device(device)), batch, cuda_graph=capture, bf16=True
    )


def count(stepper: Stepper) -> tuple[int, int]:
    """Return floating-point operations and bytes of one eager step."""
    stepper.try_step()  # makes the optimiser's state
    with FlopCounterMode(display=False) as operations:
        stepper.try_step()
    with TrafficCounter() as traffic:
        stepper.try_step()
    return operations.get_total_flops(), traffic.bytes


def measured_peaks(device: str) -> tuple[float, float]:
    """Return operations per second of a matrix product in bf16, and bytes per second of a copy."""
    n = 4096 if device == "cuda" else 512
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    b = torch.empty(2**26 // 4, device=device)
    product = seconds_of(lambda: a @ a, device, 5)
    copy = seconds_of(lambda: b.clone(), device, 5)
    return 2 * n**3 / product, 2 * b.numel() * b.element_size() / copy


def seconds_of(work: Any, device: str, repeats: int) -> float:
    """Return the median seconds of a call, after two that do not count."""
    times = []
    for _ in range(repeats + 2):
        synchronise(device)
        started = time.perf_counter()
        work()
        synchronise(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return counts, time and fractions of the step."""
    device = options.device
    shape = (options.batch, options.size, options.channels, device)
    operations, traffic = count(make_stepper(*shape, capture=False))
    stepper = make_stepper(*shape, capture=True)
    work = stepper.try_step
    if stepper.graph is not None:

        def work() -> None:
            stepper.position.zero_()
            stepper.graph.replay()

    seconds = seconds_of(work, device, options.steps)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    known = next((peaks for part, peaks in PEAKS.items() if part in name), None)
    peak, bandwidth = known or measured_peaks(device)
    compute, memory = operations / peak, traffic / bandwidth
    return {
        "device": name,
        "batch": options.batch,
        "size": options.size,
        "channels": list(options.channels),
        "precision": "bf16",
        "captured": stepper.graph is not None,
        "operations": operations,
        "bytes": traffic,
        "step_seconds": seconds,
        "peak_operations_per_second": peak,
        "bytes_per_second": bandwidth,
        "peaks_from": "data sheet" if known else "measured here",
        "binding": "compute" if compute > memory else "memory",
        "fraction_of_compute": compute / seconds,
        "fraction_of_memory": memory / seconds,
        "fraction": max(compute, memory) / seconds,
        "goal": GOAL,
    }


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    step = document["step"]
    lines = ["# Fraction of the roofline", "", *(__doc__ or "").split("\n\n", 2)[2].splitlines()]
    lines += ["", "| what | value |", "|---|---|"]
    lines += [f"| {key.replace('_', ' ')} | {value} |" for key, value in step.items()]
    return "\n".join([*lines, "", *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument(
        "--channels",
        type=lambda text: tuple(map(int, text.split(","))),
        default=(128, 256, 512, 512),
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    command = " ".join(["python", "benchmarks/roofline.py", *sys.argv[1:]])
    document = conditions(command) | {"step": measure(options)}
    print(document["step"])
    if options.out is not None:
        write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
