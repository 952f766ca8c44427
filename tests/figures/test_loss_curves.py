"""Training curves: the values of the log, on a scale that shows them."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import training_curves
from intervae.figures.style import BLUE, ORANGE


def line(phase, epoch, validation=True, **terms):
    return {
        "phase": phase,
        "epoch": epoch,
        "seconds": 1.0,
        "train": terms,
        **({"validation": {k: 1.1 * v for k, v in terms.items()}} if validation else {}),
    }


def run():
    graph = [
        line("graph", e + 1, loss=2.0 + 1 / (e + 1), acyclicity=max(0.0, 10.0**-e - 1e-6))
        for e in range(8)
    ]
    joint = [
        line("joint", e + 1, loss=900 * 0.5**e + 300, kl_noise=5.0 + 0.1 * e, balance=-1.0 + 40 * e)
        for e in range(12)
    ]
    return graph + joint


def curve(axes, color):
    """All points (k, 2) of the lines of one colour."""
    lines = [np.column_stack(part.get_data()) for part in axes.lines if part.get_color() == color]
    points = np.concatenate(lines)
    return points[np.isfinite(points[:, 1])]


def test_every_term_is_drawn_over_the_epochs_of_all_phases(drawn, panels):
    lines = run()
    plots = panels(drawn(training_curves, lines))
    assert list(plots) == ["loss", "acyclicity", "KL noise", "balance"]
    np.testing.assert_allclose(
        curve(plots["loss"], BLUE),
        [(k + 1, entry["train"]["loss"]) for k, entry in enumerate(lines)],
    )
    np.testing.assert_allclose(
        curve(plots["loss"], ORANGE),
        [(k + 1, entry["validation"]["loss"]) for k, entry in enumerate(lines)],
    )
    np.testing.assert_allclose(curve(plots["KL noise"], BLUE)[:, 0], np.arange(9, 21))
    np.testing.assert_allclose(curve(plots["acyclicity"], BLUE)[:, 0], np.arange(1, 9))


def test_phases_are_separated(drawn, panels):
    axes = panels(drawn(training_curves, run()))["loss"]
    spans = [part.get_xdata() for part in axes.lines if part.get_color() == BLUE]
    assert [(min(x), max(x)) for x in spans] == [(1, 8), (9, 20)]
    assert [
        list(part.get_xdata()) for part in axes.lines if part.get_color() not in (BLUE, ORANGE)
    ] == [[8.5, 8.5]]


def test_terms_with_a_large_range_have_a_logarithmic_scale(drawn, panels):
    plots = panels(drawn(training_curves, run()))
    assert {name: axes.get_yscale() for name, axes in plots.items()} == {
        "loss": "log",
        "acyclicity": "log",
        "KL noise": "linear",
        "balance": "linear",
    }
    low, high = plots["acyclicity"].get_ylim()
    assert 0 < low < 9e-6  # the smallest positive value; zero lies below the axis
    assert high > 1


def test_training_curves_show_labels_and_phases(tmp_path, svg, drawn, assert_no_overlap):
    training_curves(tmp_path / "c.svg", run(), title="CausalVAE on <Pendulum>")
    texts = svg(tmp_path / "c.svg")[0]
    for word in (
        "loss",
        "KL noise",
        "epoch",
        "training",
        "validation",
        "CausalVAE on <Pendulum>",
        "phases: graph (1–8), joint (9–20)",
    ):
        assert word in texts
    assert_no_overlap(drawn(training_curves, run()))


@pytest.mark.parametrize("count", [1, 2, 4, 6, 9])
def test_any_number_of_terms_and_epochs(drawn, assert_no_overlap, count, panels):
    terms = {f"term_{k}": float(10**k) for k in range(count)}
    for epochs in (1, 200):
        canvas = drawn(
            training_curves,
            [
                line("joint", e + 1, **{k: v / (e + 1) for k, v in terms.items()})
                for e in range(epochs)
            ],
        )
        assert len(panels(canvas)) == count
        assert_no_overlap(canvas)


def test_missing_values_are_gaps(drawn, panels):
    lines = [
        line("joint", 1, False, loss=1.0),
        line("joint", 2, False, loss=float("nan")),
        line("joint", 3, False, loss=2.0),
    ]
    canvas = drawn(training_curves, lines)
    np.testing.assert_allclose(curve(panels(canvas)["loss"], BLUE), [(1, 1), (3, 2)])
    assert "validation" not in [t.get_text() for t in canvas.axes.texts]


@pytest.mark.parametrize("lines", [[], [{"epoch": 1}], ["text"], [{"train": {}}]])
def test_wrong_logs_raise(tmp_path, lines):
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        training_curves(tmp_path / "c.png", lines)
