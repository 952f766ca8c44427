"""Adjacency matrices over training: epochs, orientation and colours."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.causal.graph import CausalGraph
from intervae.data.simulators import Pendulum
from intervae.errors import DataError
from intervae.figures import adjacency_history

NAMES = ["a", "b", "c"]
FINAL = np.array([[0, 0.5, -1.0], [0, 0, 0], [0, 0, 0]])


def history(epochs):
    return [FINAL * (t + 1) / epochs for t in range(epochs)]


def test_cell_colours_show_the_sign(tmp_path, svg):
    adjacency_history(tmp_path / "h.svg", history(4), NAMES, panels=2)
    *matrices, _scale = svg(tmp_path / "h.svg")[2]
    assert len(matrices) == 2
    first, last = (m.astype(int) for m in matrices)
    assert first.shape == last.shape == (3, 3, 3)
    assert (
        last[0, 1, 0] > last[0, 1, 2] + 40
    )  # a -> b, positive: row 0 is the cause, column 1 the effect
    assert last[0, 2, 2] > last[0, 2, 0] + 40  # a -> c, negative
    assert (last[1:] == 255).all()
    assert (last[:, 0] == 255).all()
    assert last[0, 2].sum() < first[0, 2].sum()  # one scale: stronger is darker


def test_orientation_of_the_matrix(tmp_path, read_png):
    adjacency_history(tmp_path / "h.png", history(1), NAMES)
    picture = read_png(tmp_path / "h.png").astype(int)
    blue, red = picture[..., 2] - picture[..., 0] > 90, picture[..., 0] - picture[..., 2] > 90
    half = picture.shape[1] * 2 // 3  # the colour bar lies further right
    (y_red, x_red), (y_blue, x_blue) = (np.argwhere(part[:, :half]).mean(0) for part in (red, blue))
    assert y_red == pytest.approx(y_blue, abs=2)  # one row
    assert x_blue - x_red == pytest.approx(
        72, abs=4
    )  # neighbouring columns, 36 canvas pixels apart


def test_first_and_last_epochs_are_shown_then_the_true_graph(tmp_path, svg):
    true = CausalGraph.from_edges(
        ["c", "b", "a"], [("a", "b"), ("a", "c")]
    )  # another order of the same variables
    adjacency_history(tmp_path / "h.svg", history(41), NAMES, true_graph=true)
    texts, _, pictures = svg(tmp_path / "h.svg")
    assert [t for t in texts if t.startswith(("epoch", "true"))] == [
        "epoch 1",
        "epoch 11",
        "epoch 21",
        "epoch 31",
        "epoch 41",
        "true graph",
    ]
    truth = pictures[5].astype(int)
    assert ((truth < 255).any(2) == (FINAL != 0)).all()
    assert np.ptp(truth[0, 1]) < 30  # grey: the sign is unknown
    assert {"cause", "effect", *NAMES} <= set(texts)


def test_number_of_panels(tmp_path, svg):
    for epochs, panels, shown in ((1, 5, 1), (3, 5, 3), (9, 1, 1), (9, 0, 1), (9, 3, 3)):
        adjacency_history(tmp_path / "h.svg", history(epochs), NAMES, panels=panels)
        texts = svg(tmp_path / "h.svg")[0]
        assert len([t for t in texts if t.startswith("epoch")]) == shown
        assert f"epoch {epochs}" in texts
    adjacency_history(tmp_path / "h.svg", history(2), NAMES, epochs=[10, 20])
    assert {"epoch 10", "epoch 20"} <= set(svg(tmp_path / "h.svg")[0])


def test_strengths_are_printed_for_few_variables_only(tmp_path, svg):
    adjacency_history(tmp_path / "h.svg", [FINAL], NAMES)
    assert {"0.50", "−1.00"} <= set(svg(tmp_path / "h.svg")[0])
    many = np.zeros((9, 9))
    many[0, 1] = 0.123
    adjacency_history(tmp_path / "h.svg", [many], [f"v{i}" for i in range(9)])
    assert "0.12" not in svg(tmp_path / "h.svg")[0][:-4]  # the last four are the colour bar's


@pytest.mark.parametrize("n", [1, 2, 4, 8, 9, 30])
def test_texts_do_not_overlap(drawn, assert_no_overlap, n):
    rng = np.random.default_rng(n)
    names = [f"shadow_length_{i}" for i in range(n)]
    matrices = [-rng.random((n, n)) * (1 - np.eye(n)) for _ in range(120)]
    true = CausalGraph(names, np.triu(np.ones((n, n)), 1))
    assert_no_overlap(
        drawn(adjacency_history, matrices, names, true_graph=true, title="A over training")
    )


def test_names_of_any_script(tmp_path, svg):
    names = ["a<b", "R&D", "温度"]
    adjacency_history(tmp_path / "h.svg", [FINAL], names)
    assert set(names) <= set(svg(tmp_path / "h.svg")[0])


def test_wrong_histories_raise(tmp_path):
    path = tmp_path / "h.png"
    for bad in ([], [FINAL, FINAL[:2]], "abc", [["x"]]):
        with pytest.raises(
            DataError, match="history of an adjacency must be a list of square matrices"
        ):
            adjacency_history(path, bad, NAMES)
    with pytest.raises(DataError, match=r"must be \(epochs, 2, 2\), not \(1, 3, 3\)"):
        adjacency_history(path, [FINAL], ["a", "b"])
    with pytest.raises(DataError, match="NaN"):
        adjacency_history(path, [FINAL * np.nan], NAMES)
    with pytest.raises(DataError, match="different variables"):
        adjacency_history(path, [FINAL], NAMES, true_graph=Pendulum.graph)
    with pytest.raises(DataError, match="2 epochs were given for 1 matrices"):
        adjacency_history(path, [FINAL], NAMES, epochs=[1, 2])
    assert not path.exists()


def test_captions_replace_the_epochs(tmp_path, svg):
    adjacency_history(tmp_path / "h.svg", [FINAL], NAMES, captions=["estimated"])
    texts = svg(tmp_path / "h.svg")[0]
    assert "estimated" in texts
    assert not [text for text in texts if text.startswith("epoch")]
