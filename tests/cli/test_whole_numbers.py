"""Columns of few whole numbers, which may be classes: a note, or a question on a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import intervae as package
from command import SMALL, intervae, make_folder
from intervae.cli import train
from intervae.data import Dataset


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """80 pictures with a column `digit` of 0 to 9 and one `count` of 40 values."""
    columns = {"digit": [i % 10 for i in range(80)], "count": [i // 2 for i in range(80)]}
    return make_folder(tmp_path / "digits", columns=columns)


def noted(data: Dataset) -> list[str]:
    return [note.subject for note in data.notes if note.kind == "few-whole-numbers"]


def test_whole_numbers_with_few_values_get_a_note(digits: Path) -> None:
    data = package.load_data(digits)
    assert data.spec.variable("digit").kind == "continuous"
    assert noted(data) == ["digit"]
    (note,) = [note for note in data.notes if note.kind == "few-whole-numbers"]
    assert "10 whole numbers from 0 to 9" in note.text
    assert "--kind digit=categorical" in note.text
    for kind in ("categorical", "continuous"):  # whoever says so is not told again
        assert not noted(package.load_data(digits, kinds={"digit": kind}))


def test_train_shows_the_decision_in_its_table(digits: Path, tmp_path: Path) -> None:
    words = ["train", "causal-vae", "--data", digits, *SMALL, "--set", "graph=joint"]
    shown = intervae(*words, "--no-evaluate", "--out", tmp_path / "run")
    assert shown.code == 0, shown
    assert re.search(r"^digit +continuous +0 to 9 +10 whole numbers *$", shown.out, re.MULTILINE)
    assert re.search(r"^count +continuous +0 to 39 +numbers *$", shown.out, re.MULTILINE)
    assert "note: column 'digit' has 10 whole numbers" in shown.out


def test_on_a_terminal_train_asks(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(question: str, default: bool) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr(train.typer, "confirm", confirm)
    data = package.load_data(digits)
    assert train.ask_for_classes(data) == []  # no terminal here
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert train.ask_for_classes(data) == ["digit"]
    assert asked == ["'digit': 10 whole numbers, 0 to 9. Are these classes?"]
