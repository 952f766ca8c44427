"""Wrong settings, graphs and names, through the command line: one sentence each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import intervae as package
from command import PENDULUM, intervae, refused
from intervae.errors import UsageError
from refused_training import refuses_to_train


# ---- settings --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            ["--set", "learning_rat=1"],
            2,
            ("unknown setting 'learning_rat'", "did you mean 'learning_rate'", "batch_size"),
        ),
        (["--set", "chekpoint_seconds=1"], 2, ("did you mean 'checkpoint_seconds'",)),
        (["--set", "qqq=1"], 2, ("unknown setting 'qqq'", "known: ", "dims")),
        (["--set", "dims"], 2, ("--set 'dims' is not of the form key=value",)),
        (["--set", "=3"], 2, ("not of the form key=value",)),
        (["--set", "dims=two"], 2, ("dims='two' is not a number",)),
        (["--set", "dims=1.5"], 2, ("dims='1.5' must be a whole number",)),
        (["--set", "dims=0"], 2, ("dims=0",)),
        (["--set", f"dims={2**64}"], 2, ("dims=", "is too large")),
        (["--set", f"dims={2**60}"], 2, ("does not fit into memory",)),
        (["--set", "prior_std=0"], 2, ("prior_std=0.0 must be larger than 0",)),
        (["--set", "scale=-1"], 2, ("scale=-1.0 must be larger than 0",)),
        (["--set", "influence_step=1"], 2, ("setting 'influence_step' was removed",)),
        (["--set", "channels=8,x"], 2, ("channels='x' is not a number",)),
        (["--set", "learning_rate=nan"], 2, ("learning_rate='nan' must be finite",)),
        (["--set", "learning_rate=0"], 2, ("learning_rate=0", "positive")),
        (["--set", "network=transformer"], 2, ("network='transformer' is not a choice", "conv")),
        (["--set", "tensorboard=maybe"], 2, ("tensorboard='maybe' is not true or false",)),
        (["--set", "batch_size=0"], 2, ("batch_size=0", "at least 1")),
        (
            ["--set", "batch_size=66"],
            1,
            ("65 samples, fewer than one batch of 66", "batch_size=65"),
        ),
        (["--set", "dims=1000000000000"], 2, ("does not fit into memory",)),
        (["--device", "tpu"], 2, ("device 'tpu' is not known",)),
        (["--device", "cuda:99"], 2, ("cuda",)),
        (["--device", "meta"], 2, ("device 'meta' cannot train",)),
        (["--data-option", "samples=abc"], 2, ("samples='abc' is not a whole number",)),
        (["--data-option", "samples=3"], 2, ("samples=3 is too few",)),
        (["--data-option", "sampels=96"], 2, ("did you mean 'samples'",)),
        (
            ["--data-option", "samples"],
            2,
            ("--data-option 'samples' is not of the form key=value",),
        ),
        (["--data-option", "validation=1.5"], 2, ("validation=1.5 must be a fraction",)),
        (["--size", "4"], 2, ("size=4 is too small",)),
        (["--group", "light"], 2, ("group= (--group) does not apply to 'pendulum'",)),
        (["--graph", "nowhere.json"], 2, ("--graph nowhere.json: there is no such file",)),
    ],
)
def test_a_wrong_setting_is_an_error_before_anything_is_written(
    options: list[object], code: int, words: tuple[str, ...], run: Path
) -> None:
    options = options if "--graph" in options else [*options, "--graph", "true"]
    refuses_to_train(run, code, *words, options=[*PENDULUM, *options])


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "causal-vae-unsup",
            ["--graph", "true"],
            "causal-vae-unsup takes no graph (graph=, --graph); "
            "models that do: causal-vae, deep-scm, causal-gan.",
        ),
        (
            "vae",
            ["--graph", "nowhere.json"],
            "vae takes no graph (graph=, --graph); "
            "models that do: causal-vae, deep-scm, causal-gan.",
        ),
        (
            "pca",
            ["--epochs", "5"],
            "pca is not trained in epochs; leave epochs=5 out.",
        ),
        (
            "raw-pixels",
            ["--set", "epochs=5"],
            "raw-pixels is not trained in epochs; leave epochs=5 out.",
        ),
        (
            "causal-gan",
            [],
            "causal-gan needs a known graph of the labels: pass graph= (a CausalGraph); on the "
            "command line --graph FILE, or --graph true for data with a known graph.",
        ),
    ],
)
def test_options_a_model_does_not_take_or_needs_are_an_error(
    model: str, options: list[str], message: str, tmp_path: Path
) -> None:
    assert (
        refused(intervae("train", model, *PENDULUM, *options, "--out", tmp_path / "run"), 2)
        == f"error: {message}"
    )
    assert not (tmp_path / "run").exists()


# ---- graphs ----------------------------------------------------------------------------------
def test_a_graph_for_a_model_without_one_is_an_error_in_python(pendulum: Any) -> None:
    with pytest.raises(UsageError, match=r"vae takes no graph .*causal-vae, deep-scm, causal-gan"):
        package.create("vae", pendulum, graph=pendulum.graph)


def test_too_few_labels_for_a_graph_are_an_error(run: Path) -> None:
    options = ["--data", "pendulum", "--data-option", "samples=64", "--size", "16"]
    refuses_to_train(
        run, 1, "43 training samples are too few to learn a graph", "--graph", options=options
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ("graph.json", "cannot be read")),
        ("[]", ("this is not a graph",)),
        ('{"variables": ["light"], "edges": []}', ("unknown variable 'pendulum'",)),
        ('{"variables": ["light"], "edges": [{"from": "light", "to": "moon"}]}', ("'moon'",)),
        (
            '{"variables": ["pendulum", "light", "shadow_length", "shadow_position"],'
            ' "edges": [{"from": "light", "to": "pendulum"}, {"from": "pendulum", "to": "light"}]}',
            ("cycle",),
        ),
    ],
)
def test_a_wrong_graph_file_is_an_error(
    text: str, words: tuple[str, ...], run: Path, tmp_path: Path
) -> None:
    (tmp_path / "graph.json").write_text(text)
    refuses_to_train(run, 1, *words, options=[*PENDULUM, "--graph", tmp_path / "graph.json"])


# ---- names -----------------------------------------------------------------------------------
def test_an_unknown_model_has_suggestions(tmp_path: Path) -> None:
    refused(
        intervae("train", "causalvae", *PENDULUM, "--out", tmp_path / "new"),
        2,
        "unknown model 'causalvae'",
        "did you mean 'causal-vae'",
    )
    assert not (tmp_path / "new").exists()


def test_an_unknown_experiment_has_suggestions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(
        intervae("reproduce", "causalvae-pendulm"),
        2,
        "unknown experiment 'causalvae-pendulm'",
        "did you mean 'causalvae-pendulum'",
    )
    assert list(tmp_path.iterdir()) == []
