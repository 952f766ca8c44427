"""Several trainings at once on one GPU: each in a thread with a stream of its own, so that small kernels of different runs overlap.

These models launch hundreds of kernels per step that fill a fraction of a large GPU each. A step captured as a CUDA graph needs the host for
one launch only, so one process keeps many of them busy. See `benchmarks/together.py` for what it gains, and for stacking seeds by vmap.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from intervae.errors import UsageError

MOST = 30  # torch hands out 32 streams in turn; two threads must never work on the same one


def run_together(tasks: Sequence[Callable[[], Any]], workers: int, device: str | torch.device = "cpu") -> Iterator[tuple[int, Any]]:
    """Call every task, `workers` at a time, and yield (its number, its result) as they end; one worker is the plain loop.

    A task that raises ends the whole: no further one is started, those that run are waited for, and the error is raised here.
    An interrupt from the keyboard does not wait.
    """
    if workers > MOST:
        raise UsageError(f"together={workers} runs at once are more than {MOST}; use fewer.")
    if workers <= 1:
        yield from ((number, task()) for number, task in enumerate(tasks))
        return
    _load_linear_algebra(device)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    stop = threading.Event()

    def work(stream: contextlib.AbstractContextManager[Any]) -> None:
        with stream:
            while not stop.is_set():
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    ended.put((number, tasks[number](), None))
                except BaseException as error:
                    stop.set()
                    ended.put((number, None, error))

    streams = [_own_stream(device) for _ in range(min(workers, len(tasks)))]
    threads = [threading.Thread(target=work, args=(stream,), daemon=True, name=f"run-{i}") for i, stream in enumerate(streams)]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            number, result, error = ended.get()
            if error is not None:
                for thread in threads:
                    thread.join()
                raise error
            yield number, result
    finally:
        stop.set()


def _load_linear_algebra(device: str | torch.device) -> None:
    """Torch loads its linear algebra for GPUs at the first use, and fails when two threads come first."""
    if torch.device(device).type == "cuda":
        torch.linalg.cholesky(torch.eye(2, device=device))


def _own_stream(device: str | torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.stream(torch.cuda.Stream(device)) if torch.device(device).type == "cuda" else contextlib.nullcontext()
