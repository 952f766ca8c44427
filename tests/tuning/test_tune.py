"""`tune`: validation split only, resumed searches equal uninterrupted ones, trials as runs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("optuna", reason="the extra [tune] is not installed")

import intervae
from command import PENDULUM, program, refused
from command import intervae as call
from intervae.data import Dataset
from intervae.errors import RunError, UsageError
from intervae.figures import search_progress
from intervae.training import fit
from intervae.tuning import Search, Trial, tune

TINY: dict[str, Any] = {"channels": (4, 4), "hidden": 16, "epochs": 2, "batch_size": 16}
SEARCH = {"learning_rate": "log:1e-4:3e-2", "latents": "2:4", "network": "conv|mlp"}
WORDS = [
    "tune", "vae", *PENDULUM, "--set", "channels=4,4", "--set", "hidden=16", "--set",
    "batch_size=16", "--epochs", 2, "--device", "cpu",
]  # fmt: skip


def search_in(folder: Path, data: Dataset, budget: int = 4, **options: Any) -> Search:
    options = {"search": SEARCH, **TINY, **options}
    return tune("vae", data, budget=budget, out=folder, device="cpu", **options)


def results(search: Search) -> list[tuple[dict[str, Any], float | None]]:
    return [(dict(trial.settings), trial.value) for trial in search.trials]


@pytest.fixture(scope="module")
def searched(pendulum: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Search:
    return search_in(tmp_path_factory.mktemp("search"), pendulum)


def test_the_best_trial_has_the_least_validation_loss_of_its_run(searched: Search) -> None:
    losses = []
    for trial in searched.trials:
        lines = (trial.folder / "metrics.jsonl").read_text().splitlines()
        assert len(lines) == TINY["epochs"]
        losses.append(json.loads(lines[-1])["validation"]["loss"])
        config = json.loads((trial.folder / "config.json").read_text())
        assert config["settings"]["learning_rate"] == trial.settings["learning_rate"]
    assert [trial.value for trial in searched.trials] == losses
    assert searched.best.value == min(losses) < max(losses)


def test_the_command_trains_the_best_settings(searched: Search, pendulum: Dataset) -> None:
    words = shlex.split(searched.command)
    values = dict(w.split("=") for w in words if "=" in w)
    assert words[:5] == ["intervae", "train", "vae", "--data", pendulum.name]
    settings: dict[str, Any] = {**values, "epochs": 2}
    model = intervae.create("vae", pendulum, **settings)
    history = fit(model, pendulum, seed=0, device="cpu").history
    assert history[-1]["validation"]["loss"] == searched.best.value


def test_a_preset_is_the_start_of_every_trial(pendulum: Dataset, tmp_path: Path) -> None:
    options = {"search": {"learning_rate": "1e-3|2e-3"}, "device": "cpu", "preset": "paper"}
    fixed = {name: TINY[name] for name in ("channels", "hidden", "epochs")}
    fixed |= {"network": "conv"}
    search = tune("beta-vae", pendulum, budget=1, out=tmp_path, **options, **fixed)
    settings = json.loads((search.trials[0].folder / "config.json").read_text())["settings"]
    paper = intervae.MODELS["beta-vae"].presets["paper"].settings
    own = {*fixed, *options["search"]}
    assert {settings[name] for name in ("beta", "latents")} == {paper["beta"], paper["latents"]}
    assert all(settings[name] != paper[name] for name in own & paper.keys())
    assert "--preset paper" in search.command
    with pytest.raises(RunError, match="preset"):  # another search
        tune("beta-vae", pendulum, budget=2, out=tmp_path, **{**options, "preset": None}, **fixed)


def test_the_test_split_is_never_read(searched: Search, pendulum: Dataset, tmp_path: Path) -> None:
    poisoned = pendulum.test.with_fields(
        {name: torch.full_like(t, 255) for name, t in pendulum.test.fields.items()}
    )
    other = replace(pendulum, test=poisoned)
    assert results(search_in(tmp_path / "a", other)) == results(searched)
    metric = {"budget": 2, "metric": "reconstruction"}
    normal = search_in(tmp_path / "b", pendulum, **metric)
    assert results(search_in(tmp_path / "c", other, **metric)) == results(normal)
    model = intervae.load(normal.best.folder)
    on_validation = intervae.evaluate(model, replace(pendulum, test=pendulum.validation))
    value = next(m.value for m in on_validation if m.metric == "reconstruction_pixel_mae")
    assert normal.best.value == pytest.approx(value)


def test_more_is_better_where_the_metric_says_so(pendulum: Dataset, tmp_path: Path) -> None:
    result = search_in(tmp_path, pendulum, budget=3, metric="mic")
    values = [trial.value for trial in result.trials]
    assert result.higher_is_better
    assert result.best.value == max(values) > min(values)  # type: ignore[type-var]


def test_a_search_in_parts_equals_an_uninterrupted_one(
    searched: Search, pendulum: Dataset, tmp_path: Path
) -> None:
    search_in(tmp_path, pendulum, budget=1)
    calls = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(options["out"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fit(*arguments, **options)

    with (
        mock.patch("intervae.tuning.study.fit", interrupted),
        pytest.raises(KeyboardInterrupt),
    ):
        search_in(tmp_path, pendulum)
    stored = json.loads((tmp_path / "trials.json").read_text())
    assert len(stored["trials"]) == 2  # finished trials stay
    with mock.patch("intervae.tuning.study.fit", mock.Mock(side_effect=fit)) as trained:
        again = search_in(tmp_path, pendulum)
    assert [c.kwargs["out"].name for c in trained.call_args_list] == ["trial-002", "trial-003"]
    assert results(again) == results(searched)
    with mock.patch("intervae.tuning.study.fit") as trained:
        assert results(search_in(tmp_path, pendulum)) == results(searched)
    trained.assert_not_called()


def test_a_failed_trial_has_its_reason_and_the_search_goes_on(
    pendulum: Dataset, tmp_path: Path
) -> None:
    search = {"batch_size": "16|100000"}
    settings = {name: value for name, value in TINY.items() if name != "batch_size"}
    result = tune("vae", pendulum, budget=5, out=tmp_path, search=search, device="cpu", **settings)
    failed = [trial for trial in result.trials if trial.value is None]
    assert 0 < len(failed) < 5
    assert all("fewer than one batch" in trial.reason for trial in failed)
    assert result.best.settings == {"batch_size": "16"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"search": {"latents": "2:5"}}, "another search"),
        ({"seed": 1}, "another seed"),
        ({"metric": "mic"}, "another objective"),
        ({"hidden": 8}, "another settings"),
    ],
)
def test_another_search_in_the_same_folder_is_refused(
    searched: Search, pendulum: Dataset, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RunError, match=words):
        search_in(searched.best.folder.parent, pendulum, **changes)


def test_overwrite_replaces_a_search(pendulum: Dataset, tmp_path: Path) -> None:
    search_in(tmp_path, pendulum, budget=2)
    new = search_in(tmp_path, pendulum, budget=1, seed=3, overwrite=True)
    assert len(new.trials) == 1
    config = json.loads((new.best.folder / "config.json").read_text())
    assert config["seed"] == 3


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("vae", {"search": {"latents": "2:4"}, "latents": 3}, "both fixed and searched"),
        ("vae", {"metric": "mik"}, "did you mean 'mic'"),
        ("pca", {"search": {}}, "no default search"),
        ("causal-gan", {"search": {"batch_size": "8|16"}}, "name what to compare with --metric"),
        ("vae", {"budget": 0}, "budget=0 must be a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(
    model: str, options: dict[str, Any], words: str, pendulum: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        tune(model, pendulum, **{"budget": 1, "out": tmp_path / "s", **options})
    assert not (tmp_path / "s").exists()


def test_a_damaged_storage_is_one_sentence(pendulum: Dataset, tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"no database" * 100)
    with pytest.raises(RunError, match="not a search of intervae or is damaged"):
        search_in(tmp_path, pendulum)


def test_without_optuna_the_error_names_the_extra(
    pendulum: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"intervae\[tune\]"):
        search_in(tmp_path, pendulum)


# ---- the command ---------------------------------------------------------------------------------
def test_the_command_prints_the_best_settings(tmp_path: Path) -> None:
    done = call(*WORDS, "--budget", 2, "--search", "latents=2|3", "--out", tmp_path / "s")
    assert done.code == 0, done
    command = done.out.splitlines()[-1].strip()
    assert command.startswith("intervae train vae --data pendulum --size 16 --data-option")
    assert {"study.db", "trials.json", "search.png", "trial-000", "trial-001"} <= {
        path.name for path in (tmp_path / "s").iterdir()
    }
    best = json.loads((tmp_path / "s" / "trials.json").read_text())
    assert best["command"] == command
    trained = call(
        *shlex.split(command)[1:], "--out", tmp_path / "best", "--no-evaluate", "--device", "cpu"
    )
    assert trained.code == 0, trained
    weights = [
        (folder / "model.safetensors").read_bytes()
        for folder in (tmp_path / "best", tmp_path / "s" / f"trial-{best['best']:03d}")
    ]
    assert weights[0] == weights[1]
    refused(call(*WORDS, "--budget", 2, "--search", "latent=2|3"), 2, "did you mean 'latents'")


@pytest.mark.slow
def test_a_killed_search_goes_on_with_the_trial_that_it_trained(tmp_path: Path) -> None:
    """The process is killed with SIGKILL in its second trial; the same command ends the search."""
    words = [*WORDS, "--set", "checkpoint_seconds=0", "--epochs", 60, "--budget", 3]
    words = [*words, "--search", "learning_rate=log:1e-4:1e-2", "--out"]
    del words[words.index("--epochs") : words.index("--epochs") + 2]
    whole = program(*words, tmp_path / "whole")
    assert whole.code == 0, whole
    command = [sys.executable, "-m", "intervae", *map(str, words), str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    log = tmp_path / "killed" / "trial-001" / "metrics.jsonl"
    while not (log.is_file() and len(log.read_text().splitlines()) > 10):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = program(*words, tmp_path / "killed")
    assert again.code == 0, again
    first, second = (
        json.loads((tmp_path / name / "trials.json").read_text()) for name in ("whole", "killed")
    )
    assert first["trials"] == second["trials"]
    seconds = json.loads((tmp_path / "killed/trial-001/config.json").read_text())
    assert seconds["settings"]["epochs"] == 60


# ---- the figure ----------------------------------------------------------------------------------
def test_the_figure_has_a_panel_of_each_setting(tmp_path: Path) -> None:
    trials = [
        Trial(0, {"rate": 1e-3, "net": "conv"}, tmp_path, 2.0),
        Trial(1, {"rate": 1e-2, "net": "mlp"}, tmp_path, 1.0),
        Trial(2, {"rate": 1e-1, "net": "mlp"}, tmp_path, None, "it failed"),
    ]
    search = {
        "rate": {"low": 1e-3, "high": 1e-1, "log": True},
        "net": {"values": ["conv", "mlp"]},
    }
    rows = [vars(trial) for trial in trials]
    search_progress(tmp_path / "search.svg", rows, search, "validation loss")
    text = (tmp_path / "search.svg").read_text()
    for word in ("2 trials, 1 more failed", "best so far", ">rate<", ">net<", ">conv<", ">mlp<"):
        assert word in text, word
