"""Parts of an experiment: `only`, `shard`, `finished`, concurrent runs, failures."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from command import intervae, refused, succeeded
from intervae import experiments
from intervae.errors import RunError, UsageError
from intervae.experiments import (
    Numbers,
)
from scripted_experiment import Scripted, check_format, executed, reproduce_in, two_jobs


def test_only_runs_a_part_without_a_table(tmp_path: Path) -> None:
    experiment = two_jobs([1.0, 2.0], [3.0, 4.0])
    part = reproduce_in(experiment, tmp_path, only="method-b")
    assert executed(tmp_path) == ["b0", "b1"]
    assert not (tmp_path / "results").exists()
    whole = reproduce_in(experiment, tmp_path)
    assert executed(tmp_path) == ["b0", "b1", "a0", "a1"]
    assert whole["rows"][2:] == part["rows"]
    assert [row["per_seed"] for row in part["rows"]] == [{"0": 3.0, "1": 4.0}, {"0": 6.0, "1": 8.0}]
    reproduce_in(
        experiment, tmp_path, only="method-a", seeds=1
    )  # fewer seeds than the table has: nothing of it would be replaced
    assert json.loads((tmp_path / "results" / "scripted.json").read_text()) == whole
    with pytest.raises(
        UsageError,
        match="--only method-c: no job of scripted has that in its name; "
        "they are made-method-a, made-method-b",
    ):
        reproduce_in(experiment, tmp_path, only="method-c")


def test_shards_divide_the_tasks(tmp_path: Path) -> None:
    experiment = two_jobs([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    reproduce_in(experiment, tmp_path, shard=(2, 2))
    assert executed(tmp_path) == ["a1", "b0", "b2"]
    assert not (tmp_path / "results").exists()
    reproduce_in(experiment, tmp_path, shard=(1, 2))
    assert executed(tmp_path)[3:] == ["a0", "a2", "b1"]
    reproduce_in(experiment, tmp_path)
    assert len(executed(tmp_path)) == 6
    with pytest.raises(
        UsageError, match="shard 3/2: the first number must be from 1 to the second"
    ):
        reproduce_in(experiment, tmp_path, shard=(3, 2))


def test_only_and_shard_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (two_jobs([1.0, 2.0], [3.0, 4.0]),))
    words = [
        "reproduce",
        "scripted",
        "--runs",
        tmp_path / "runs",
        "--results",
        tmp_path / "results",
        "--device",
        "cpu",
        "--concurrent",
        2,
    ]
    assert (
        f"the numbers are in {tmp_path / 'runs' / 'scripted'}; run without --only for the table"
        in succeeded(intervae(*words, "--only", "-b")).out
    )
    assert sorted(executed(tmp_path)) == ["b0", "b1"]
    assert "run without --shard for the table" in succeeded(intervae(*words, "--shard", "1/4")).out
    assert sorted(executed(tmp_path)) == ["a0", "b0", "b1"]
    refused(intervae(*words, "--shard", "two"), 2, "--shard two must be like 2/4")
    succeeded(intervae(*words))
    assert len(json.loads((tmp_path / "results" / "scripted.json").read_text())["rows"]) == 4
    refused(intervae(*words, "--only", "elsewhere"), 2, "no job of scripted")
    refused(intervae(*words, "--together", 2), 2, "--together is now called --concurrent")
    refused(intervae(*words[:-1], 31, "--runs", tmp_path / "other"), 2, "concurrent=31", "30")


def test_finished_makes_a_table_and_lists_missing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = two_jobs([1.0, 2.0], [3.0, 4.0])
    with pytest.raises(
        RunError, match="holds no finished run of scripted; run it without --finished"
    ):
        reproduce_in(experiment, tmp_path, finished=True)
    reproduce_in(experiment, tmp_path, only="method-b")
    reproduce_in(experiment, tmp_path, only="method-a", seeds=1)
    document = reproduce_in(experiment, tmp_path, finished=True)
    assert len(executed(tmp_path)) == 3  # nothing more
    assert document["missing"] == ["made-method-a-1"]
    assert [
        row["per_seed"]
        for row in document["rows"]
        if row["metric"] == "score" and not row["variant"].endswith("part")
    ] == [
        {"0": 1.0},
        {"0": 3.0, "1": 4.0},
    ]
    assert "Not run yet: made-method-a-1." in (tmp_path / "results" / "scripted.md").read_text()
    monkeypatch.setattr(experiments, "EXPERIMENTS", (experiment,))
    words = [
        "reproduce",
        "scripted",
        "--runs",
        tmp_path / "runs",
        "--results",
        tmp_path / "results",
        "--device",
        "cpu",
    ]
    assert "Not run yet: made-method-a-1" in succeeded(intervae(*words, "--finished")).out
    assert "Not run yet" not in succeeded(intervae(*words)).out
    assert "missing" not in json.loads((tmp_path / "results" / "scripted.json").read_text())


def test_order_of_rows_does_not_depend_on_the_order_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_is_done, run = threading.Event(), Scripted.run

    def waiting(self: Scripted, seed: int, device: str, folder: Path) -> Numbers:
        if (self.variant, seed) == ("a", 0):
            assert last_is_done.wait(30)
        numbers = run(self, seed, device, folder)
        if (self.variant, seed) == ("b", 1):
            last_is_done.set()
        return numbers

    monkeypatch.setattr(Scripted, "run", waiting)
    document = reproduce_in(two_jobs([1.0, 2.0], [3.0, 4.0]), tmp_path, concurrent=2)
    assert executed(tmp_path)[-1] == "a0"
    check_format(document)
    assert [list(row["per_seed"].values()) for row in document["rows"]] == [
        [1.0, 2.0],
        [2.0, 4.0],
        [3.0, 4.0],
        [6.0, 8.0],
    ]


@pytest.mark.parametrize("concurrent", [1, 2])
def test_failed_run_does_not_stop_the_others(concurrent: int, tmp_path: Path) -> None:
    experiment, lines = two_jobs([1.0, "fail"], [3.0, 4.0]), []
    with pytest.raises(RunError, match="a1 broke"):
        reproduce_in(experiment, tmp_path, concurrent=concurrent, notify=lines.append)
    assert sorted(executed(tmp_path)) == ["a0", "a1", "b0", "b1"]
    assert not (tmp_path / "results").exists()
    assert sorted(lines)[1] == "made-method-a seed 1 failed: a1 broke."
    assert len(list((tmp_path / "runs").rglob("numbers.json"))) == 3
    (tmp_path / "runs" / "scripted" / "fixed").write_text("")
    document = reproduce_in(experiment, tmp_path, concurrent=concurrent)
    assert sorted(executed(tmp_path)) == ["a0", "a1", "a1", "b0", "b1"]
    assert document["rows"][0]["per_seed"] == {"0": 1.0, "1": 9.0}


def test_several_failures_are_counted(tmp_path: Path) -> None:
    with pytest.raises(
        RunError,
        match=r"2 of 6 runs of scripted failed, the first with: a1 broke\. The others are stored",
    ):
        reproduce_in(two_jobs([1.0, "fail", 2.0], [3.0, "fail", 4.0]), tmp_path)
    assert len(list((tmp_path / "runs").rglob("numbers.json"))) == 4


@pytest.mark.parametrize("concurrent", [1, 2])
def test_interrupt_stops_all_runs(concurrent: int, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        reproduce_in(two_jobs(["stop", 2.0, 2.0, 2.0], [3.0] * 4), tmp_path, concurrent=concurrent)
    assert len(executed(tmp_path)) <= (1 if concurrent == 1 else 7)
