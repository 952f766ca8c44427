"""metrics.jsonl, TensorBoard events and progress output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intervae.data import Dataset
from intervae.errors import RunError
from intervae.training.logging import ProgressBar
from run_logs import read_lines

QUICK = {"checkpoint_seconds": 0, "tensorboard": False}


def test_metrics_have_one_line_per_epoch_after_a_resume(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    interrupt(4)  # start, epoch 1, epoch 2, and then epoch 3 is logged but lost
    with pytest.raises(KeyboardInterrupt):
        toy(epochs=5).fit(toy_data, out=tmp_path / "run", **QUICK)
    assert [line["epoch"] for line in read_lines(tmp_path / "run")] == [1, 2, 3]
    interrupt(0)
    result = toy(epochs=5).fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)
    assert 0 < result.seconds_before_resume < result.seconds
    again = toy(epochs=5).fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)
    assert again.seconds_before_resume == again.seconds == result.seconds  # nothing was left to do
    lines = read_lines(tmp_path / "run")
    assert [(line["phase"], line["epoch"]) for line in lines] == [
        ("main", epoch) for epoch in range(1, 6)
    ]
    assert lines == result.history
    assert all(set(line) >= {"seconds", "train", "validation"} for line in lines)
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert result.seconds >= seconds[-1]


def test_missing_or_damaged_metrics_file(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    interrupt(4)
    with pytest.raises(KeyboardInterrupt):
        toy(epochs=4).fit(toy_data, out=tmp_path / "run", **QUICK)
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text("what is this\n" * 100)
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged.*remove it"):
        toy(epochs=4).fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)
    metrics.unlink()
    interrupt(0)
    toy(epochs=4).fit(toy_data, out=tmp_path / "run", resume=True, **QUICK)
    assert [line["epoch"] for line in read_lines(tmp_path / "run")] == [3, 4]


def test_tensorboard_has_every_epoch_once(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        toy(epochs=3).fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0)
    interrupt(0)
    history = (
        toy(epochs=3).fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0, resume=True).history
    )
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    for part in ("train", "validation"):
        scalars = [(event.step, event.value) for event in events.Scalars(f"main/loss/{part}")]
        assert [step for step, _ in scalars] == [1, 2, 3]
        assert [value for _, value in scalars] == pytest.approx(
            [line[part]["loss"] for line in history]
        )


def test_progress_bar_is_shown_on_terminals_only(
    toy: Any, toy_data: Dataset, capfd: pytest.CaptureFixture[str]
) -> None:
    toy().fit(toy_data)
    assert capfd.readouterr() == ("", "")
    toy().fit(toy_data, progress=False)
    assert capfd.readouterr() == ("", "")
    toy(epochs=7).fit(toy_data, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "main" in err
    assert "7/7" in err


def test_progress_lines_show_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("intervae.training.logging.time.monotonic", lambda: now[0])
    with ProgressBar(None) as bar:
        bar.start_phase("codebooks", 10, 2)
        for _ in range(4):
            now[0] += 40
            bar.advance("loss 3.1")
    assert capsys.readouterr().err.splitlines() == [
        f"codebooks: {done} of 10 epochs, about {left} min left; loss 3.1"
        for done, left in ((4, 4), (6, 3))
    ]
    with ProgressBar(False) as silent:
        silent.start_phase("codebooks", 10, 0)
        now[0] += 100
        silent.advance("loss 3.1")
    assert not capsys.readouterr().err
