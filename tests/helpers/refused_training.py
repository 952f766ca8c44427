"""Training commands that must fail and leave every folder as it was."""

from __future__ import annotations

from pathlib import Path

import intervae as package
from command import SMALL, contents, intervae, refused

TRAIN = ["train", "causal-vae", *SMALL]


def refuses_to_train(run: Path, code: int, *words: str, options: list[object]) -> None:
    """Assert one error, for a new folder and for --overwrite of `run`; nothing is written."""
    new, before = run.with_name("new"), contents(run)
    command = [*TRAIN, "--no-evaluate", *options]
    sentence = refused(intervae(*command, "--out", new), code, *words)
    assert not new.exists()
    assert refused(intervae(*command, "--out", run, "--overwrite"), code, *words) == sentence
    assert contents(run) == before
    package.load(run)
