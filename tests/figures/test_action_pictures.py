"""Masks and graphs of actions: bright where probable, upright, one panel for each action."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import MechanismPanel, mechanisms


def panel(label: str, books: int = 1) -> MechanismPanel:
    edges = np.eye(6 * books)
    edges[0, 5] = 0.5  # the last variable before is a parent of the first one after
    mask = np.zeros((books, 2, 3))
    mask[0, 1, 2] = 1.0
    changes = np.zeros((books, 2, 3))
    changes[0, 0, 1] = 1.0
    return MechanismPanel(label, edges, mask, changes)


def test_probable_is_bright_and_rows_are_what_comes_after(tmp_path, svg):
    mechanisms(tmp_path / "m.svg", [panel("x+1"), panel("x-1")])
    texts, _, pictures = svg(tmp_path / "m.svg")
    assert {"x+1", "x-1", "before", "after", "changes", "mask"} <= set(texts)
    assert len(pictures) == 6
    changes, mask, graph = (picture.astype(int) for picture in pictures[:3])
    assert changes[0, 1].tolist() == [255] * 3
    assert changes.sum() == 3 * 255
    assert mask.shape == (2, 3, 3)
    assert mask[1, 2].tolist() == [255] * 3
    assert mask.sum() == 3 * 255
    assert graph[0, 5, 0] == 128
    assert graph[5, 0, 0] == 0
    assert (np.diagonal(graph[..., 0]) == 255).all()


def test_every_codebook_has_a_mask_and_no_words_touch(drawn, assert_no_overlap, tmp_path, svg):
    many = [panel(f"a long action {k}", books=2) for k in range(11)]
    assert_no_overlap(drawn(mechanisms, many, title="All actions"))
    mechanisms(tmp_path / "m.svg", many)
    assert len(svg(tmp_path / "m.svg")[2]) == 5 * 11


@pytest.mark.parametrize(
    ("panels", "words"),
    [
        ([], "no action"),
        ([MechanismPanel("a", np.full((2, 2), 1.5), np.zeros((1, 2, 1)), np.zeros((1, 2, 1)))], "probabilities"),
        ([MechanismPanel("a", np.eye(2), np.zeros((2, 1)), np.zeros((1, 2, 1)))], "mask of 'a'"),
        ([MechanismPanel("a", np.eye(2), np.zeros((1, 2, 1)), np.full((1, 2, 1), -1.0))], "what changes by 'a'"),
        ([MechanismPanel("a", np.eye(2), np.zeros((1, 2, 1)), np.zeros((1, 1, 2)))], "one shape"),
    ],
)
def test_what_cannot_be_drawn_is_refused(panels, words, tmp_path):
    with pytest.raises(DataError, match=words):
        mechanisms(tmp_path / "m.png", panels)
