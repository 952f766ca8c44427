"""`read_ahead`: images of the next batches of packed data, read from the disk by a thread."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data import MappedSplit

AHEAD_BYTES = 2**26  # of the batches that wait
MOST_AHEAD = 16  # batches


def read_ahead(split: MappedSplit, batches: Sequence[Tensor]) -> Generator[Tensor]:
    """Yield the images (B, ...) uint8 of each batch of rows, in order, on the host.

    A thread reads the next batches meanwhile. For a GPU they are in pinned memory: a batch may be
    copied from without waiting until the one after it is taken, on the current stream.

    Arguments:
        batches: row numbers (B,) of the split, on any device.
    """
    stored = split.stored_rows
    rows = [stored[batch.cpu().numpy()] for batch in batches]
    largest = max((len(each) for each in rows), default=0)
    batch_bytes = max(1, largest * split.shards.row_bytes)
    ahead = min(MOST_AHEAD, max(2, AHEAD_BYTES // batch_bytes))
    make = _pinned if split.device.type == "cuda" else _pageable
    buffers = make((largest, *split.shards.shape), ahead, split.device)
    with _in_thread(_reader(split, rows, buffers), ahead) as results:
        for images, release in results:
            yield images
            release()


def _reader(
    split: MappedSplit, rows: Sequence[np.ndarray], buffers: Iterator[Any]
) -> Iterator[tuple[Tensor, Callable[[], None]]]:
    for each in rows:
        buffer, release = next(buffers)
        images = buffer[: len(each)]
        split.shards.read(each, images.numpy())
        yield images, release


def _pageable(shape: tuple[int, ...], *_: Any) -> Iterator[tuple[Tensor, Callable[[], None]]]:
    """Yield a new buffer for each batch: the caller may keep it."""
    while True:
        yield torch.empty(shape, dtype=torch.uint8), lambda: None


def _pinned(
    shape: tuple[int, ...], ahead: int, device: torch.device
) -> Iterator[tuple[Tensor, Callable[[], None]]]:
    """Yield pinned buffers in turn, each again after the GPU has copied from it.

    Two more than wait: one is being filled and one is in use. The event of a buffer is recorded
    when its user takes the next batch, so when the turn comes round it has been recorded.
    """
    buffers = [torch.empty(shape, dtype=torch.uint8).pin_memory() for _ in range(ahead + 2)]
    events = [torch.cuda.Event() for _ in buffers]
    number = 0
    while True:
        events[number].synchronize()  # at once for one that was never recorded
        yield buffers[number], functools.partial(_record, events[number], device)
        number = (number + 1) % len(buffers)


def _record(event: torch.cuda.Event, device: torch.device) -> None:
    event.record(torch.cuda.current_stream(device))


@contextlib.contextmanager
def _in_thread(items: Iterator[Any], ahead: int) -> Iterator[Iterator[Any]]:
    """Run an iterator in a thread, `ahead` items ahead of its use; the thread ends with the block.

    An error in the thread is raised where its item would be.
    """
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=ahead)
    stopped = threading.Event()

    def put(kind: str, item: Any) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put((kind, item), timeout=0.1)
                return

    def work() -> None:
        try:
            for item in items:
                put("item", item)
                if stopped.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    def take() -> Iterator[Any]:
        while True:
            kind, item = waiting.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item

    thread = threading.Thread(target=work, name="read-ahead", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        stopped.set()
        with contextlib.suppress(queue.Empty):
            while True:
                waiting.get_nowait()
        thread.join()
