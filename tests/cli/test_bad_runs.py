"""Wrong queries and broken run folders on the command line: one sentence, nothing lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import intervae as package
from command import PENDULUM, SMALL, cell, contents, few, intervae, make_folder, refused, succeeded

TRAIN = ["train", "causal-vae", *SMALL]


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (
            ["ligth=40"],
            ("unknown variable in do() 'ligth'", "did you mean 'light'", "shadow_position"),
        ),
        (["light=bright"], ("--do 'light=bright'", "'bright' is not a number")),
        (["light=nan"], ("--do 'light=nan'", "finite")),
        (["light=-inf"], ("finite",)),
        (["light="], ("is not a number",)),
        (["light"], ("not of the form name=value",)),
        (["=3"], ("not of the form name=value",)),
        (["light=3", "light=4"], ("'light' twice",)),
    ],
)
def test_wrong_intervention_is_refused(
    do: list[str], words: tuple[str, ...], finished: Path, tmp_path: Path
) -> None:
    before = contents(finished)
    options = [word for text in do for word in ("--do", text)]
    refused(intervae("intervene", finished, *options, "--out", tmp_path / "strip.png"), 1, *words)
    assert not (tmp_path / "strip.png").exists()
    assert contents(finished) == before


def test_wrong_image_or_index_is_refused(finished: Path, tmp_path: Path) -> None:
    ask = ["intervene", finished, "--do", "light=100", "--out", tmp_path / "strip.png"]
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("hello")
    Image.fromarray(np.zeros((30, 30), np.uint8)).save(tmp_path / "half.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "half.png").read_bytes()[:50])
    for name in ("empty.png", "text.png", "half.png", "nowhere.png"):
        refused(intervae(*ask, "--image", tmp_path / name), 1, name)
    refused(intervae(*ask, "--image", tmp_path), 1, tmp_path.name)
    refused(intervae(*ask, "--index", 24), 1, "--index 24", "24 images, numbered from 0")
    refused(intervae(*ask, "--index", -1), 2, "'--index'")
    assert not (tmp_path / "strip.png").exists()


def test_figure_path_that_cannot_be_written(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(
        intervae(
            "intervene", finished, "--do", "light=100", "--out", tmp_path / "file" / "strip.png"
        ),
        1,
        "is not a folder",
    )
    refused(
        intervae("intervene", finished, "--do", "light=100", "--out", tmp_path / "strip.pdf"),
        2,
        "'.pdf'",
        ".png, .svg",
    )
    refused(intervae("graph", finished, "--out", tmp_path / "file" / "g.svg"), 1, "is not a folder")
    refused(
        intervae("graph", finished, "--out", tmp_path / "g.pdf"),
        2,
        "'.pdf'",
        ".dot, .json, .png, .svg",
    )
    refused(intervae("graph", finished, "--out", tmp_path / "g"), 2, ".dot, .json, .png, .svg")
    assert contents(tmp_path) == {"file": b"x"}


QUERIES: dict[str, list[object]] = {
    "evaluate": [],
    "graph": [],
    "intervene": ["--do", "light=100"],
}


def all_refuse(run: Path, *words: str) -> None:
    """Assert that evaluate, graph and intervene refuse a run and do not change it."""
    before = contents(run) if run.is_dir() else None
    for command, options in QUERIES.items():
        out = ["--out", run.with_name("strip.png")] if command == "intervene" else []
        refused(intervae(command, run, *options, *out), 1, *words)
    assert not run.with_name("strip.png").exists()
    assert before == (contents(run) if run.is_dir() else None)


def test_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    all_refuse(
        tmp_path / "nowhere",
        "nowhere is not a run folder: it does not exist; give the folder that `intervae train`",
    )
    (tmp_path / "file").write_text("x")
    all_refuse(tmp_path / "file", "file is not a run folder: it is a file")
    (tmp_path / "empty").mkdir()
    all_refuse(tmp_path / "empty", "has no config.json", "not a complete run folder")
    (tmp_path / "other").mkdir()
    for text in ('{"name": "somebody else\'s"}', "[1, 2]", "3", "null"):
        (tmp_path / "other" / "config.json").write_text(text)
        all_refuse(tmp_path / "other", "config.json is not the config of an intervae run")
    for text in ("", '{"model": ', "\x00"):
        (tmp_path / "other" / "config.json").write_text(text)
        all_refuse(tmp_path / "other", "config.json", "cannot be read")


def rewrite(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((run / "config.json").read_text())
    change(config)
    (run / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda config: config.update(format=99), ("format 99",)),
        (lambda config: config.update(model="dall-e"), ("'dall-e'", "causal-vae")),
        (lambda config: config["settings"].update(dims="many"), ("config.json", "dims")),
        (
            lambda config: config["settings"].update(colour=3),
            ("config.json", "unknown setting 'colour'"),
        ),
        (
            lambda config: config["settings"].update(dims=3),
            ("model.safetensors", "tensor", "do not belong together"),
        ),
        (
            lambda config: config["spec"].update(image_shape=[3, 32, 32]),
            ("model.safetensors", "do not belong together"),
        ),
        (lambda config: config["spec"].update(image_shape="large"), ("config.json",)),
        (lambda config: config.pop("spec"), ("is not the config of an intervae run",)),
    ],
)
def test_changed_config_is_refused(
    change: Callable[[dict[str, Any]], Any], words: tuple[str, ...], run: Path
) -> None:
    rewrite(run, change)
    all_refuse(run, *words)


def test_missing_or_damaged_weights_are_refused(run: Path) -> None:
    path = run / "model.safetensors"
    good = path.read_bytes()
    tensors = load_file(path)
    first = next(name for name, tensor in tensors.items() if tensor.ndim == 4)
    for broken in (
        b"",
        good[:100],
        good[:-100],
        b"x" * 1000,
        (2**60).to_bytes(8, "little") + good[8:],
    ):
        path.write_bytes(broken)
        all_refuse(run, "model.safetensors is not a readable safetensors file")
    save_file({**tensors, first: tensors[first][:1].copy()}, path)
    all_refuse(run, f"tensor '{first}'", "do not belong together")
    save_file({**tensors, first: tensors[first].astype(np.float64)}, path)
    all_refuse(run, f"tensor '{first}'", "torch.float64")
    save_file({name: tensor for name, tensor in tensors.items() if name != first}, path)
    all_refuse(run, f"lacks the tensor '{first}'")
    save_file({**tensors, "more": np.zeros(3)}, path)
    all_refuse(run, "unknown tensor 'more'")
    path.unlink()
    all_refuse(run, "has no model.safetensors", f"go on with `intervae resume {run}`")
    path.write_bytes(good)
    succeeded(intervae("graph", run))


@pytest.mark.parametrize("text", ["", "[{", "{}", "[3]"])
def test_damaged_evaluation_is_not_overwritten(text: str, run: Path) -> None:
    (run / "evaluation.json").write_text(text)
    refused(intervae("evaluate", run), 1, "evaluation.json")
    assert (run / "evaluation.json").read_text() == text


def test_missing_or_changed_data_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "mine")
    run = tmp_path / "run"
    succeeded(
        intervae(*TRAIN, "--data", folder, "--set", "graph=joint", "--no-evaluate", "--out", run)
    )
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for change, words in (
        (
            few(79),
            (
                "had 80 samples and has 79 now",
                "put the old data back, or",
                "`intervae train ... --overwrite`",
            ),
        ),
        (
            cell(1, 2, "breadth"),
            (
                "mine has changed since",
                "put the old data back, or",
                "`intervae train ... --overwrite`",
            ),
        ),
        (cell(2, 2, "4711"), ("mine has changed since",)),
        (shutil.rmtree, ("the data is no longer at",)),
    ):
        change(folder)
        before = contents(run)
        refused(intervae("evaluate", run), 1, *words)
        refused(intervae("resume", run), 1, *words)
        refused(
            intervae("intervene", run, "--do", "level=100", "--out", tmp_path / "strip.png"),
            1,
            *words,
        )
        assert contents(run) == before
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(copy, folder)
    succeeded(intervae("evaluate", run))
    shutil.rmtree(folder)
    succeeded(intervae("graph", run))  # needs no data
    succeeded(
        intervae(
            "intervene",
            run,
            "--do",
            "level=100",
            "--image",
            copy / "00.png",
            "--out",
            tmp_path / "strip.png",
        )
    )
    for source in ({}, None, {"object": "TensorDataset"}, 3):
        rewrite(run, lambda config, source=source: config.update(data=source))  # type: ignore[misc]
        refused(intervae("evaluate", run), 1, "cannot be loaded")


def test_existing_files_are_not_replaced_by_a_new_run(run: Path, tmp_path: Path) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--no-evaluate", "--out"]
    (tmp_path / "file").write_text("x")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("once upon a time")
    before = contents(tmp_path)
    refused(intervae(*train, run), 1, "already holds a run", "intervae resume", "--overwrite")
    for more in ([], ["--overwrite"]):
        refused(
            intervae(*train, tmp_path / "thesis", *more), 1, "not empty and not a run of intervae"
        )
        refused(
            intervae(*train, tmp_path / "file", *more), 1, "is a file, and a run needs a folder"
        )
        refused(intervae(*train, tmp_path / "file" / "run", *more), 1, "is not a folder")
    assert contents(tmp_path) == before


def test_refused_resume_changes_nothing(run: Path, tmp_path: Path) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--no-evaluate", "--resume", "--out"]
    before = contents(run)
    refused(
        intervae(*train, tmp_path / "nowhere"),
        1,
        "does not exist",
        "start it without resume=True (--resume)",
    )
    unstarted = intervae("resume", tmp_path / "nowhere")
    refused(unstarted, 1, "is not a run folder", f"{tmp_path} has {run.name}.")
    assert unstarted.out == ""
    assert not (tmp_path / "nowhere").exists()
    refused(intervae(*train, run, "--seed", 1), 1, "was started differently", "seed was 0, now 1")
    refused(
        intervae(*train, run, "--set", "dims=3"),
        1,
        "was started differently",
        "settings.dims was 2, now 3",
    )
    refused(intervae(*train, run, "--size", "24"), 1, "was started differently", "image_shape")
    assert contents(run) == before
    (run / "checkpoints" / "last.safetensors").write_bytes(b"x" * 100)
    before = contents(run)
    refused(intervae(*train, run), 1, "last.safetensors", "is damaged")
    assert contents(run) == before
    package.load(run)


def test_resume_of_finished_and_incomplete_runs(
    run: Path,
) -> None:
    weights = (run / "model.safetensors").read_bytes()
    for option in ("--no-evaluate", "--no-pictures"):  # the second is the earlier name
        assert "was already trained" in succeeded(intervae("resume", run, option)).out
    assert "pictures" not in succeeded(intervae("resume", "--help")).out
    assert not (run / "evaluation.json").exists()
    assert (run / "model.safetensors").read_bytes() == weights
    config = json.loads((run / "config.json").read_text())
    for change in (
        {"seed": "one"},
        {"training": None},
        {"training": {**config["training"], "hook": "x"}},
    ):
        (run / "config.json").write_text(json.dumps({**config, **change}))
        refused(intervae("resume", run), 1, "has no training options")
    (run / "config.json").write_text(json.dumps({**config, "data": None}))
    refused(intervae("resume", run), 1, "does not name the data of the run")
