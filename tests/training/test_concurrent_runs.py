"""Concurrent runs: results and errors of tasks, interrupts, weights equal to sequential runs."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from intervae.data import Dataset
from intervae.errors import UsageError
from intervae.models import Model, base, create
from intervae.training.concurrent_runs import MAX_WORKERS, run_concurrently

LONG = 30.0  # seconds after which a wait has failed


def wait_for(event: threading.Event) -> None:
    assert event.wait(LONG), "what this task waits for never came"


# ---- results ------------------------------------------------------------------------------------
def test_results_are_yielded_with_the_index_of_their_task() -> None:
    gates = [threading.Event() for _ in range(3)]

    def task(number: int) -> str:
        if number < 2:  # the last begun ends first
            wait_for(gates[number + 1])
        gates[number].set()
        return f"result {number}"

    results = list(run_concurrently([lambda n=n: task(n) for n in range(3)], 3))
    assert results == [(2, "result 2"), (1, "result 1"), (0, "result 0")]


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_workers_run_concurrently_and_each_task_once(workers: int) -> None:
    lock, running, max_running, calls, barrier = (
        threading.Lock(),
        0,
        0,
        [0] * 12,
        threading.Barrier(min(workers, 4)),
    )

    def task(number: int) -> int:
        nonlocal running, max_running
        with lock:
            running, max_running = running + 1, max(max_running, running + 1)
            calls[number] += 1
        barrier.wait(LONG)  # passes only where so many are really at work
        with lock:
            running -= 1
        return number * number

    assert sorted(run_concurrently([lambda n=n: task(n) for n in range(12)], workers)) == [
        (n, n * n) for n in range(12)
    ]
    assert calls == [1] * 12
    assert barrier.parties <= max_running <= workers


def test_one_worker_is_a_plain_loop() -> None:
    began: list[int] = []

    def task(number: int) -> int:
        assert threading.current_thread() is threading.main_thread()
        began.append(number)
        return -number

    results = run_concurrently([lambda n=n: task(n) for n in range(3)], 1)
    assert began == []
    assert next(results) == (0, 0)
    assert began == [0]  # the next task waits until its turn
    assert list(results) == [(1, -1), (2, -2)]


@pytest.mark.parametrize("workers", [1, 4])
def test_no_tasks_give_no_results(workers: int) -> None:
    assert list(run_concurrently([], workers)) == []


def test_more_workers_than_streams_are_refused() -> None:
    tasks = [lambda: pytest.fail("it was started")] * 2
    with pytest.raises(
        UsageError,
        match=rf"concurrent={MAX_WORKERS + 1} runs are more than {MAX_WORKERS}; use fewer",
    ):
        list(run_concurrently(tasks, MAX_WORKERS + 1))
    assert sorted(run_concurrently([lambda: 1] * 2, MAX_WORKERS)) == [(0, 1), (1, 1)]


# ---- errors and interrupts ----------------------------------------------------------------------
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_error_is_raised_after_the_running_tasks(
    kind: type[BaseException],
) -> None:
    began, ended, slow_began, failing = [], [], threading.Event(), threading.Event()

    def slow() -> None:
        began.append("slow")
        slow_began.set()
        wait_for(failing)
        time.sleep(0.1)
        ended.append("slow")

    def fail() -> None:
        began.append("fail")
        wait_for(slow_began)
        failing.set()
        raise kind("the second broke")

    others: list[Callable[[], None]] = [lambda n=n: began.append(f"other {n}") for n in range(5)]
    with pytest.raises(kind, match="the second broke"):
        list(run_concurrently([slow, fail, *others], 2))
    assert sorted(began) == ["fail", "slow"]
    assert ended == ["slow"]


def test_single_worker_raises_at_once() -> None:
    def fail() -> None:
        raise KeyError("gone")

    results = run_concurrently([lambda: 1, fail, lambda: pytest.fail("it was started")], 1)
    assert next(results) == (0, 1)
    with pytest.raises(KeyError, match="gone"):
        next(results)


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C as it is outside of a test runner."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="this system sends no signals to threads"
)
def test_keyboard_interrupt_does_not_wait_for_running_tasks() -> None:
    release, ended, began = threading.Event(), threading.Event(), []
    main = threading.main_thread().ident
    assert main is not None

    def long() -> None:
        began.append("long")
        signal.pthread_kill(main, signal.SIGINT)
        wait_for(release)
        ended.set()

    def blocked() -> None:
        began.append("blocked")
        wait_for(release)

    start = time.monotonic()
    with interrupts(), pytest.raises(KeyboardInterrupt):
        list(run_concurrently([long, blocked, lambda: began.append("late")], 2))
    assert time.monotonic() - start < LONG / 3
    assert not ended.is_set()
    release.set()
    wait_for(ended)
    for thread in threading.enumerate():
        if thread.name.startswith("run-"):
            thread.join(LONG)
    assert "late" not in began


def test_closed_iterator_starts_no_further_task() -> None:
    release, began = threading.Event(), []

    def task(number: int) -> int:
        began.append(number)
        if number:
            wait_for(release)
        return number

    results: Any = run_concurrently([lambda n=n: task(n) for n in range(6)], 2)
    assert next(results) == (0, 0)
    results.close()
    release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("run-"):
            thread.join(LONG)
    assert len(began) <= 3  # the first, and one for each worker


# ---- trainings ----------------------------------------------------------------------------------
def weights_of(model: Model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def test_concurrent_trainings_give_the_weights_of_sequential_ones(
    make_model: Any, make_data: Any
) -> None:
    data: Dataset = make_data()
    names = ["causal-vae", "ladder-vae", "factor-vae", "vae", "ladder-vae", "vae"]
    barrier = threading.Barrier(3)

    def train(number: int, at_once: bool) -> tuple[dict[str, torch.Tensor], list[Any]]:
        if at_once and number < 3:
            barrier.wait(LONG)
        model = make_model(names[number], data)
        result = model.fit(data, seed=number)
        lines = [
            {key: value for key, value in line.items() if key != "seconds"}
            for line in result.history
        ]
        return weights_of(model), lines

    alone = [train(number, False) for number in range(len(names))]
    results = dict(run_concurrently([lambda n=n: train(n, True) for n in range(len(names))], 3))
    for number, (weights, history) in enumerate(alone):
        assert_same(weights, results[number][0])
        assert history == results[number][1]


def test_weights_drawn_in_threads_depend_on_their_seeds_only(make_data: Any) -> None:
    """Layers draw from the global generator under a lock, which also restores its state."""
    data: Dataset = make_data()
    settings = {"latents": (16, 8, 4), "widths": (256, 128, 64)}
    before = torch.random.get_rng_state()
    alone = [weights_of(create("ladder-vae", data, seed=seed, **settings)) for seed in range(12)]
    results = dict(
        run_concurrently(
            [
                lambda s=s: weights_of(create("ladder-vae", data, seed=s, **settings))
                for s in range(12)
            ],
            4,
        )
    )
    for seed, weights in enumerate(alone):
        assert_same(weights, results[seed])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_without_the_lock_weights_depend_on_other_threads(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the test above detects a missing lock: two threads draw alternately."""
    data: Dataset = make_data()
    middle = threading.Barrier(2)
    model = type(create("vae", data))
    build = model.build

    def slowly(self: Any) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            middle.wait(0.5)  # passes only where both have seeded the generator
        build(self)
        with contextlib.suppress(threading.BrokenBarrierError):
            middle.wait(0.5)  # before either puts its state back

    monkeypatch.setattr(model, "build", slowly)
    tasks = [lambda s=s: weights_of(create("vae", data, seed=s)) for s in (0, 1)]
    with_lock = dict(run_concurrently(tasks, 2))
    middle.reset()
    monkeypatch.setattr(base, "INITIALISING", contextlib.nullcontext())
    without = dict(run_concurrently(tasks, 2))
    monkeypatch.undo()
    alone = [weights_of(create("vae", data, seed=seed)) for seed in (0, 1)]
    for seed in (0, 1):
        assert_same(alone[seed], with_lock[seed])
    assert any(
        not torch.equal(alone[seed][name], without[seed][name])
        for seed in (0, 1)
        for name in alone[seed]
    )
