"""Timed steps before a phase on a CPU: the number of threads, and an estimate of the time.

The steps are undone, so that the weights after training do not depend on whether they were timed.
They do depend on the number of threads, by which torch groups its sums; it is stored in
checkpoints and config.json, and a resumed run uses it again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import torch

from intervae.data import Dataset
from intervae.models.base import Model
from intervae.models.phases import Phase
from intervae.training.stepper import Stepper

VARIABLE = "OMP_NUM_THREADS"  # environment variable; where it is set, its number of threads is used
MIN_STEPS = 200  # a shorter phase is not timed
SECONDS = 0.4  # of timed steps per number of threads
LONG_STEP = 3.0  # seconds of a first step that is not repeated
GAIN = 0.8  # fewer threads are used if their steps take at most this fraction of the time
VALIDATION_COST = 1 / 3  # of a sample, relative to its training step


class Timing(NamedTuple):
    """Chosen number of threads, and seconds of an epoch; None where it was not timed."""

    threads: int
    epoch_seconds: float | None


def time_phase(
    model: Model,
    phase: Phase,
    data: Dataset,
    batch_size: int,
    *,
    bf16: bool,
    threads: int | None,
    timed: bool = True,
) -> Timing:
    """Time a few steps of a phase, on several numbers of threads unless `threads` is given.

    torch is left with the chosen number of threads. Without `timed` it is `threads`, else the
    present one.
    """
    current = torch.get_num_threads()
    steps = len(data.train) // batch_size
    if not timed or data.train.device.type != "cpu" or steps * phase.epochs < MIN_STEPS:
        torch.set_num_threads(threads or current)
        return Timing(threads or current, None)
    free = (
        threads is None
        and VARIABLE not in os.environ
        and threading.current_thread() is threading.main_thread()
    )
    candidates = thread_counts(current) if free else [threads or current]
    with undone(model):
        stepper = Stepper(model, phase, data.train, batch_size, cuda_graph=False, bf16=bf16)
        seconds = {count: _step_seconds(stepper, count) for count in candidates}
    chosen = choose_threads(seconds)
    torch.set_num_threads(chosen)
    validation = VALIDATION_COST * len(data.validation) / batch_size
    return Timing(chosen, seconds[chosen] * (steps + validation))


@contextmanager
def own_arithmetic(precision: str) -> Iterator[None]:
    """Set the precision of matrix products for a run; restore it and the number of threads."""
    matmul, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    try:
        if precision == "tf32":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.set_num_threads(threads)


def thread_counts(most: int) -> list[int]:
    """Return `most` and the powers of two below it, the largest first."""
    powers = [2**i for i in range(most.bit_length()) if 2**i < most]
    return [most, *reversed(powers)]


def choose_threads(seconds: dict[int, float]) -> int:
    """Return the fastest number of threads; the largest unless another is clearly faster."""
    fastest, most = min(seconds, key=lambda count: seconds[count]), max(seconds)
    return fastest if seconds[fastest] <= GAIN * seconds[most] else most


def _step_seconds(stepper: Stepper, threads: int) -> float:
    torch.set_num_threads(threads)
    times: list[float] = []
    while not times or (len(times) < 20 and sum(times[1:]) < SECONDS and times[0] < LONG_STEP):
        start = time.perf_counter()
        stepper.try_step()
        times.append(time.perf_counter() - start)
    return median(times[1:] or times)  # the first also allocates memory


@contextmanager
def undone(model: Model) -> Iterator[None]:
    """Restore the weights and buffers of a model, and torch's generator."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.copy_(before[name])
        model.zero_grad(set_to_none=True)


def describe_time(seconds: float) -> str:
    """Return a time in words, such as `about 3 min`."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
