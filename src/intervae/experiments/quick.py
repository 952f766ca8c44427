"""`reproduce all --quick`: the quick form of every experiment, one after the other, on a CPU.

Data that are not on this disk are skipped with the reason, and an experiment that fails does not
stop the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from intervae.errors import MissingDataError
from intervae.experiments.base import Experiment
from intervae.experiments.quick_seconds import QUICK_SECONDS
from intervae.experiments.run import run_experiment

UNKNOWN_SECONDS = 60.0  # expected of an experiment without a measurement


@dataclass(frozen=True)
class QuickRun:
    """The outcome of one quick form.

    Arguments:
        expected: CPU seconds on one core, as measured before.
        reason: why it was skipped or what failed.
    """

    name: str
    state: Literal["done", "skipped", "failed"]
    seconds: float
    expected: float
    reason: str = ""


def run_quick_forms(
    experiments: Sequence[Experiment],
    *,
    expected: Mapping[str, float] = QUICK_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
    notify: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[QuickRun]:
    """Run the quick form of every experiment; NAME-quick.json and .md have the numbers.

    Arguments:
        expected: name -> seconds on one core, for the time left.
        notify: called with lines of text, one of them per experiment with the time left.
        options: as `run_experiment` has them.
    """
    runs: list[QuickRun] = []
    for experiment in experiments:
        started = clock()
        state, reason = _run(experiment, notify, options)
        seconds = clock() - started
        wanted = expected.get(experiment.name, UNKNOWN_SECONDS)
        runs.append(QuickRun(experiment.name, state, seconds, wanted, reason))
        left = [expected.get(e.name, UNKNOWN_SECONDS) for e in experiments[len(runs) :]]
        text = f"{len(runs)}/{len(experiments)} {experiment.name} {state} in {seconds:.0f} s"
        text += f" ({reason})" if reason else ""
        notify(f"{text}; {time_left(runs, sum(left))}")
    return runs


def time_left(runs: Sequence[QuickRun], expected: float) -> str:
    """Return the time of experiments with `expected` seconds, at the speed of those that ran.

    Skipped experiments and those whose numbers were stored before say nothing about the speed.
    """
    ran = [run for run in runs if run.state == "done" and run.seconds > 0.1 * run.expected]
    speed = sum(run.seconds for run in ran) / sum(run.expected for run in ran) if ran else 1.0
    minutes = expected * speed / 60
    return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


def _run(
    experiment: Experiment, notify: Callable[[str], None], options: Mapping[str, Any]
) -> tuple[Literal["done", "skipped", "failed"], str]:
    """Return what happened to a quick form, and why."""
    try:
        for job in experiment.quick_form.jobs:
            job.check()
    except MissingDataError as error:
        return "skipped", str(error)
    except Exception as error:
        return "failed", str(error) or type(error).__name__
    try:
        run_experiment(experiment, quick=True, notify=notify, **options)
    except Exception as error:
        return "failed", str(error) or type(error).__name__
    return "done", ""
