"""`read_ahead`: images of the next batches of packed data, read from the disk by a thread."""

from __future__ import annotations

import contextlib
import functools
import itertools
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

    A thread reads the next batches meanwhile, into a ring of buffers: a batch is overwritten some
    time after the next one is taken. For a GPU they are in pinned memory, and a copy that was
    started on the current stream before then is waited for.

    Arguments:
        batches: row numbers (B,) of the split, on any device.
    """
    stored = split.stored_rows
    rows = [stored[batch.cpu().numpy()] for batch in batches]
    largest = max((len(each) for each in rows), default=0)
    batch_bytes = max(1, largest * split.shards.row_bytes)
    ahead = min(MOST_AHEAD, max(2, AHEAD_BYTES // batch_bytes))
    buffers = _buffers((largest, *split.shards.shape), ahead, split.device)
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


def _buffers(
    shape: tuple[int, ...], ahead: int, device: torch.device
) -> Iterator[tuple[Tensor, Callable[[], None]]]:
    """Yield buffers in turn, each with a function to call when its user takes the next batch.

    Two more than wait: one is being filled and one is in use. A pinned one comes again after the
    GPU has copied from it; its event has been recorded by the time its turn comes.
    """
    pinned = device.type == "cuda"
    buffers = [torch.empty(shape, dtype=torch.uint8) for _ in range(ahead + 2)]
    if not pinned:
        yield from ((buffer, lambda: None) for buffer in itertools.cycle(buffers))
    buffers = [buffer.pin_memory() for buffer in buffers]
    events = [torch.cuda.Event() for _ in buffers]
    for buffer, event in itertools.cycle(zip(buffers, events, strict=True)):
        event.synchronize()  # at once for one that was never recorded
        yield buffer, functools.partial(_record, event, device)


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
