"""`run_experiment`: a small experiment for real, stored numbers, seeds, resumed experiments."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intervae as package
from command import contents
from intervae.data.simulators import Pendulum
from intervae.errors import RunError, TrainingError, UsageError
from intervae.experiments import (
    Discover,
    Experiment,
    MetricKey,
    Train,
    jobs,
)
from scripted_experiment import check_format, executed, reproduce_in, scripted, two_jobs

ROOT = Path(__file__).parents[2]


SETTINGS = {"channels": (8, 8), "dims": 2, "hidden": 32, "batch_size": 16, "epochs": 2}


TRAIN = Train(
    "pendulum",
    "causal-vae",
    {"size": 16, "samples": 96},
    SETTINGS,
    "small",
    {"r2_min": 0.987, "counterfactual_pixel_mae": 0.25},
)


DISCOVER = Discover("pendulum", "independence", {"samples": 120}, {"samples": 80})


TINY = Experiment(
    "tiny",
    "A tiny table",
    (TRAIN, DISCOVER),
    seeds=2,
    shown=("r2_min", "counterfactual_pixel_mae", "shd"),
    notes=("lvae-norb",),
)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """Return the folder, the result and the progress lines of a tiny experiment."""
    folder, lines = tmp_path_factory.mktemp("tiny"), []
    return folder, reproduce_in(TINY, folder, notify=lines.append), lines


def test_results_have_the_format_and_equal_the_file(
    reproduced: tuple[Path, dict[str, Any], list[str]],
) -> None:
    folder, document, lines = reproduced
    check_format(document)
    assert json.loads((folder / "results" / "tiny.json").read_text()) == document
    assert document["command"] == "intervae reproduce tiny --seeds 2"
    assert len(lines) == 4
    assert re.fullmatch(
        r"pendulum-causal-vae-small seed 0: r2_min \S+, counterfactual_pixel_mae \S+, shd \S+",
        lines[0],
    )
    script = ROOT.parent / "shared" / "tools" / "results-check"
    if script.is_file():
        done = subprocess.run(
            [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_every_number_equals_that_of_its_run(
    reproduced: tuple[Path, dict[str, Any], list[str]],
) -> None:
    folder, document, _ = reproduced
    rows = {(row["model"], row["metric"], row["variant"]): row for row in document["rows"]}
    data = Pendulum().dataset(size=16, samples=96)
    for seed in (0, 1):
        run = folder / "runs" / "tiny" / f"pendulum-causal-vae-small-{seed}"
        for m in package.evaluate(package.load(run), data):
            assert rows["causal-vae", m.metric, "small"]["per_seed"][str(seed)] == pytest.approx(
                m.value, rel=1e-5
            )
            if m.metric in ("mic", "tic"):
                assert (
                    rows["causal-vae", f"{m.metric}_by_chance", "small"]["per_seed"][str(seed)]
                    == m.parameters["by_chance"]["value"]
                )
            for name, value in m.per_variable.items():
                part = m.metric.removesuffix("_min")  # a variable's own R2 is no minimum
                assert rows["causal-vae", part, f"small {name}"]["per_seed"][
                    str(seed)
                ] == pytest.approx(value, rel=1e-5)
        assert json.loads((run / "config.json").read_text())["seed"] == seed
        assert {"evaluation.json", "figures/interventions.png"} <= set(contents(run))
        graph = package.CausalGraph.from_json(
            (folder / "runs" / "tiny" / f"pendulum-independence-{seed}" / "graph.json").read_text()
        )
        assert rows["independence", "shd", ""]["per_seed"][str(seed)] == Pendulum.graph.shd(graph)
    weights = [
        (
            folder / "runs" / "tiny" / f"pendulum-causal-vae-small-{seed}" / "model.safetensors"
        ).read_bytes()
        for seed in (0, 1)
    ]
    assert weights[0] != weights[1]
    assert rows["causal-vae", "r2_min", "small"]["paper"] == 0.987
    assert rows["causal-vae", "counterfactual_pixel_mae", "small"]["paper"] == 0.25
    assert sum("paper" in row for row in document["rows"]) == 2


def test_causes_effects_and_doing_nothing_are_recorded(
    reproduced: tuple[Path, dict[str, Any], list[str]],
) -> None:
    rows = {
        (row["metric"], row["variant"].removeprefix("small").strip()): row["mean"]
        for row in reproduced[1]["rows"]
        if row["model"] == "causal-vae"
    }
    for over in ("", "_causes", "_effects"):
        assert rows[f"counterfactual_pixel_mae{over}_doing_nothing", ""] == pytest.approx(
            rows[f"identity_pixel_mae{over}", ""]
        )
        assert rows[f"outside_mask_mae{over}_doing_nothing", ""] == 0
        assert 0 < rows[f"changed_outside_share{over}_reconstruction", ""] <= 1
    shadows = [rows["counterfactual_psnr", name] for name in ("shadow_length", "shadow_position")]
    assert rows["counterfactual_psnr_effects", ""] == pytest.approx(sum(shadows) / 2)
    for name in Pendulum.graph.names:
        assert rows["counterfactual_pixel_mae_doing_nothing", name] == pytest.approx(
            rows["identity_pixel_mae", name]
        )


def test_finished_runs_are_not_run_again(
    reproduced: tuple[Path, dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, document, _ = reproduced
    before = contents(folder / "runs")
    for kind in (Train, Discover):
        monkeypatch.setattr(kind, "run", lambda *_: pytest.fail("this was finished"))
    assert reproduce_in(TINY, folder)["rows"] == document["rows"]
    assert contents(folder / "runs") == before


def test_trained_run_without_numbers_is_only_evaluated(
    reproduced: tuple[Path, dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, document, _ = reproduced
    monkeypatch.setattr(jobs, "write_figures", lambda *_: [])  # they take their time
    run = folder / "runs" / "tiny" / "pendulum-causal-vae-small-1"
    weights = (run / "model.safetensors").read_bytes()
    (run / "numbers.json").unlink()
    assert reproduce_in(TINY, folder)["rows"] == document["rows"]  # the seconds of training as well
    assert (run / "model.safetensors").read_bytes() == weights


def test_numbers_of_other_settings_are_refused(
    reproduced: tuple[Path, dict[str, Any], list[str]],
) -> None:
    folder, _, _ = reproduced
    before = contents(folder)
    for job in (
        replace(TRAIN, settings={**SETTINGS, "epochs": 3}),
        replace(TRAIN, options={"size": 24, "samples": 96}),
    ):
        with pytest.raises(
            UsageError,
            match="causal-vae-small-0 holds the numbers of other settings; remove it or choose",
        ):
            reproduce_in(replace(TINY, jobs=(job,)), folder)
    assert contents(folder) == before


def test_each_seed_of_a_discovery_has_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[np.ndarray, int]] = []

    def spy(table: np.ndarray, *arguments: Any, **options: Any) -> Any:
        calls.append((table, options["seed"]))
        return package.discover(table, *arguments, **options)

    monkeypatch.setattr(jobs, "discover", spy)
    reproduce_in(replace(TINY, jobs=(DISCOVER,)), tmp_path)
    assert [seed for _, seed in calls] == [0, 1]
    assert calls[0][0].shape == calls[1][0].shape
    assert not np.isin(calls[0][0][:, 0], calls[1][0][:, 0]).any()  # angles of the pendulum


def timeless(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["rows"] if row["metric"] not in ("seconds", "train_seconds")]


def test_concurrent_runs_give_the_same_rows(
    reproduced: tuple[Path, dict[str, Any], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "write_figures", lambda *_: [])  # they take their time
    folder, document, _ = reproduced
    lines: list[str] = []
    again = reproduce_in(TINY, tmp_path, concurrent=2, notify=lines.append)
    assert timeless(again) == timeless(document)
    assert len(lines) == 4
    for seed in (0, 1):
        run = f"pendulum-causal-vae-small-{seed}"
        weights = [
            (where / "runs" / "tiny" / run / "model.safetensors").read_bytes()
            for where in (folder, tmp_path)
        ]
        assert weights[0] == weights[1]


def test_stack_of_the_seeds_gives_the_rows_of_single_runs(
    reproduced: tuple[Path, dict[str, Any], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "write_figures", lambda *_: [])
    monkeypatch.setattr(jobs.Train, "train", trained_before(jobs.Train.train))
    experiment = replace(TINY, jobs=(TRAIN,))
    for concurrent in (1, 2):
        again = reproduce_in(experiment, tmp_path / str(concurrent), concurrent=concurrent, stack=1)
        rows = {(r["metric"], r["variant"]): r["per_seed"] for r in timeless(reproduced[1])}
        for row in timeless(again):
            assert row["per_seed"] == pytest.approx(
                rows[row["metric"], row["variant"]], rel=1e-3, abs=1e-3
            )
    folder = tmp_path / "1" / "runs" / "tiny" / "pendulum-causal-vae-small-1"
    assert json.loads((folder / "config.json").read_text())["stack"] == 2


def trained_before(train: Any) -> Any:
    """`Train.train` for runs that a stack has trained already."""

    def check(self: Train, data: Any, seed: int, device: str, folder: Path) -> Any:
        assert (folder / "model.safetensors").is_file()
        return train(self, data, seed, device, folder)

    return check


def test_job_that_is_no_stack_says_why_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "write_figures", lambda *_: [])
    settings = {"channels": (8, 8), "latents": 2, "epochs": 1, "batch_size": 16}
    job = Train("pendulum", "factor-vae", {"size": 16, "samples": 96}, settings, metrics=("mic",))
    lines: list[str] = []
    experiment = Experiment("tiny", "A tiny table", (job,), 2, ("mic",))
    document = reproduce_in(experiment, tmp_path, stack=True, notify=lines.append)
    assert lines[0] == (
        "pendulum-factor-vae: its seeds are trained one by one, because it has 2 players that "
        "take turns."
    )
    assert len(lines) == 3
    assert document["rows"][0]["per_seed"].keys() == {"0", "1"}


def test_interrupted_experiment_is_resumed(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            reproduce_in(scripted(1.0, 2.0, "stop", 4.0), tmp_path)
    assert executed(tmp_path) == ["a0", "a1", "a2", "a2"]
    assert not (tmp_path / "results").exists()
    (tmp_path / "runs" / "scripted" / "fixed").write_text("")
    document = reproduce_in(scripted(1.0, 2.0, "stop", 4.0), tmp_path)
    assert executed(tmp_path) == ["a0", "a1", "a2", "a2", "a2", "a3"]
    assert document["rows"][0]["per_seed"] == {"0": 1.0, "1": 2.0, "2": 9.0, "3": 4.0}


def test_more_seeds_extend_the_table(tmp_path: Path) -> None:
    experiment = scripted(1.0, 3.0, 8.0)
    few = reproduce_in(experiment, tmp_path, seeds=2)
    assert few["rows"][0]["per_seed"] == {"0": 1.0, "1": 3.0}
    assert few["rows"][0]["std"] == pytest.approx(math.sqrt(2))
    assert few["command"] == "intervae reproduce scripted --seeds 2"
    full = reproduce_in(experiment, tmp_path)
    assert executed(tmp_path) == ["a0", "a1", "a2"]
    check_format(full)
    assert [
        (row["metric"], row["variant"], row["mean"], row.get("paper")) for row in full["rows"]
    ] == [
        ("score", "a", 4.0, 4.5),
        ("score", "a part", 8.0, None),
    ]
    assert reproduce_in(experiment, tmp_path, seeds=1, overwrite=True)["rows"][0]["std"] == 0
    with pytest.raises(UsageError, match="--seeds 0: at least one seed"):
        reproduce_in(experiment, tmp_path, seeds=0)


def test_job_may_have_its_own_number_of_seeds(tmp_path: Path) -> None:
    experiment = two_jobs([1.0, 2.0, 6.0], [3.0, 4.0], seeds=3)
    document = reproduce_in(experiment, tmp_path)
    check_format(document)
    assert [len(row["per_seed"]) for row in document["rows"]] == [3, 3, 2, 2]
    assert document["rows"][0]["mean"] == 3.0
    assert (
        document["command"] == "intervae reproduce scripted"
    )  # the jobs know how many seeds they have
    assert "2 or 3 seeds, none dropped" in (tmp_path / "results" / "scripted.md").read_text()
    with pytest.raises(UsageError, match=r"scripted\.json has 3 seeds and would be replaced by 1"):
        reproduce_in(experiment, tmp_path, seeds=1)
    few = reproduce_in(experiment, tmp_path, seeds=1, overwrite=True)
    assert [len(row["per_seed"]) for row in few["rows"]] == [1] * 4
    assert few["command"] == "intervae reproduce scripted --seeds 1"


def test_hardware_and_revision_are_those_of_the_stored_numbers(tmp_path: Path) -> None:
    first = reproduce_in(scripted(1.0, 2.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-0" / "numbers.json"
    stored = json.loads(path.read_text())
    assert stored["hardware"] == first["hardware"]
    path.write_text(json.dumps({**stored, "hardware": "NVIDIA H200", "revision": "abc"}))
    again = reproduce_in(scripted(1.0, 2.0), tmp_path)
    assert again["hardware"] == f"NVIDIA H200, {first['hardware']}"
    assert again["revision"].startswith("abc, ") or first["revision"] == ""


def test_versions_are_those_of_the_stored_numbers(tmp_path: Path) -> None:
    reproduce_in(scripted(1.0, 2.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-1" / "numbers.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "versions": {**stored["versions"], "torch": "1.2.3"}}))
    versions = reproduce_in(scripted(1.0, 2.0), tmp_path)["versions"]
    assert versions == {**stored["versions"], "torch": f"{stored['versions']['torch']}, 1.2.3"}


@pytest.mark.parametrize("change", [{"intervae": "0.0.1"}, {"seed": 5}, {"numbers": None}, None])
def test_old_or_damaged_numbers_are_refused(change: dict[str, Any] | None, tmp_path: Path) -> None:
    reproduce_in(scripted(1.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-0" / "numbers.json"
    stored = json.loads(path.read_text())
    path.write_text(
        json.dumps(
            []
            if change is None
            else {key: value for key, value in {**stored, **change}.items() if value is not None}
        )
    )
    with pytest.raises(UsageError, match="holds the numbers of other settings"):
        reproduce_in(scripted(1.0), tmp_path)
    path.write_text("{")
    with pytest.raises(RunError, match=r"numbers\.json .* cannot be read"):
        reproduce_in(scripted(1.0), tmp_path)


def test_seeds_with_other_metrics_are_not_mixed(tmp_path: Path) -> None:
    reproduce_in(scripted(1.0, 2.0), tmp_path)
    path = tmp_path / "runs" / "scripted" / "made-method-a-1" / "numbers.json"
    path.write_text(path.read_text().replace("score|part", "score_min|part"))
    with pytest.raises(
        RunError,
        match=r"made-method-a: seed 1 has other metrics than the first "
        r"\(score_min\|part, score\|part\)",
    ):
        reproduce_in(scripted(1.0, 2.0), tmp_path)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_not_finite_raise_an_error(value: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"made-method-a, seed 1: score is (nan|inf)"):
        reproduce_in(scripted(1.0, value), tmp_path)
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "runs" / "scripted" / "made-method-a-1" / "numbers.json").exists()


def test_metric_key_is_stored_as_text_and_read_back() -> None:
    for key, text in ((MetricKey("r2"), "r2"), (MetricKey("r2", "light on"), "r2|light on")):
        assert str(key) == text
        assert MetricKey.parse(text) == MetricKey.parse(key) == key
