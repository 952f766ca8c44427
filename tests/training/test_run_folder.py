"""Run folders: contents, overwriting, full disks, resuming."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from intervae.data import Dataset
from intervae.errors import RunError
from intervae.files import only_writer
from intervae.training import fit
from intervae.training.checkpoint import load_checkpoint
from run_logs import read_lines

QUICK = {"checkpoint_seconds": 0, "tensorboard": False}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_finished_run_has_all_files(make_model: Any, make_data: Any, tmp_path: Path) -> None:
    data = make_data()
    make_model("causal-vae", data).fit(data, out=tmp_path / "run", tensorboard=False)
    assert files(tmp_path / "run") == {
        "config.json",
        "model.safetensors",
        "metrics.jsonl",
        "graph.json",
        "README.md",
        "support.safetensors",
        "checkpoints/last.safetensors",
    }
    progress, _ = load_checkpoint(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert progress.finished


def test_old_run_without_a_new_setting_resumes_with_its_default(
    make_model: Any, make_data: Any, tmp_path: Path
) -> None:
    data = make_data()
    make_model("causal-vae", data).fit(data, out=tmp_path / "run", tensorboard=False)
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    assert config["settings"].pop("influence_weight") == 0.0
    path.write_text(json.dumps(config), encoding="utf-8")
    make_model("causal-vae", data).fit(data, out=tmp_path / "run", tensorboard=False, resume=True)
    with pytest.raises(RunError, match=r"settings\.influence_weight was 0\.0, now 0\.5"):
        make_model("causal-vae", data, influence_weight=0.5).fit(
            data, out=tmp_path / "run", tensorboard=False, resume=True
        )


def test_existing_run_is_replaced_only_with_overwrite(
    toy: Any, toy_data: Dataset, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    toy(epochs=3).fit(toy_data, out=folder, seed=0)
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    with pytest.raises(
        RunError,
        match=r"already holds a run; resume it .*`intervae resume .*`.* \(--overwrite\)",
    ):
        toy(epochs=2).fit(toy_data, out=folder, seed=1)
    assert before == {name: (folder / name).read_bytes() for name in files(folder)}
    model = toy(epochs=2)
    model.fit(toy_data, out=folder, seed=1, overwrite=True)
    alone = toy(epochs=2)
    alone.fit(toy_data, out=tmp_path / "alone", seed=1)
    assert torch.equal(model.first, alone.first)
    assert (folder / "model.safetensors").read_bytes() == (
        tmp_path / "alone" / "model.safetensors"
    ).read_bytes()
    assert len(read_lines(folder)) == 2
    assert json.loads((folder / "config.json").read_text())["seed"] == 1
    assert len(list((folder / "tensorboard").iterdir())) == 1


def test_overwrite_removes_files_of_the_old_run(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    toy().fit(toy_data, out=tmp_path / "run")
    interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        toy().fit(toy_data, out=tmp_path / "run", overwrite=True, **QUICK)
    assert files(tmp_path / "run") == {
        "config.json",
        "metrics.jsonl",
        "checkpoints/last.safetensors",
    }  # an old model would pass for the new one


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_that_is_not_a_run_is_not_changed(
    overwrite: bool, toy: Any, toy_data: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "model.safetensors").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("photos", "file"):
        with pytest.raises(
            RunError,
            match=r"not empty and not a run of intervae|is a file, and a run needs a folder",
        ):
            toy().fit(toy_data, out=tmp_path / name, overwrite=overwrite)
    assert (
        (tmp_path / "photos" / "model.safetensors").read_text()
        == (tmp_path / "file").read_text()
        == "mine"
    )
    assert files(tmp_path) == {"photos/model.safetensors", "file"}


def test_unwritable_folder_is_a_run_error(
    toy: Any, toy_data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="is not a folder"):
        toy().fit(toy_data, out=tmp_path / "file" / "run")

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", denied)
        with pytest.raises(
            RunError, match=r"cannot be written to \(Permission denied\); choose another folder"
        ):
            toy().fit(toy_data, out=tmp_path / "run")
    toy().fit(toy_data, out=tmp_path / "run", **QUICK)
    monkeypatch.setattr(Path, "unlink", denied)
    with pytest.raises(RunError, match="cannot be written to"):
        toy().fit(toy_data, out=tmp_path / "run", overwrite=True, **QUICK)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_at_any_write_leaves_a_resumable_run(
    call: str, toy: Any, toy_data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, left = getattr(os, call), [0]

    def full(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(*arguments)

    monkeypatch.setattr(os, call, full)
    whole = toy(keep_best=True)
    whole.fit(toy_data, out=tmp_path / "whole", **QUICK)
    writes = -left[0]
    assert writes >= 8
    for fails in range(1, writes + 1):
        folder, left[0] = tmp_path / f"{fails}", fails
        with pytest.raises(
            RunError,
            match=r"no space left to write .*; free some and go on with resume=True \(--resume\)",
        ) as caught:
            toy(keep_best=True).fit(toy_data, out=folder, **QUICK)
        assert "\n" not in str(caught.value)
        assert not [name for name in files(folder) if name.endswith(".tmp")]
        left[0] = 0
        started = (folder / "config.json").exists()
        if (folder / "checkpoints" / "last.safetensors").exists():
            load_checkpoint(folder / "checkpoints" / "last.safetensors")
        toy(keep_best=True).fit(toy_data, out=folder, resume=started, **QUICK)
        assert (folder / "model.safetensors").read_bytes() == (
            tmp_path / "whole" / "model.safetensors"
        ).read_bytes()


def test_partial_files_of_a_killed_process_are_removed(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.json.123.tmp").write_text(
        "{"
    )  # killed in the very first write: the folder counts as empty
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        toy().fit(toy_data, out=folder, **QUICK)
    (folder / "checkpoints" / ".last.safetensors.123.tmp").write_text("half")
    interrupt(0)
    toy().fit(toy_data, out=folder, resume=True, **QUICK)
    assert not [name for name in files(folder) if name.endswith(".tmp")]


def test_run_is_resumed_only_with_the_same_settings(
    make_model: Any, make_data: Any, tmp_path: Path
) -> None:
    data = make_data()
    make_model("causal-vae", data, epochs=1).fit(data, out=tmp_path / "run", seed=3, **QUICK)
    other = make_data(seed=1)
    for model, training_data, options, words in (
        (
            make_model("causal-vae", data, epochs=2),
            data,
            {"seed": 3},
            r"settings\.epochs was 1, now 2",
        ),
        (
            make_model("causal-vae", data, epochs=1, channels=(8, 4)),
            data,
            {"seed": 3},
            r"settings\.channels\[1\] was 8, now 4",
        ),
        (make_model("causal-vae", data, epochs=1), data, {"seed": 4}, "seed was 3, now 4"),
        (
            make_model("causal-vae", data, epochs=1),
            data,
            {"seed": 3, "precision": "bf16"},
            "precision was 'float32', now 'bf16'",
        ),
        (
            make_model("causal-vae", other, epochs=1),
            other,
            {"seed": 3},
            r"spec\.variables\[0\]\.mean was",
        ),
    ):
        with pytest.raises(RunError, match=words) as caught:
            model.fit(training_data, out=tmp_path / "run", resume=True, **{**QUICK, **options})
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500
    make_model("causal-vae", data, epochs=1).fit(
        data, out=tmp_path / "run", seed=3, resume=True, checkpoint_seconds=9, tensorboard=False
    )


def test_another_model_is_not_resumed(
    toy: Any, toy_data: Dataset, make_model: Any, tmp_path: Path
) -> None:
    toy().fit(toy_data, out=tmp_path / "run", **QUICK)
    with pytest.raises(RunError, match="model was 'toy', now 'causal-vae'"):
        make_model("causal-vae", toy_data).fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)


def test_resuming_a_finished_run_changes_nothing(
    toy: Any, toy_data: Dataset, tmp_path: Path
) -> None:
    model = toy()
    first = model.fit(toy_data, out=tmp_path / "run", **QUICK)
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    again = toy()
    second = again.fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)
    assert second.history == first.history
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights
    assert torch.equal(model.first, again.first)


def test_errors_of_runs_that_cannot_be_resumed(toy: Any, toy_data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="pass out="):
        toy().fit(toy_data, resume=True)
    with pytest.raises(
        RunError,
        match=r"nowhere does not exist, so there is nothing to resume; start it without resume",
    ):
        toy().fit(toy_data, out=tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"no config\.json.*not a complete run"):
        toy().fit(toy_data, out=tmp_path / "empty", resume=True)
    toy().fit(toy_data, out=tmp_path / "run", **QUICK)
    checkpoint = tmp_path / "run" / "checkpoints" / "last.safetensors"
    whole = checkpoint.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        b"x" * 100,
        (tmp_path / "run" / "model.safetensors").read_bytes(),
    ):
        checkpoint.write_bytes(damaged)
        with pytest.raises(RunError, match="not a checkpoint of intervae or is damaged") as caught:
            toy().fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)
        assert "\n" not in str(caught.value)
    checkpoint.unlink()
    with pytest.raises(RunError, match=r"no checkpoint to resume from.*--overwrite"):
        toy().fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)
    (tmp_path / "run" / "config.json").write_text("[]")
    with pytest.raises(RunError, match="not the config of an intervae run"):
        toy().fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)


def test_run_that_is_being_trained_is_locked(
    make_model: Any, pendulum: Dataset, tmp_path: Path
) -> None:
    fit(make_model("causal-vae", pendulum), pendulum, seed=0, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with only_writer(tmp_path / "run"):
        for how in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(RunError, match="run is being trained by another process"):
                fit(
                    make_model("causal-vae", pendulum),
                    pendulum,
                    seed=0,
                    out=tmp_path / "run",
                    **how,
                )
    assert {
        path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    } == before
    fit(make_model("causal-vae", pendulum), pendulum, seed=0, out=tmp_path / "run", resume=True)


def test_overwriting_leaves_no_old_evaluation_or_figures(
    make_model: Any, make_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the new training is interrupted at once."""
    data, run = make_data(), tmp_path / "run"
    make_model("causal-vae", data).fit(data, out=run, tensorboard=False)
    (run / "figures").mkdir()
    old = ("evaluation.json", "evaluation-other.json", "figures/sweep.png", "report.html")
    for name in old:
        (run / name).write_text("old")
    (run / "figures" / "mine.txt").write_text("mine")

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("intervae.training.loop.Trainer.run_phase", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_model("causal-vae", data).fit(data, out=run, overwrite=True, tensorboard=False)
    assert not any((run / name).exists() for name in old)
    assert (run / "figures" / "mine.txt").read_text() == "mine"
    assert not (run / "model.safetensors").exists()
