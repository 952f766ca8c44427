"""How many threads discovery uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


class _Limit:
    """The limit of this process, set by the first block and undone by the last one."""

    def __init__(self) -> None:
        self.lock, self.blocks = threading.Lock(), 0
        self.undo = ExitStack()

    def enter(self) -> None:
        from threadpoolctl import threadpool_limits

        with self.lock:
            if not self.blocks:
                self.undo.callback(torch.set_num_threads, torch.get_num_threads())
                self.undo.enter_context(threadpool_limits(limits=1, user_api="blas"))
                torch.set_num_threads(1)
            self.blocks += 1

    def leave(self) -> None:
        with self.lock:
            self.blocks -= 1
            if not self.blocks:
                self.undo.close()


_LIMIT = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch and linear algebra on one thread, which is fastest for steps on small matrices.

    With all threads of 16 cores `independence` took three times as long. Blocks of several threads
    may overlap.
    """
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()
