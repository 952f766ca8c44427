"""How many threads discovery uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Inside(threading.local):
    """Whether this thread is in a block."""

    value = False


class _Limit:
    """The limit of linear algebra, which all threads share."""

    def __init__(self) -> None:
        self.lock, self.held = threading.Lock(), False
        self.torch_threads = 1  # before it was set


_INSIDE, _LIMIT = _Inside(), _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch and linear algebra on one thread, which is fastest for steps on small matrices.

    With all threads of 16 cores `independence` took three times as long. Of overlapping blocks in
    several threads the first one sets the limit of linear algebra and undoes it at its own end;
    the others may then use more. As a decorator it limits a function.
    """
    from threadpoolctl import threadpool_limits

    if _INSIDE.value:
        yield
        return
    with _LIMIT.lock:
        holds = not _LIMIT.held
        if holds:
            _LIMIT.held, _LIMIT.torch_threads = True, torch.get_num_threads()
            limit = threadpool_limits(limits=1, user_api="blas")
        torch_threads = _LIMIT.torch_threads
    _INSIDE.value = True
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(torch_threads)
        _INSIDE.value = False
        if holds:
            with _LIMIT.lock:
                limit.restore_original_limits()
                _LIMIT.held = False
