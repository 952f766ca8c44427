"""The whole way, through the command line, where labels are not a matter of course: an encoder that needs them."""

from __future__ import annotations

import json
from pathlib import Path

import intervae as package
from command import PENDULUM, SMALL, intervae, succeeded


def test_an_encoder_that_needs_labels_is_trained_evaluated_and_drawn(tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeeded(intervae("train", "ivae", *PENDULUM, *SMALL, "--set", "label_dropout=0", "--out", run))
    assert package.load(run).needs_labels
    measured = {row["metric"] for row in json.loads((run / "evaluation.json").read_text())}
    assert {"reconstruction_pixel_mae", "mic", "mcc", "elbo", "active_units"} <= measured
    assert (run / "figures" / "reconstructions.png").stat().st_size > 0
    succeeded(intervae("evaluate", run, "--metric", "mic", "--device", "cpu"))
