"""Experiments: a tiny one from its jobs to its table, stopped and gone on with; and the format of every result, ours and the committed ones."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intervae as package
from command import contents, intervae, refused, succeeded
from intervae import experiments
from intervae.data.registry import datasets
from intervae.data.simulators import Pendulum
from intervae.discovery import METHODS
from intervae.errors import RunError, TrainingError, UsageError
from intervae.experiments import EXPERIMENTS, Discover, Experiment, Job, Train, base, run_experiment
from intervae.experiments.base import find, markdown
from intervae.experiments.page import split_parts
from intervae.models import MODELS
from intervae.settings import build_settings

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "results").glob("*.json"))
SETTINGS = {"channels": (8, 8), "dims": 2, "hidden": 32, "batch_size": 16, "epochs": 2}
TRAIN = Train("pendulum", "causal-vae", {"size": 16, "samples": 96}, SETTINGS, "small", {"r2_min": 0.987, "counterfactual_pixel_mae|light": 0.25})
DISCOVER = Discover("pendulum", "independence", {"samples": 120}, {"samples": 80})
TINY = Experiment("tiny", "A tiny table", (TRAIN, DISCOVER), seeds=2, shown=("r2_min", "counterfactual_pixel_mae", "shd"), notes="What it is.")


def check_format(document: Mapping[str, Any]) -> None:
    """What every results file must hold, as the project's design says."""
    assert {"experiment", "command", "revision", "hardware", "versions", "date", "rows"} <= document.keys()
    assert document["command"].startswith("intervae reproduce ")
    assert document["hardware"]
    assert {"intervae", "python", "torch", "numpy"} <= document["versions"].keys()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"])
    assert document["rows"]
    for row in document["rows"]:
        assert {"data", "model", "variant", "metric", "per_seed", "mean", "std"} <= row.keys()
        values = list(row["per_seed"].values())
        assert values
        assert all(isinstance(value, int | float) and math.isfinite(value) for value in values)
        assert list(row["per_seed"]) == [str(seed) for seed in range(len(values))]
        assert abs(statistics.fmean(values) - row["mean"]) <= 1e-6 * max(1, abs(row["mean"]))
        assert row["std"] == pytest.approx(np.std(values, ddof=1) if len(values) > 1 else 0)
    assert len({(r["data"], r["model"], r["variant"], r["metric"]) for r in document["rows"]}) == len(document["rows"])


@dataclass(frozen=True)
class Scripted(Job):
    """A job that gives what the test says and writes down that it ran; "stop" is a 9 that is interrupted, and "fail" one
    that breaks, until there is a file called go."""

    def run(self, seed: int, device: str, folder: Path) -> dict[str, float]:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder.parent / "ran.txt", "a") as log:
            log.write(f"{self.variant}{seed} ")
        value = self.options["values"][seed]
        if value == "fail" and not (folder.parent / "go").exists():
            raise RunError(f"{self.variant}{seed} broke.")
        if value == "stop" and not (folder.parent / "go").exists():
            raise KeyboardInterrupt
        score = 9.0 if value in ("stop", "fail") else float(value)
        return {"score": score, "score|part": 2 * score}


def scripted(*values: Any, **changes: Any) -> Experiment:
    job = Scripted("made", "method", {"values": list(values)}, {}, "a", {"score": 4.5})
    return Experiment("scripted", "Scripted", (replace(job, **changes),), seeds=len(values), shown=("score",))


def ran(folder: Path) -> list[str]:
    return (folder / "runs" / "scripted" / "ran.txt").read_text().split()


def go(experiment: Experiment, folder: Path, **options: Any) -> dict[str, Any]:
    return run_experiment(experiment, device="cpu", runs=folder / "runs", results=folder / "results", **options)


# ---- a tiny experiment, for real ------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """The folder of a tiny experiment that has run, what it returned and what it told."""
    folder, told = tmp_path_factory.mktemp("tiny"), []
    return folder, go(TINY, folder, tell=told.append), told


def test_the_table_has_the_format_and_the_file_says_what_was_returned(reproduced: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, document, told = reproduced
    check_format(document)
    assert json.loads((folder / "results" / "tiny.json").read_text()) == document
    assert document["command"] == "intervae reproduce tiny --seeds 2"
    assert len(told) == 4
    assert re.fullmatch(r"pendulum-causal-vae-small seed 0: r2_min \S+, counterfactual_pixel_mae \S+, shd \S+", told[0])
    script = ROOT.parent / "shared" / "tools" / "results-check"
    if script.is_file():
        done = subprocess.run([sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_every_number_is_the_one_of_its_run(reproduced: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, document, _ = reproduced
    rows = {(row["model"], row["metric"], row["variant"]): row for row in document["rows"]}
    data = Pendulum().dataset(size=16, samples=96)
    for seed in (0, 1):
        run = folder / "runs" / "tiny" / f"pendulum-causal-vae-small-{seed}"
        for m in package.evaluate(package.load(run), data):
            assert rows["causal-vae", m.metric, "small"]["per_seed"][str(seed)] == pytest.approx(m.value, rel=1e-5)
            if m.metric in ("mic", "tic"):
                assert rows["causal-vae", f"{m.metric}_by_chance", "small"]["per_seed"][str(seed)] == m.parameters["by_chance"]["value"]
            for name, value in m.per_variable.items():
                part = m.metric.removesuffix("_min")  # a variable's own R2 is no minimum
                assert rows["causal-vae", part, f"small {name}"]["per_seed"][str(seed)] == pytest.approx(value, rel=1e-5)
        assert json.loads((run / "config.json").read_text())["seed"] == seed
        assert {"evaluation.json", "figures/interventions.png"} <= set(contents(run))
        found = package.CausalGraph.from_json((folder / "runs" / "tiny" / f"pendulum-independence-{seed}" / "graph.json").read_text())
        assert rows["independence", "shd", ""]["per_seed"][str(seed)] == Pendulum.graph.shd(found)
    weights = [(folder / "runs" / "tiny" / f"pendulum-causal-vae-small-{seed}" / "model.safetensors").read_bytes() for seed in (0, 1)]
    assert weights[0] != weights[1]
    assert rows["causal-vae", "r2_min", "small"]["paper"] == 0.987
    assert rows["causal-vae", "counterfactual_pixel_mae", "small light"]["paper"] == 0.25
    assert sum("paper" in row for row in document["rows"]) == 2


def test_what_is_finished_is_not_done_again(reproduced: tuple[Path, dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, document, _ = reproduced
    before = contents(folder / "runs")
    for kind in (Train, Discover):
        monkeypatch.setattr(kind, "run", lambda *_: pytest.fail("this was finished"))
    assert go(TINY, folder)["rows"] == document["rows"]
    assert contents(folder / "runs") == before


def test_a_run_that_was_trained_but_not_measured_is_not_trained_again(
    reproduced: tuple[Path, dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, document, _ = reproduced
    monkeypatch.setattr(base, "write_figures", lambda *_: [])  # they take their time
    run = folder / "runs" / "tiny" / "pendulum-causal-vae-small-1"
    weights = (run / "model.safetensors").read_bytes()
    (run / "numbers.json").unlink()
    assert go(TINY, folder)["rows"] == document["rows"]  # the seconds of training as well
    assert (run / "model.safetensors").read_bytes() == weights


def test_numbers_of_other_settings_are_refused_and_kept(reproduced: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, _, _ = reproduced
    before = contents(folder)
    for job in (replace(TRAIN, settings={**SETTINGS, "epochs": 3}), replace(TRAIN, options={"size": 24, "samples": 96})):
        with pytest.raises(UsageError, match="pendulum-causal-vae-small-0 holds the numbers of other settings; remove it or choose another --runs"):
            go(replace(TINY, jobs=(job,)), folder)
    assert contents(folder) == before


def test_each_seed_of_a_discovery_sees_rows_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[np.ndarray, int]] = []

    def spy(table: np.ndarray, *arguments: Any, **options: Any) -> Any:
        seen.append((table, options["seed"]))
        return package.discover(table, *arguments, **options)

    monkeypatch.setattr(base, "discover", spy)
    go(replace(TINY, jobs=(DISCOVER,)), tmp_path)
    assert [seed for _, seed in seen] == [0, 1]
    assert seen[0][0].shape == seen[1][0].shape
    assert not np.isin(seen[0][0][:, 0], seen[1][0][:, 0]).any()  # angles of the pendulum


# ---- how it goes on -------------------------------------------------------------------------------------------------
def test_an_experiment_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            go(scripted(1.0, 2.0, "stop", 4.0), tmp_path)
    assert ran(tmp_path) == ["a0", "a1", "a2", "a2"]
    assert not (tmp_path / "results").exists()
    (tmp_path / "runs" / "scripted" / "go").write_text("")
    document = go(scripted(1.0, 2.0, "stop", 4.0), tmp_path)
    assert ran(tmp_path) == ["a0", "a1", "a2", "a2", "a2", "a3"]
    assert document["rows"][0]["per_seed"] == {"0": 1.0, "1": 2.0, "2": 9.0, "3": 4.0}


def test_more_seeds_later_add_to_the_table(tmp_path: Path) -> None:
    experiment = scripted(1.0, 3.0, 8.0)
    few = go(experiment, tmp_path, seeds=2)
    assert few["rows"][0]["per_seed"] == {"0": 1.0, "1": 3.0}
    assert few["rows"][0]["std"] == pytest.approx(math.sqrt(2))
    assert few["command"] == "intervae reproduce scripted --seeds 2"
    full = go(experiment, tmp_path)
    assert ran(tmp_path) == ["a0", "a1", "a2"]
    check_format(full)
    assert [(row["metric"], row["variant"], row["mean"], row.get("paper")) for row in full["rows"]] == [
        ("score", "a", 4.0, 4.5),
        ("score", "a part", 8.0, None),
    ]
    assert go(experiment, tmp_path, seeds=1, overwrite=True)["rows"][0]["std"] == 0
    with pytest.raises(UsageError, match="--seeds 0: at least one seed"):
        go(experiment, tmp_path, seeds=0)


def test_the_machine_and_the_revision_are_those_that_made_the_numbers(tmp_path: Path) -> None:
    first = go(scripted(1.0, 2.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-0" / "numbers.json"
    kept = json.loads(path.read_text())
    assert kept["hardware"] == first["hardware"]
    path.write_text(json.dumps({**kept, "hardware": "NVIDIA H200", "revision": "abc"}))
    again = go(scripted(1.0, 2.0), tmp_path)
    assert again["hardware"] == f"NVIDIA H200, {first['hardware']}"
    assert again["revision"].startswith("abc, ") or first["revision"] == ""


@pytest.mark.parametrize("change", [{"intervae": "0.0.1"}, {"seed": 5}, {"numbers": None}, None])
def test_kept_numbers_that_are_older_or_damaged_are_refused(change: dict[str, Any] | None, tmp_path: Path) -> None:
    go(scripted(1.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-0" / "numbers.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps([] if change is None else {key: value for key, value in {**kept, **change}.items() if value is not None}))
    with pytest.raises(UsageError, match="holds the numbers of other settings"):
        go(scripted(1.0), tmp_path)
    path.write_text("{")
    with pytest.raises(RunError, match=r"numbers\.json .* cannot be read"):
        go(scripted(1.0), tmp_path)


def test_seeds_that_were_measured_differently_are_not_mixed(tmp_path: Path) -> None:
    go(scripted(1.0, 2.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-1" / "numbers.json"
    path.write_text(path.read_text().replace("score|part", "score_min|part"))
    with pytest.raises(RunError, match=r"made-method-a: seed 1 was measured otherwise .*\(score_min\|part, score\|part\)"):
        go(scripted(1.0, 2.0), tmp_path)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_number_that_is_not_finite_stops_before_the_table(value: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"made-method-a, seed 1: score is (nan|inf)"):
        go(scripted(1.0, value), tmp_path)
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "runs" / "scripted" / "made-method-a-1" / "numbers.json").exists()


# ---- parts of a grid, several at once -------------------------------------------------------------------------------
def two_jobs(one: list[Any], other: list[Any], **changes: Any) -> Experiment:
    first, second = (scripted(*values, variant=name).jobs[0] for name, values in (("a", one), ("b", other)))
    return Experiment("scripted", "Scripted", (replace(first, **changes), second), seeds=len(other), shown=("score",))


def test_a_part_of_a_grid_is_run_alone_and_the_rest_later_makes_the_table(tmp_path: Path) -> None:
    experiment = two_jobs([1.0, 2.0], [3.0, 4.0])
    part = go(experiment, tmp_path, only="method-b")
    assert ran(tmp_path) == ["b0", "b1"]
    assert not (tmp_path / "results").exists()
    whole = go(experiment, tmp_path)
    assert ran(tmp_path) == ["b0", "b1", "a0", "a1"]
    assert whole["rows"][2:] == part["rows"]
    assert [row["per_seed"] for row in part["rows"]] == [{"0": 3.0, "1": 4.0}, {"0": 6.0, "1": 8.0}]
    go(experiment, tmp_path, only="method-a", seeds=1)  # fewer seeds than the table has: nothing of it would be replaced
    assert json.loads((tmp_path / "results" / "scripted.json").read_text()) == whole
    with pytest.raises(UsageError, match="--only method-c: no job of scripted has that in its name; they are made-method-a, made-method-b"):
        go(experiment, tmp_path, only="method-c")


def test_versions_are_those_of_the_machines_that_made_the_numbers(tmp_path: Path) -> None:
    go(scripted(1.0, 2.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-1" / "numbers.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "versions": {**kept["versions"], "torch": "1.2.3"}}))
    found = go(scripted(1.0, 2.0), tmp_path)["versions"]
    assert found == {**kept["versions"], "torch": f"{kept['versions']['torch']}, 1.2.3"}


def test_shards_share_a_grid_between_machines(tmp_path: Path) -> None:
    experiment = two_jobs([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    go(experiment, tmp_path, shard=(2, 2))
    assert ran(tmp_path) == ["a1", "b0", "b2"]
    assert not (tmp_path / "results").exists()
    go(experiment, tmp_path, shard=(1, 2))
    assert ran(tmp_path)[3:] == ["a0", "a2", "b1"]
    go(experiment, tmp_path)
    assert len(ran(tmp_path)) == 6
    with pytest.raises(UsageError, match="shard 3/2: the first number must be from 1 to the second"):
        go(experiment, tmp_path, shard=(3, 2))


def test_a_part_of_a_grid_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (two_jobs([1.0, 2.0], [3.0, 4.0]),))
    words = ["reproduce", "scripted", "--runs", tmp_path / "runs", "--results", tmp_path / "results", "--device", "cpu", "--together", 2]
    assert f"the numbers are in {tmp_path / 'runs' / 'scripted'}; without --only the table is made" in succeeded(intervae(*words, "--only", "-b")).out
    assert sorted(ran(tmp_path)) == ["b0", "b1"]
    assert "without --shard the table is made" in succeeded(intervae(*words, "--shard", "1/4")).out
    assert sorted(ran(tmp_path)) == ["a0", "b0", "b1"]
    refused(intervae(*words, "--shard", "two"), 2, "--shard two must be like 2/4")
    succeeded(intervae(*words))
    assert len(json.loads((tmp_path / "results" / "scripted.json").read_text())["rows"]) == 4
    refused(intervae(*words, "--only", "elsewhere"), 2, "no job of scripted")
    refused(intervae(*words[:-1], 31, "--runs", tmp_path / "other"), 2, "together=31", "30")


def test_a_table_of_what_is_finished_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = two_jobs([1.0, 2.0], [3.0, 4.0])
    with pytest.raises(RunError, match="holds no finished run of scripted; run it without --finished"):
        go(experiment, tmp_path, finished=True)
    go(experiment, tmp_path, only="method-b")
    go(experiment, tmp_path, only="method-a", seeds=1)
    document = go(experiment, tmp_path, finished=True)
    assert len(ran(tmp_path)) == 3  # nothing more
    assert document["missing"] == ["made-method-a-1"]
    assert [row["per_seed"] for row in document["rows"] if row["metric"] == "score" and not row["variant"].endswith("part")] == [
        {"0": 1.0},
        {"0": 3.0, "1": 4.0},
    ]
    assert "Not run yet: made-method-a-1." in (tmp_path / "results" / "scripted.md").read_text()
    monkeypatch.setattr(experiments, "EXPERIMENTS", (experiment,))
    words = ["reproduce", "scripted", "--runs", tmp_path / "runs", "--results", tmp_path / "results", "--device", "cpu"]
    assert "Not run yet: made-method-a-1" in succeeded(intervae(*words, "--finished")).out
    assert "Not run yet" not in succeeded(intervae(*words)).out
    assert "missing" not in json.loads((tmp_path / "results" / "scripted.json").read_text())


def timeless(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["rows"] if row["metric"] not in ("seconds", "train_seconds")]


def test_runs_at_once_give_the_same_rows_in_the_same_order(
    reproduced: tuple[Path, dict[str, Any], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "write_figures", lambda *_: [])  # they take their time
    folder, document, _ = reproduced
    told: list[str] = []
    again = go(TINY, tmp_path, together=2, tell=told.append)
    assert timeless(again) == timeless(document)
    assert len(told) == 4
    for seed in (0, 1):
        run = f"pendulum-causal-vae-small-{seed}"
        weights = [(where / "runs" / "tiny" / run / "model.safetensors").read_bytes() for where in (folder, tmp_path)]
        assert weights[0] == weights[1]


def test_rows_keep_their_order_whichever_run_ends_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last_is_done, run = threading.Event(), Scripted.run

    def waiting(self: Scripted, seed: int, device: str, folder: Path) -> dict[str, float]:
        if (self.variant, seed) == ("a", 0):
            assert last_is_done.wait(30)
        found = run(self, seed, device, folder)
        if (self.variant, seed) == ("b", 1):
            last_is_done.set()
        return found

    monkeypatch.setattr(Scripted, "run", waiting)
    document = go(two_jobs([1.0, 2.0], [3.0, 4.0]), tmp_path, together=2)
    assert ran(tmp_path)[-1] == "a0"
    check_format(document)
    assert [list(row["per_seed"].values()) for row in document["rows"]] == [[1.0, 2.0], [2.0, 4.0], [3.0, 4.0], [6.0, 8.0]]


@pytest.mark.parametrize("together", [1, 2])
def test_a_run_that_fails_leaves_the_others_kept_and_no_table(together: int, tmp_path: Path) -> None:
    experiment, told = two_jobs([1.0, "fail"], [3.0, 4.0]), []
    with pytest.raises(RunError, match="a1 broke"):
        go(experiment, tmp_path, together=together, tell=told.append)
    assert sorted(ran(tmp_path)) == ["a0", "a1", "b0", "b1"]
    assert not (tmp_path / "results").exists()
    assert sorted(told)[1] == "made-method-a seed 1 failed: a1 broke."
    assert len(list((tmp_path / "runs").rglob("numbers.json"))) == 3
    (tmp_path / "runs" / "scripted" / "go").write_text("")
    document = go(experiment, tmp_path, together=together)
    assert sorted(ran(tmp_path)) == ["a0", "a1", "a1", "b0", "b1"]
    assert document["rows"][0]["per_seed"] == {"0": 1.0, "1": 9.0}


def test_several_failures_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"2 of 6 runs of scripted failed, the first with: a1 broke\. The others are kept"):
        go(two_jobs([1.0, "fail", 2.0], [3.0, "fail", 4.0]), tmp_path)
    assert len(list((tmp_path / "runs").rglob("numbers.json"))) == 4


@pytest.mark.parametrize("together", [1, 2])
def test_an_interrupt_is_no_failure_of_a_run(together: int, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(two_jobs(["stop", 2.0, 2.0, 2.0], [3.0] * 4), tmp_path, together=together)
    assert len(ran(tmp_path)) <= (1 if together == 1 else 7)


def test_a_job_may_have_seeds_of_its_own(tmp_path: Path) -> None:
    experiment = two_jobs([1.0, 2.0, 6.0], [3.0, 4.0], seeds=3)
    document = go(experiment, tmp_path)
    check_format(document)
    assert [len(row["per_seed"]) for row in document["rows"]] == [3, 3, 2, 2]
    assert document["rows"][0]["mean"] == 3.0
    assert document["command"] == "intervae reproduce scripted"  # the jobs know how many seeds they have
    assert "2 or 3 seeds, none dropped" in (tmp_path / "results" / "scripted.md").read_text()
    with pytest.raises(UsageError, match=r"scripted\.json has 3 seeds and would be replaced by 1"):
        go(experiment, tmp_path, seeds=1)
    few = go(experiment, tmp_path, seeds=1, overwrite=True)  # what is asked for counts for every job
    assert [len(row["per_seed"]) for row in few["rows"]] == [1] * 4
    assert few["command"] == "intervae reproduce scripted --seeds 1"


# ---- for people -----------------------------------------------------------------------------------------------------
def test_the_page_shows_what_the_experiment_chose_to_show(tmp_path: Path) -> None:
    document = go(replace(scripted(0.5, 0.25), notes="About it."), tmp_path)
    page = (tmp_path / "results" / "scripted.md").read_text()
    assert page == markdown(replace(scripted(0.5, 0.25), notes="About it."), document)
    assert page.startswith("# Scripted\n\nAbout it.\n\n| data | model | what | metric |")
    assert "| made | method | a | score | 0.375 ± 0.18 | 0.25 … 0.5 | 4.5 |" in page
    assert "| made | method | a part | score | 0.75 ± 0.35 | 0.5 … 1 |  |" in page
    assert f"2 seeds, none dropped; {document['hardware']}, revision {document['revision']}, {document['date']}." in page
    assert page.endswith("```\nintervae reproduce scripted --seeds 2\n```\n")
    hidden = markdown(replace(scripted(0.5, 0.25), shown=()), document)
    assert "| made |" not in hidden


def test_reproduce_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 2.0),))
    words = ["reproduce", "scripted", "--runs", tmp_path / "runs", "--results", tmp_path / "results", "--device", "cpu"]
    shown = succeeded(intervae(*words)).out
    assert "made-method-a seed 1: score 2\n" in shown
    assert "| made | method | a | score | 1.5 ± 0.71 |" in shown
    assert f"wrote {tmp_path / 'results' / 'scripted'}.json and .md" in shown
    check_format(json.loads((tmp_path / "results" / "scripted.json").read_text()))
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 5.0),))
    before = contents(tmp_path)
    refused(intervae(*words), 2, "holds the numbers of other settings")
    assert contents(tmp_path) == before


def test_fewer_seeds_do_not_replace_more_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 2.0, 3.0),))
    words = ["reproduce", "scripted", "--device", "cpu", "--runs", tmp_path / "runs", "--results"]
    succeeded(intervae(*words, tmp_path / "results"))
    before = contents(tmp_path)
    words[words.index(tmp_path / "runs")] = tmp_path / "fresh"
    said = ("scripted.json has 3 seeds and would be replaced by 2", "another --results folder", "--overwrite")
    refused(intervae(*words, tmp_path / "results", "--seeds", 2), 2, *said)
    assert contents(tmp_path) == before  # nothing was run either
    succeeded(intervae(*words, tmp_path / "other", "--seeds", 2))
    succeeded(intervae(*words, tmp_path / "results", "--seeds", 2, "--overwrite"))
    assert (tmp_path / "results" / "scripted.md").read_text().count("2 seeds, none dropped") == 1
    succeeded(intervae(*words, tmp_path / "results", "--seeds", 3))
    (tmp_path / "results" / "scripted.json").write_text("{")  # holds nothing that could be lost
    succeeded(intervae(*words, tmp_path / "results", "--seeds", 1))


def test_the_page_is_written_again_from_the_numbers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 2.0),))
    go(scripted(1.0, 2.0), tmp_path)
    kept = contents(tmp_path)
    (tmp_path / "results" / "scripted.md").write_text("typed by hand")
    monkeypatch.setattr(Scripted, "run", lambda *_: pytest.fail("nothing is run"))
    words = ["reproduce", "scripted", "--table", "--results", tmp_path / "results"]
    assert f"wrote {tmp_path / 'results' / 'scripted'}.md\n" in succeeded(intervae(*words)).out
    assert contents(tmp_path) == kept
    path = tmp_path / "results" / "scripted.json"
    for text, said in (("{", "cannot be read"), ("[]", "does not hold the numbers"), ('{"experiment": "other"}', "does not hold the numbers")):
        path.write_text(text)
        refused(intervae(*words), 1, "scripted.json", said)
    path.unlink()
    refused(intervae(*words), 1, "there is no", "intervae reproduce scripted")
    assert (tmp_path / "results" / "scripted.md").read_bytes() == kept["results/scripted.md"]


def test_the_quick_form_runs_its_own_jobs_on_one_seed_beside_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(scripted(7.0).jobs[0], variant="short")
    experiment = replace(scripted(1.0, 2.0, seeds=2), quick=(short,))
    monkeypatch.setattr(experiments, "EXPERIMENTS", (experiment,))
    words = ["reproduce", "scripted", "--runs", tmp_path / "runs", "--results", tmp_path / "results", "--device", "cpu"]
    succeeded(intervae(*words))
    shown = succeeded(intervae(*words, "--quick")).out
    assert f"wrote {tmp_path / 'results' / 'scripted-quick'}.json and .md" in shown
    whole, quick = (json.loads((tmp_path / "results" / f"{name}.json").read_text()) for name in ("scripted", "scripted-quick"))
    check_format(quick)
    assert [list(row["per_seed"].values()) for row in quick["rows"]] == [[7.0], [14.0]]
    assert [list(row["per_seed"].values()) for row in whole["rows"]] == [[1.0, 2.0], [2.0, 4.0]]
    assert quick["command"] == "intervae reproduce scripted --quick"
    assert (tmp_path / "runs" / "scripted-quick" / "made-method-short-0" / "numbers.json").is_file()
    (tmp_path / "results" / "scripted-quick.md").unlink()
    succeeded(intervae(*words, "--quick", "--table"))
    assert "Scripted: the quick form" in (tmp_path / "results" / "scripted-quick.md").read_text()
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0),))
    refused(intervae(*words, "--quick"), 2, "scripted has no quick form")


def test_pictures_of_the_first_run_are_put_beside_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = replace(scripted(1.0, 2.0), pictures=("graph", "absent"))
    plain = Scripted.run

    def run(job: Scripted, seed: int, device: str, folder: Path) -> dict[str, float]:
        (folder / "figures").mkdir(parents=True)
        (folder / "figures" / "graph.png").write_bytes(b"picture %d" % seed)
        return plain(job, seed, device, folder)

    monkeypatch.setattr(Scripted, "run", run)
    go(experiment, tmp_path)
    assert (tmp_path / "results" / "scripted-graph.png").read_bytes() == b"picture 0"
    page = (tmp_path / "results" / "scripted.md").read_text()
    assert "![graph](scripted-graph.png)" in page
    assert "absent" not in page


# ---- the registered experiments and the committed results -----------------------------------------------------------
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_a_registered_experiment_names_what_exists(experiment: Experiment) -> None:
    assert find(experiment.name, EXPERIMENTS) is experiment
    assert len({job.key for job in experiment.jobs}) == len(experiment.jobs)  # each has folders of its own
    assert experiment.title.strip()
    assert experiment.seeds >= (1 if experiment.name == "sachs" else 3)  # one table, and learners without chance
    for job in experiment.jobs:
        assert job.data in {entry.name for entry in datasets()} | {"sachs"}  # which is a table without pictures
        if isinstance(job, Train) and job.model != "ground-truth":
            assert ("r2" in experiment.shown) == ("r2_min" in experiment.shown)  # the parts with the whole
            build_settings(MODELS[job.model].Settings, job.settings)
        elif isinstance(job, Discover):
            assert job.model in METHODS


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_committed_results_have_the_format_all_seeds_and_a_page_made_from_them(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    check_format(document)
    assert document["experiment"] == path.stem
    assert re.fullmatch(r"[0-9a-f]{7,}(, [0-9a-f]{7,})*", document["revision"]), "made from a tree with uncommitted changes, or from none"
    whole = find(path.stem.removesuffix("-quick"), EXPERIMENTS)
    experiment = whole.quick_form if path.stem.endswith("-quick") else whole
    left_out = document.get("missing", [])
    assert set(left_out) <= {f"{job.key}-{seed}" for job in experiment.jobs for seed in range(job.seeds or experiment.seeds)}
    jobs = {(job.data, job.model, job.variant): job for job in experiment.jobs}
    for row in split_parts(experiment, document["rows"]):  # every seed is there, or it is named as missing
        job = jobs[row["data"], row["model"], row["variant"]]
        seeds = range(job.seeds or experiment.seeds)
        assert {*row["per_seed"]} >= {str(seed) for seed in seeds if f"{job.key}-{seed}" not in left_out}
    assert max(len(row["per_seed"]) for row in document["rows"]) >= experiment.seeds
    pictures = [name for name in experiment.pictures if path.with_name(f"{path.stem}-{name}.png").is_file()]
    assert path.with_suffix(".md").read_text(encoding="utf-8") == markdown(experiment, document, pictures)  # intervae reproduce NAME --table
