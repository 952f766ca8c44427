"""Scatter plots: measured over true values of each variable, and R^2."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import scatter
from intervae.metrics.r_squared import r2 as metric_r2

RNG = np.random.default_rng(0)


def test_each_panel_has_measured_over_true_values(drawn, panels):
    true = RNG.normal(size=(50, 3)) * (1, 10, 100)
    measured = true + RNG.normal(size=(50, 3))
    plots = panels(
        drawn(
            scatter,
            measured,
            true,
            ["a", "light", "c"],
            ["", "degrees", "m"],
            {"a": 0.5, "light": 0.9, "c": 1.0},
        )
    )
    assert list(plots) == ["a", "light", "c"]
    for k, axes in enumerate(plots.values()):
        points = np.asarray(axes.collections[0].get_offsets())
        np.testing.assert_allclose(
            points[np.lexsort(points.T)],
            np.column_stack([true[:, k], measured[:, k]])[np.lexsort([true[:, k], measured[:, k]])],
        )
        assert axes.get_xlim() == axes.get_ylim()
    assert plots["light"].get_xlabel() == "true (degrees)"
    assert plots["light"].get_ylabel() == "measured (degrees)"
    assert plots["a"].get_xlabel() == "true"


def test_names_and_scores_are_printed(tmp_path, svg):
    values = RNG.normal(size=(9, 5))
    names = ["a<b", "R&D", "温度", "$x$", "shadow_position"]
    scatter(tmp_path / "s.svg", values, values, names, [""] * 5, [0.987, -1.5, 1, 0, 0.25])
    texts = svg(tmp_path / "s.svg")[0]
    assert set(names) <= set(texts)
    assert {"R² = 0.987", "R² = −1.500", "R² = 0.250"} <= set(texts)


def test_default_scores_equal_the_metric(drawn):
    true = RNG.normal(size=(60, 2))
    measured = true + 0.3 * RNG.normal(size=(60, 2))
    texts = [t.get_text() for t in drawn(scatter, measured, true, ["a", "b"]).axes.texts]
    for score in metric_r2(measured, true, ["a", "b"]).per_variable.values():
        assert f"R² = {score:.3f}" in texts


def test_scatter_of_one_point_and_of_constant_values(drawn, assert_no_overlap):
    assert_no_overlap(drawn(scatter, [[1.0]], [[1.0]], ["a"]))
    assert_no_overlap(
        drawn(
            scatter,
            np.zeros((5, 2)),
            np.full((5, 2), 1e6),
            ["a", "b"],
            ["µm", "canvas units"],
            [0.1, 0.2],
        )
    )


def test_many_points_are_subsampled(tmp_path, drawn, panels):
    values = RNG.normal(size=(20000, 1))
    assert (
        len(panels(drawn(scatter, values, values, ["a"]))["a"].collections[0].get_offsets()) == 4000
    )
    scatter(tmp_path / "s.svg", values, values, ["a"])
    assert (tmp_path / "s.svg").stat().st_size < 200_000


def test_wrong_tables_raise(tmp_path):
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
