"""Errors of the command line: one sentence, an exit code, and the traceback with --debug."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from command import (
    intervae,
    refused,
    succeeded,
)
from intervae.causal import CausalGraph


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tarin"], "No such command 'tarin'. Did you mean 'train'"),
        (["train"], "issing argument 'model'"),
        (["train", "causal-vae"], "Missing option '--data'"),
        (["train", "causal-vae", "--data", "pendulum", "--sede", "1"], "No such option: --sede"),
        (["train", "causal-vae", "--data", "pendulum", "--seed", "one"], "'--seed'"),
        (["train", "causal-vae", "--data", "pendulum", "--seed", "-1"], "'--seed'"),
        (["train", "causal-vae", "--data", "pendulum", "--epochs", "0"], "'--epochs'"),
        (["train", "causal-vae", "--data", "pendulum", "--size", "0"], "'--size'"),
        (["intervene", "run"], "Missing option '--do'"),
        (["reproduce", "causalvae-pendulum", "--seeds", "0"], "'--seeds'"),
    ],
)
def test_wrong_usage_is_one_sentence_with_the_help_command(words: list[str], message: str) -> None:
    sentence = refused(intervae(*words), 2, message)
    command = "intervae" if words == ["tarin"] else f"intervae {words[0]}"
    assert sentence.endswith(f"; see `{command} --help`.")


@pytest.mark.parametrize(
    "words",
    [
        ["graph", "nowhere", "--debug"],
        ["--debug", "graph", "nowhere"],
        ["graph", "--debug", "nowhere"],
    ],
)
def test_debug_at_any_place_adds_the_traceback(words: list[str]) -> None:
    short, long = intervae("graph", "nowhere"), intervae(*words)
    refused(short, 1, "nowhere is not a run folder")
    assert long.code == 1
    assert "Traceback" in long.err
    assert "storage.py" in long.err
    assert long.err.endswith(short.err)


def test_unexpected_error_is_one_sentence(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a bug\nof two lines")

    monkeypatch.setattr(CausalGraph, "to_dot", broken)
    refused(
        intervae("graph", finished, "--out", tmp_path / "g.dot"),
        1,
        "this is a bug (KeyError:",
        "--debug",
    )


def test_error_in_a_thread_has_a_traceback_only_with_debug(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> str:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        return "digraph {}"

    monkeypatch.setattr(
        threading, "excepthook", threading.__excepthook__
    )  # as it is without pytest
    monkeypatch.setattr(CausalGraph, "to_dot", broken)
    succeeded(intervae("graph", finished, "--out", tmp_path / "g.dot"))
    assert (
        "ZeroDivisionError"
        in intervae("graph", finished, "--out", tmp_path / "g.dot", "--debug").err
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("can't allocate memory: you tried ..."),
    ],
)
def test_out_of_memory_says_what_to_do(
    error: Exception, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(CausalGraph, "to_dot", broken)
    refused(
        intervae("graph", finished, "--out", tmp_path / "g.dot"), 1, "not enough memory", "--size"
    )
