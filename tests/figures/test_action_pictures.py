"""Figure of masks and graphs of actions: orientation, labels and errors."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import ActionPanel, action_mechanisms


def panel(label: str, books: int = 1) -> ActionPanel:
    edges = np.eye(6 * books)
    edges[0, 5] = 0.5  # the last code before is a parent of the first one after
    mask = np.zeros((books, 2, 3))
    mask[0, 1, 2] = 1.0
    changes = np.zeros((books, 2, 3))
    changes[0, 0, 1] = 1.0
    return ActionPanel(label, edges, mask, changes)


def test_white_is_probable_and_rows_are_codes_after(tmp_path, svg):
    action_mechanisms(tmp_path / "m.svg", [panel("x+1"), panel("x-1")])
    texts, _, images = svg(tmp_path / "m.svg")
    assert {"x+1", "x-1", "before", "after", "changes", "mask"} <= set(texts)
    assert len(images) == 6
    changes, mask, graph = (image.astype(int) for image in images[:3])
    assert changes[0, 1].tolist() == [255] * 3
    assert changes.sum() == 3 * 255
    assert mask.shape == (2, 3, 3)
    assert mask[1, 2].tolist() == [255] * 3
    assert mask.sum() == 3 * 255
    assert graph[0, 5, 0] == 128
    assert graph[5, 0, 0] == 0
    assert (np.diagonal(graph[..., 0]) == 255).all()


def test_every_codebook_has_a_mask_and_no_texts_overlap(drawn, assert_no_overlap, tmp_path, svg):
    many = [panel(f"a long action {k}", books=2) for k in range(11)]
    assert_no_overlap(drawn(action_mechanisms, many, title="All actions"))
    action_mechanisms(tmp_path / "m.svg", many)
    assert len(svg(tmp_path / "m.svg")[2]) == 5 * 11


@pytest.mark.parametrize(
    ("panels", "words"),
    [
        ([], "no action"),
        (
            [ActionPanel("a", np.full((2, 2), 1.5), np.zeros((1, 2, 1)), np.zeros((1, 2, 1)))],
            "probabilities",
        ),
        ([ActionPanel("a", np.eye(2), np.zeros((2, 1)), np.zeros((1, 2, 1)))], "mask of 'a'"),
        (
            [ActionPanel("a", np.eye(2), np.zeros((1, 2, 1)), np.full((1, 2, 1), -1.0))],
            "changes of 'a'",
        ),
        ([ActionPanel("a", np.eye(2), np.zeros((1, 2, 1)), np.zeros((1, 1, 2)))], "one shape"),
    ],
)
def test_invalid_panels_raise(panels, words, tmp_path):
    with pytest.raises(DataError, match=words):
        action_mechanisms(tmp_path / "m.png", panels)
