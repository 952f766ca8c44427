"""Chunks of rows in threads, for compiled functions that release the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.pool import ThreadPool

import torch

from intervae.data.progress import progress

ROWS = 64  # per chunk


def map_rows(function: Callable[[slice], None], n: int, description: str) -> None:
    """Call `function` on slices of n rows, in as many threads as torch uses.

    On a terminal a progress bar shows the time left.
    """
    slices = [slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS)]
    with ThreadPool(max(1, min(torch.get_num_threads(), len(slices)))) as pool:
        for _ in progress(pool.imap(function, slices), len(slices), description):
            pass
