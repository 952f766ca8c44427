"""Blocks on one thread restore what was there, also when they overlap."""

from __future__ import annotations

import threading

import numpy as np
import torch
from threadpoolctl import threadpool_info

from intervae.discovery.threads import one_thread


def counts() -> tuple[int, set[int]]:
    """Threads of torch, and of every library of linear algebra."""
    np.linalg.inv(np.eye(3))
    blas = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    return torch.get_num_threads(), blas


def test_a_block_has_one_thread_and_restores_the_number() -> None:
    before = counts()
    with one_thread(), one_thread():
        assert counts() == (1, {1})
    assert counts() == before


def test_overlapping_blocks_of_two_threads_restore_the_number() -> None:
    before = counts()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert inside.wait(10)
    assert counts()[1] == {1}  # the other block is still open
    leave.set()
    thread.join()
    assert counts()[1] == before[1]
