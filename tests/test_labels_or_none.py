"""Encoders that need labels, and data without labels, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intervae as package
from command import PENDULUM, SMALL, intervae, make_folder, refused, succeeded
from intervae.evaluation import evaluate
from intervae.models import MODELS
from intervae.report import write_figures


def test_an_encoder_that_needs_labels_is_trained_evaluated_and_drawn(tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeeded(
        intervae("train", "ivae", *PENDULUM, *SMALL, "--set", "label_dropout=0", "--out", run)
    )
    assert package.load(run).needs_labels
    measured = {row["metric"] for row in json.loads((run / "evaluation.json").read_text())}
    assert {"reconstruction_pixel_mae", "mic", "mcc", "elbo", "active_units"} <= measured
    assert (run / "figures" / "reconstructions.png").stat().st_size > 0
    succeeded(intervae("evaluate", run, "--metric", "mic", "--device", "cpu"))


# ---- data without labels ------------------------------------------------------------------------
NEED_LABELS = {
    "causal-vae",
    "condition-vae",
    "ivae",
    "causal-gan",
    "dc-ign",
    "ct-vae",
    "cmcl",
    "deep-scm",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 images without labels."""
    path = make_folder(tmp_path_factory.mktemp("unlabelled") / "mine")
    (path / "labels.csv").unlink()
    return path


def test_a_folder_without_labels_can_be_trained_on(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = succeeded(intervae("train", "vae", "--data", folder, *SMALL, "--out", run))
    assert "variables (none)" in trained.out
    assert (
        "note: labels: there is no labels.csv, so all images are taken, without labels"
        in trained.out
    )
    assert "variable  kind" not in trained.out
    measured = {row["metric"] for row in json.loads((run / "evaluation.json").read_text())}
    assert measured == {"reconstruction_pixel_mae", "elbo", "log_likelihood", "active_units"}
    assert {path.name for path in (run / "figures").iterdir()} == {
        "reconstructions.png",
        "training.png",
    }
    again = succeeded(intervae("evaluate", run, "--device", "cpu", "--json"))
    assert {row["metric"] for row in json.loads(again.out)} == measured
    refused(
        intervae("evaluate", run, "--metric", "mic", "--device", "cpu"),
        2,
        "'mic' does not apply to vae on mine",
        "labels that vary",
    )


def test_an_array_file_without_labels_is_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, images=np.random.default_rng(0).integers(0, 256, (80, 16, 16)).astype(np.uint8))
    trained = succeeded(
        intervae("train", "pca", "--data", path, "--device", "cpu", "--out", tmp_path / "run")
    )
    assert "note: labels: the file has no 'labels' or 'factors'" in trained.out


@pytest.mark.parametrize("name", sorted(NEED_LABELS))
def test_a_model_that_needs_labels_says_so(name: str, folder: Path, tmp_path: Path) -> None:
    message = refused(intervae("train", name, "--data", folder, "--out", tmp_path / "run"), 1, name)
    assert "this data has none" in message or "needs labels" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", sorted(set(MODELS) - NEED_LABELS))
def test_other_models_train_evaluate_and_draw_without_labels(
    name: str, make_data: Any, make_model: Any, tmp_path: Path
) -> None:
    data = make_data(frames=4 if MODELS[name].takes_clips else None).select([])
    model = make_model(name, data)
    model.fit(data, out=tmp_path, tensorboard=False)
    assert {"reconstruction_pixel_mae", "active_units"} <= {m.metric for m in evaluate(model, data)}
    assert tmp_path / "figures" / "reconstructions.png" in write_figures(model, data, tmp_path)
    assert package.load(tmp_path).spec.variables == ()
