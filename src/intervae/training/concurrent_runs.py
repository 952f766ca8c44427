"""Concurrent trainings on one GPU: each in a thread with its own CUDA stream.

A training step of a small model launches hundreds of kernels, each of which fills a fraction of a
large GPU. A step captured as a CUDA graph needs the host for a single launch, so one process can
keep many runs busy. For measurements see benchmarks/concurrent_runs.py.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from intervae.errors import UsageError

MAX_WORKERS = 30  # torch has a pool of 32 streams; two threads must not share one


def run_concurrently(
    tasks: Sequence[Callable[[], Any]], workers: int, device: str | torch.device = "cpu"
) -> Iterator[tuple[int, Any]]:
    """Call every task, `workers` at a time, and yield (index, result) as they end.

    One worker is a plain loop. If a task raises an error, no further task is started, the running
    ones are awaited, and the error is raised here. A keyboard interrupt does not wait.
    """
    if workers > MAX_WORKERS:
        raise UsageError(f"concurrent={workers} runs are more than {MAX_WORKERS}; use fewer.")
    if workers <= 1:
        yield from ((index, task()) for index, task in enumerate(tasks))
        return
    _load_linear_algebra(device)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
    for index in range(len(tasks)):
        waiting.put(index)
    stop = threading.Event()

    def work(stream: contextlib.AbstractContextManager[Any]) -> None:
        with stream:
            while not stop.is_set():
                try:
                    index = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    ended.put((index, tasks[index](), None))
                except BaseException as error:
                    stop.set()
                    ended.put((index, None, error))

    streams = [_new_stream(device) for _ in range(min(workers, len(tasks)))]
    threads = [
        threading.Thread(target=work, args=(stream,), daemon=True, name=f"run-{i}")
        for i, stream in enumerate(streams)
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            index, result, error = ended.get()
            if error is not None:
                for thread in threads:
                    thread.join()
                raise error
            yield index, result
    finally:
        stop.set()


def _load_linear_algebra(device: str | torch.device) -> None:
    """Load torch's linear algebra for GPUs, which is not thread-safe at its first use."""
    if torch.device(device).type == "cuda":
        torch.linalg.cholesky(torch.eye(2, device=device))


def _new_stream(device: str | torch.device) -> contextlib.AbstractContextManager[Any]:
    if torch.device(device).type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))
