"""The pictures of a run on clips: their frames stand side by side, as images do, and what is made for single images is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae import figures, report
from intervae.data.base import Variable, build_dataset
from intervae.models.base import Model

T = 12


class Echo:
    """A stand-in for a model of clips, which gives back what it is shown."""

    graph = Model.graph
    needs_labels = False

    def reconstruct(self, clips: torch.Tensor) -> torch.Tensor:
        return clips.float() / 255


def clips(n: int = 30) -> np.ndarray:
    """(n, T, 1, 8, 8) uint8: every pixel of a frame is 8 times its clip's number plus its own."""
    return (8 * np.arange(n)[:, None] + np.arange(T)[None]).astype(np.uint8)[:, :, None, None, None] * np.ones((1, 8, 8), np.uint8)


def test_the_frames_of_the_first_clips_are_the_columns_of_the_reconstructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = build_dataset("clips", clips(), np.arange(30.0)[:, None], [Variable("a")])
    assert data.spec.frames == T
    shown: dict[str, Any] = {}

    def spy(path: Path, images: torch.Tensor, made: torch.Tensor, *, columns: int) -> None:
        shown.update(images=images, made=made, columns=columns)
        draw(path, images, made, columns=columns)

    draw = figures.reconstructions
    monkeypatch.setattr(figures, "reconstructions", spy)
    assert report.write_figures(Echo(), data, tmp_path) == [tmp_path / "figures" / "reconstructions.png"]  # type: ignore[arg-type]
    assert (tmp_path / "figures" / "reconstructions.png").stat().st_size > 0
    lines = shown["images"][:, 0, 0, 0].reshape(-1, shown["columns"])  # one clip each
    assert lines.shape == (report.SHOWN_CLIPS, report.SHOWN)
    assert all((line - line[0]).tolist() == [0, 2, 3, 5, 6, 8, 9, 11] for line in lines)  # first to last
    assert len({int(line[0]) for line in lines}) == report.SHOWN_CLIPS
    assert torch.equal(shown["made"], shown["images"].float() / 255)


def test_a_short_clip_is_shown_whole() -> None:
    pictures = report.frames_of(torch.as_tensor(clips(2))[:, :3])
    assert pictures.shape == (6, 1, 8, 8)
    assert pictures[:, 0, 0, 0].tolist() == [0, 1, 2, 8, 9, 10]
