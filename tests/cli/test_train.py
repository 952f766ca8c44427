"""`intervae train`: run folder, settings, seeds, graph and data options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command import (
    PENDULUM,
    SMALL,
    intervae,
    make_folder,
    refused,
    succeeded,
    train_tiny,
)
from intervae.causal import CausalGraph


def test_default_run_folder_is_named_by_data_model_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    succeeded(
        intervae(
            "train",
            "causal-vae",
            *PENDULUM,
            *SMALL,
            "--graph",
            "true",
            "--no-evaluate",
            "--seed",
            3,
        )
    )
    config = json.loads((tmp_path / "runs" / "pendulum-causal-vae-3" / "config.json").read_text())
    assert (config["seed"], config["settings"]["dims"], config["settings"]["epochs"]) == (3, 2, 1)
    assert config["data"]["options"]["samples"] == 96


def test_set_reaches_model_settings_and_training_options(tmp_path: Path) -> None:
    train_tiny(
        tmp_path / "run",
        "--set",
        "checkpoint_seconds=0",
        "--set",
        "learning_rate=1e-4",
        "--set",
        "tensorboard=no",
    )
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["learning_rate"] == 1e-4
    assert config["training"]["checkpoint_seconds"] == 0
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_epochs_and_set_epochs_exclude_each_other(tmp_path: Path) -> None:
    words = ["train", "causal-vae", *PENDULUM, *SMALL, "--out", tmp_path / "run"]
    refused(
        intervae(*words, "--set", "epochs=7"),
        2,
        "--epochs 1 and --set epochs=7",
        "give one of them",
    )
    assert not (tmp_path / "run").exists()


def test_weights_depend_on_the_seed_only(finished: Path, tmp_path: Path) -> None:
    same, other = train_tiny(tmp_path / "same"), train_tiny(tmp_path / "other", "--seed", 1)
    weights = [(run / "model.safetensors").read_bytes() for run in (finished, same, other)]
    assert weights[0] == weights[1] != weights[2]


def test_known_graph_is_used_unchanged(tmp_path: Path) -> None:
    graph = CausalGraph.from_edges(
        ("pendulum", "light", "shadow_length", "shadow_position"), [("light", "shadow_length", 0.5)]
    )
    (tmp_path / "graph.json").write_text(json.dumps(graph.to_json()))
    run = train_tiny(tmp_path / "run", "--graph", tmp_path / "graph.json")
    assert succeeded(intervae("graph", run)).out == "light -> shadow_length  0.500\n"


def test_variables_and_data_options_are_passed_on(tmp_path: Path) -> None:
    shown = intervae(
        *(
            "train",
            "causal-vae",
            *PENDULUM,
            *SMALL,
            "--no-evaluate",
            "--graph",
            "true",
            "--out",
            tmp_path / "run",
        ),
        *(
            "--variables",
            "light, shadow_length",
            "--data-option",
            "validation=0.3",
            "--data-option",
            "seed=4",
        ),
    )
    assert "50/22/24 images of (3, 16, 16), variables light, shadow_length" in succeeded(shown).out
    assert json.loads(intervae("graph", tmp_path / "run", "--json").out)["variables"] == [
        "light",
        "shadow_length",
    ]


def test_data_summary_with_brackets_in_names(
    tmp_path: Path,
) -> None:
    flags = [("yes", "no")[i % 3 == 0] for i in range(80)]
    folder = make_folder(tmp_path / "my [bold] data", columns={"[/red] flag": flags})
    shown = succeeded(
        intervae(
            "train",
            "causal-vae",
            "--data",
            folder,
            *SMALL,
            "--out",
            tmp_path / "[run]",
            "--kind",
            "width=continuous",
        )
    )
    assert re.search(r"^\[/red\] flag +binary +no, yes +two values *$", shown.out, re.MULTILINE)
    width = r"^width +continuous +[\d.]+ to [\d.]+ +given in kinds *$"
    assert re.search(width, shown.out, re.MULTILINE)
    assert "note: column '[/red] flag': two values: no = 0, yes = 1" in shown.out
    assert f"into {tmp_path / '[run]'}" in shown.out
    assert f"wrote {tmp_path / '[run]' / 'figures' / 'sweep.png'}" in shown.out
    for command in ("evaluate", "graph"):
        succeeded(intervae(command, tmp_path / "[run]"))
    shown = succeeded(
        intervae(
            "intervene", tmp_path / "[run]", "--do", "[/red] flag=1", "--out", tmp_path / "[x].png"
        )
    )
    assert re.search(r"^\[/red\] flag +[-\d.]+ +yes +[-\d.]+$", shown.out, re.MULTILINE)
