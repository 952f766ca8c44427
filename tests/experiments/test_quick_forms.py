"""Quick forms: every experiment has one, and `reproduce all --quick` runs them all."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from command import intervae, refused, succeeded
from intervae import experiments
from intervae.data.readers.file_source import FileSource
from intervae.experiments import EXPERIMENTS, Experiment, Train
from intervae.experiments.quick import QuickRun, run_quick_forms, time_left
from intervae.experiments.quick_seconds import QUICK_SECONDS
from intervae.models import MODELS
from intervae.models.presets import resolve_preset
from intervae.settings import build_settings
from scripted_experiment import Scripted, scripted

MISSING = FileSource("The lost data", "lost", "nowhere")


@dataclass(frozen=True)
class NeedsFile(Scripted):
    """A job whose published data are not there."""

    def check(self) -> None:
        MISSING.require("lost.npz")


def named(name: str, value: Any, kind: type[Scripted] = Scripted) -> Experiment:
    """Return an experiment whose quick form has one job with this value."""
    (job,) = scripted(value).jobs
    short = kind(job.data, job.model, job.options, {}, name)
    return replace(scripted(1.0, 2.0), name=name, quick=(short,))


FOUR = (
    named("first", 1.0),
    named("lost", 2.0, NeedsFile),
    named("broken", "fail"),
    named("last", 4.0),
)


def run_in(folder: Path, forms: tuple[Experiment, ...] = FOUR, **options: Any) -> list[QuickRun]:
    folders = {"runs": folder / "runs", "results": folder / "results"}
    return run_quick_forms(forms, device="cpu", **folders, **options)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_every_experiment_has_a_quick_form(experiment: Experiment) -> None:
    form = experiment.quick_form
    assert form.seeds == 1
    assert len({job.key for job in form.jobs}) == len(form.jobs)
    for job in form.jobs:
        if isinstance(job, Train) and job.model != "ground-truth":
            cls = MODELS[job.model]
            build_settings(cls.Settings, resolve_preset(cls, job.settings))


def test_quick_forms_take_less_than_an_hour() -> None:
    assert set(QUICK_SECONDS) <= {experiment.name for experiment in EXPERIMENTS}
    assert sum(QUICK_SECONDS.values()) < 3600


def test_a_failure_or_missing_data_do_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    runs = run_in(tmp_path)
    assert [(run.name, run.state) for run in runs] == [
        ("first", "done"),
        ("lost", "skipped"),
        ("broken", "failed"),
        ("last", "done"),
    ]
    assert "there is no lost.npz" in runs[1].reason
    assert runs[2].reason == "broken0 broke."
    written = sorted(path.stem for path in (tmp_path / "results").glob("*.json"))
    assert written == ["first-quick", "last-quick"]
    document = json.loads((tmp_path / "results" / "last-quick.json").read_text())
    assert document["rows"][0]["per_seed"] == {"0": 4.0}
    assert document["command"] == "intervae reproduce last --quick"
    assert document["hardware"].startswith("CPU")


def test_without_the_folder_of_data_they_are_skipped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERVAE_DATA", raising=False)
    (run,) = run_in(tmp_path, FOUR[1:2])
    assert (run.state, "INTERVAE_DATA" in run.reason) == ("skipped", True)


def test_other_errors_of_data_are_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: NeedsFile) -> None:
        MISSING.raise_broken(tmp_path / "lost.npz", "ends early")

    monkeypatch.setattr(NeedsFile, "check", broken)
    (run,) = run_in(tmp_path, FOUR[1:2])
    assert (run.state, run.reason) == ("failed", "lost.npz ends early; get it again from nowhere.")


def test_an_interrupt_stops_all(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_in(tmp_path, (named("stopped", "stop"), named("never", 1.0)))
    assert not (tmp_path / "results").exists()


def test_lines_name_the_time_left_at_the_measured_speed(tmp_path: Path) -> None:
    ticks = iter((0.0, 200.0, 200.0, 320.0, 400.0, 600.0))
    lines: list[str] = []
    forms = tuple(named(name, 1.0) for name in "abc")
    run_in(
        tmp_path,
        forms,
        expected={"a": 100.0, "b": 60.0, "c": 600.0},
        clock=lambda: next(ticks),
        notify=lines.append,
    )
    assert [line for line in lines if "/3" in line] == [
        "1/3 a done in 200 s; about 22 min left",  # twice as slow: 2 (60 + 600)
        "2/3 b done in 120 s; about 20 min left",
        "3/3 c done in 200 s; less than a minute left",
    ]


def test_skipped_and_stored_experiments_say_nothing_about_the_speed() -> None:
    runs = [
        QuickRun("a", "done", 50.0, 100.0),
        QuickRun("b", "skipped", 0.0, 1000.0),
        QuickRun("c", "done", 0.1, 1000.0),
    ]
    assert time_left(runs, 600) == "about 5 min left"
    assert time_left(runs[1:], 600) == "about 10 min left"


def test_reproduce_all_prints_a_table_and_fails_if_one_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    monkeypatch.setattr(experiments, "EXPERIMENTS", FOUR)
    words = ["reproduce", "all", "--quick", "--device", "cpu"]
    words += ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    done = intervae(*words)
    assert done.code == 1
    assert "1 of 4 quick forms failed, broken" in done.err
    table = [line.split()[:2] for line in done.out.splitlines()]
    for row in (["first", "done"], ["lost", "skipped"], ["broken", "failed"], ["last", "done"]):
        assert row in table
    monkeypatch.setattr(experiments, "EXPERIMENTS", (FOUR[0], FOUR[1], FOUR[3]))
    assert "3/3 last done" in succeeded(intervae(*words)).out
    refused(intervae("reproduce", "all"), 2, "needs --quick")
    refused(intervae(*words, "--seeds", 2), 2, "takes --device")
