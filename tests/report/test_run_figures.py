"""Figures of a run on clips: frames of a clip are the columns of the reconstructions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae import figures, report
from intervae.data import Variable, build_dataset

T = 12


class Echo:
    """A stand-in for a model of clips; its reconstructions are its inputs."""

    needs_labels = False

    def reconstruct(self, clips: torch.Tensor) -> torch.Tensor:
        return clips.float() / 255

    def figures(self, data: Any) -> dict[str, Any]:
        return {}


def clips(n: int = 30) -> np.ndarray:
    """(n, T, 1, 8, 8) uint8: every pixel is 8 times its clip's number plus its frame's."""
    return (8 * np.arange(n)[:, None] + np.arange(T)[None]).astype(np.uint8)[
        :, :, None, None, None
    ] * np.ones((1, 8, 8), np.uint8)


def test_frames_of_clips_are_columns_of_the_reconstructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = build_dataset("clips", clips(), np.arange(30.0)[:, None], [Variable("a")])
    assert data.spec.frames == T
    call: dict[str, Any] = {}

    def spy(path: Path, images: torch.Tensor, reconstructed: torch.Tensor, *, columns: int) -> None:
        call.update(images=images, reconstructed=reconstructed, columns=columns)
        draw(path, images, reconstructed, columns=columns)

    draw = figures.reconstructions
    monkeypatch.setattr(figures, "reconstructions", spy)
    assert report.write_figures(Echo(), data, tmp_path) == [
        tmp_path / "figures" / "reconstructions.png"
    ]  # type: ignore[arg-type]
    assert (tmp_path / "figures" / "reconstructions.png").stat().st_size > 0
    lines = call["images"][:, 0, 0, 0].reshape(-1, call["columns"])  # one clip each
    assert lines.shape == (report.FIGURE_CLIPS, report.FIGURE_IMAGES)
    assert all(
        (line - line[0]).tolist() == [0, 2, 3, 5, 6, 8, 9, 11] for line in lines
    )  # first to last
    assert len({int(line[0]) for line in lines}) == report.FIGURE_CLIPS
    assert torch.equal(call["reconstructed"], call["images"].float() / 255)


def test_all_frames_of_a_short_clip_are_shown() -> None:
    frames = report.clip_frames(torch.as_tensor(clips(2))[:, :3])
    assert frames.shape == (6, 1, 8, 8)
    assert frames[:, 0, 0, 0].tolist() == [0, 1, 2, 8, 9, 10]
