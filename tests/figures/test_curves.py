"""Plots of numbers: the data drawn is the data given, on the scale that shows it."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import scatter, training_curves
from intervae.figures.style import BLUE, ORANGE
from intervae.metrics.alignment import r2 as metric_r2

RNG = np.random.default_rng(0)


def line(phase, epoch, validation=True, **terms):
    return {
        "phase": phase,
        "epoch": epoch,
        "seconds": 1.0,
        "train": terms,
        **({"validation": {k: 1.1 * v for k, v in terms.items()}} if validation else {}),
    }


def run():
    graph = [line("graph", e + 1, loss=2.0 + 1 / (e + 1), acyclicity=max(0.0, 10.0**-e - 1e-6)) for e in range(8)]
    joint = [line("joint", e + 1, loss=900 * 0.5**e + 300, kl_noise=5.0 + 0.1 * e, balance=-1.0 + 40 * e) for e in range(12)]
    return graph + joint


def panels(canvas):
    """The plots of a canvas by the words above them."""
    titles = {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in canvas.axes.texts if t.get_fontweight() == "bold"}
    found = {}
    for axes in canvas.figure.axes[1:]:
        box = axes.get_position()
        x, y = box.x0 * canvas.width, (1 - box.y1) * canvas.height
        found[min(titles, key=lambda at: abs(at[0] - x) + abs(at[1] - y))] = axes
    return {titles[at]: axes for at, axes in found.items()}


def curve(axes, color):
    """All points (k, 2) of the lines of one colour."""
    lines = [np.column_stack(part.get_data()) for part in axes.lines if part.get_color() == color]
    points = np.concatenate(lines)
    return points[np.isfinite(points[:, 1])]


def test_every_term_is_drawn_over_the_epochs_of_all_phases(drawn):
    lines = run()
    plots = panels(drawn(training_curves, lines))
    assert list(plots) == ["loss", "acyclicity", "KL noise", "balance"]
    np.testing.assert_allclose(curve(plots["loss"], BLUE), [(k + 1, one["train"]["loss"]) for k, one in enumerate(lines)])
    np.testing.assert_allclose(curve(plots["loss"], ORANGE), [(k + 1, one["validation"]["loss"]) for k, one in enumerate(lines)])
    np.testing.assert_allclose(curve(plots["KL noise"], BLUE)[:, 0], np.arange(9, 21))
    np.testing.assert_allclose(curve(plots["acyclicity"], BLUE)[:, 0], np.arange(1, 9))


def test_no_line_joins_two_phases_and_a_mark_stands_between(drawn):
    axes = panels(drawn(training_curves, run()))["loss"]
    spans = [part.get_xdata() for part in axes.lines if part.get_color() == BLUE]
    assert [(min(x), max(x)) for x in spans] == [(1, 8), (9, 20)]
    assert [list(part.get_xdata()) for part in axes.lines if part.get_color() not in (BLUE, ORANGE)] == [[8.5, 8.5]]


def test_a_logarithmic_scale_where_a_positive_term_falls_far(drawn):
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


def test_words_of_the_curves(tmp_path, svg, drawn, assert_no_overlap):
    training_curves(tmp_path / "c.svg", run(), title="CausalVAE on <Pendulum>")
    texts = svg(tmp_path / "c.svg")[0]
    for word in ("loss", "KL noise", "epoch", "training", "validation", "CausalVAE on <Pendulum>", "phases: graph (1–8), joint (9–20)"):
        assert word in texts
    assert_no_overlap(drawn(training_curves, run()))


@pytest.mark.parametrize("count", [1, 2, 4, 6, 9])
def test_any_number_of_terms_and_epochs(drawn, assert_no_overlap, count):
    terms = {f"term_{k}": float(10**k) for k in range(count)}
    for epochs in (1, 200):
        canvas = drawn(training_curves, [line("joint", e + 1, **{k: v / (e + 1) for k, v in terms.items()}) for e in range(epochs)])
        assert len(panels(canvas)) == count
        assert_no_overlap(canvas)


def test_gaps_and_missing_validation_are_drawn_as_gaps(drawn):
    lines = [line("joint", 1, False, loss=1.0), line("joint", 2, False, loss=float("nan")), line("joint", 3, False, loss=2.0)]
    canvas = drawn(training_curves, lines)
    np.testing.assert_allclose(curve(panels(canvas)["loss"], BLUE), [(1, 1), (3, 2)])
    assert "validation" not in [t.get_text() for t in canvas.axes.texts]


@pytest.mark.parametrize("lines", [[], [{"epoch": 1}], ["text"], [{"train": {}}]])
def test_what_is_not_a_log_is_refused(tmp_path, lines):
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        training_curves(tmp_path / "c.png", lines)


# ---- scatter --------------------------------------------------------------------------------------------------------
def test_each_panel_holds_its_variable_true_across_and_measured_up(drawn):
    true = RNG.normal(size=(50, 3)) * (1, 10, 100)
    found = true + RNG.normal(size=(50, 3))
    plots = panels(drawn(scatter, found, true, ["a", "light", "c"], ["", "degrees", "m"], {"a": 0.5, "light": 0.9, "c": 1.0}))
    assert list(plots) == ["a", "light", "c"]
    for k, axes in enumerate(plots.values()):
        points = np.asarray(axes.collections[0].get_offsets())
        np.testing.assert_allclose(points[np.lexsort(points.T)], np.column_stack([true[:, k], found[:, k]])[np.lexsort([true[:, k], found[:, k]])])
        assert axes.get_xlim() == axes.get_ylim()
    assert plots["light"].get_xlabel() == "true (degrees)"
    assert plots["light"].get_ylabel() == "measured (degrees)"
    assert plots["a"].get_xlabel() == "true"


def test_names_and_scores_are_written(tmp_path, svg):
    values = RNG.normal(size=(9, 5))
    names = ["a<b", "R&D", "温度", "$x$", "shadow_position"]
    scatter(tmp_path / "s.svg", values, values, names, [""] * 5, [0.987, -1.5, 1, 0, 0.25])
    texts = svg(tmp_path / "s.svg")[0]
    assert set(names) <= set(texts)
    assert {"R² = 0.987", "R² = −1.500", "R² = 0.250"} <= set(texts)


def test_without_scores_they_are_those_of_the_metric(drawn):
    true = RNG.normal(size=(60, 2))
    found = true + 0.3 * RNG.normal(size=(60, 2))
    texts = [t.get_text() for t in drawn(scatter, found, true, ["a", "b"]).axes.texts]
    for score in metric_r2(found, true, ["a", "b"]).per_variable.values():
        assert f"R² = {score:.3f}" in texts


def test_scatter_of_one_point_and_of_constant_values(drawn, assert_no_overlap):
    assert_no_overlap(drawn(scatter, [[1.0]], [[1.0]], ["a"]))
    assert_no_overlap(drawn(scatter, np.zeros((5, 2)), np.full((5, 2), 1e6), ["a", "b"], ["µm", "canvas units"], [0.1, 0.2]))


def test_many_points_are_thinned_and_the_svg_stays_small(tmp_path, drawn):
    values = RNG.normal(size=(20000, 1))
    assert len(panels(drawn(scatter, values, values, ["a"]))["a"].collections[0].get_offsets()) == 4000
    scatter(tmp_path / "s.svg", values, values, ["a"])
    assert (tmp_path / "s.svg").stat().st_size < 200_000


def test_bad_tables_are_refused(tmp_path):
    path, values = tmp_path / "s.png", np.zeros((4, 2))
    for measured, labels, names in (
        (values, values[:3], "ab"),
        (values, values, "abc"),
        (values[:, 0], values[:, 0], "a"),
        (values[:0], values[:0], "ab"),
    ):
        with pytest.raises(DataError, match="must both be"):
            scatter(path, measured, labels, names)
    with pytest.raises(DataError, match="finite"):
        scatter(path, values * np.nan, values, "ab")
    with pytest.raises(DataError, match="1 units were given for 2 variables"):
        scatter(path, values, values, "ab", ["m"])
    with pytest.raises(DataError, match="missing for 'b'"):
        scatter(path, values, values, "ab", ["", ""], {"a": 1.0})
    with pytest.raises(DataError, match=r"3 values of R\^2"):
        scatter(path, values, values, "ab", ["", ""], [1, 2, 3])
    assert not path.exists()
