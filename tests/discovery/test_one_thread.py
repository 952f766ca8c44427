"""Blocks on one thread restore what was there, also when they overlap."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from intervae.discovery import discover
from intervae.discovery.threads import one_thread

TORCH, BLAS = 2, 2


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    """Two threads in the test, whatever the environment says."""
    before = torch.get_num_threads()
    torch.set_num_threads(TORCH)
    with threadpool_limits(limits=BLAS, user_api="blas"):
        yield
    torch.set_num_threads(before)


def counts() -> tuple[int, set[int]]:
    """Threads of torch, and of every library of linear algebra."""
    np.linalg.inv(np.eye(3))
    blas = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    return torch.get_num_threads(), blas


def test_a_block_has_one_thread_and_restores_the_number() -> None:
    before = counts()
    assert before[0] == TORCH
    with one_thread():
        with one_thread():
            assert counts() == (1, {1})
        assert counts() == (1, {1})
    assert counts() == before


@pytest.mark.parametrize("first_to_leave", ["this", "other"])
def test_overlapping_blocks_of_two_threads_restore_the_number(first_to_leave: str) -> None:
    before = counts()
    inside, leave = threading.Event(), threading.Event()
    inner: list[int] = []

    def other() -> None:
        with one_thread():
            inner.append(torch.get_num_threads())
            inside.set()
            leave.wait(10)
        inner.append(torch.get_num_threads())

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert inside.wait(10)
        if first_to_leave == "other":
            leave.set()
            thread.join()
            assert counts() == (1, {1})  # this block is still open
    assert counts() == before  # this block set the limit of linear algebra
    leave.set()
    thread.join()
    assert counts() == before
    assert inner == [1, TORCH]


def test_a_failed_block_restores_the_number() -> None:
    before = counts()
    with pytest.raises(ValueError, match="wrong"), one_thread():
        raise ValueError("wrong")
    assert counts() == before


def test_independence_runs_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from intervae.discovery import independence as module

    met: list[tuple[int, set[int]]] = []
    search = module.random_rows

    def watched(*arguments: object, **options: object) -> object:
        met.append(counts())
        return search(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "random_rows", watched)
    rng = np.random.default_rng(0)
    cause = rng.uniform(-1, 1, 200)
    discover(np.stack([cause, cause**3 + 0.1 * rng.uniform(-1, 1, 200)], axis=1))
    assert met
    assert all(count == (1, {1}) for count in met)
