"""Bars and curves of experiments: the values of the rows and of the paper."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import curves_over_depth, curves_over_parameter, grouped_bars, horizontal_bars
from intervae.figures.style import BLUE, INK, SERIES

MODELS, GROUPS = (
    ("causal-vae", "a <model> with a longer name", "ladder"),
    (("pendulum", ""), ("celeba", "SMILE")),
)


def row(model, metric, mean, *, data="pendulum", variant="", part="", std=0.05, **paper):
    return {
        "data": data,
        "model": model,
        "variant": variant,
        "part": part,
        "metric": metric,
        "mean": mean,
        "std": std,
        **paper,
    }


def table():
    rows = []
    for g, (data, variant) in enumerate(GROUPS):
        for m, model in enumerate(MODELS):
            for metric in ("mic", "tic", "seconds"):
                value = 0.1 + 0.2 * m + 0.3 * g + 0.01 * (metric == "tic")
                rows.append(
                    row(model, metric, value, data=data, variant=variant, paper=value + 0.05)
                )
                rows.append(
                    row(model, metric, 0.99, data=data, variant=variant, part="light")
                )  # of one variable, not drawn
    return [r for r in rows if (r["data"], r["model"]) != ("celeba", "ladder")]  # a missing job


def bars(axes):
    """(x middle, y bottom, length along the value axis, colour) of every bar."""
    return [
        (p.get_x() + p.get_width() / 2, p.get_y(), p.get_height(), p.get_facecolor())
        for p in axes.patches
    ]


def papers(axes):
    return np.concatenate(
        [np.column_stack(line.get_data()) for line in axes.lines if line.get_marker() == "D"]
    )


def test_bars_have_the_values_of_the_rows_and_a_colour_per_model(drawn):
    rows = table()
    mic, tic = drawn(grouped_bars, rows, metrics=("mic", "tic")).figure.axes[1:]
    for axes, metric in ((mic, "mic"), (tic, "tic")):
        expected = [
            r
            for model in MODELS
            for r in rows
            if r["model"] == model and r["metric"] == metric and not r["part"]
        ]
        np.testing.assert_allclose(
            [height for _, _, height, _ in bars(axes)], [r["mean"] for r in expected]
        )
        assert [round(x) for x, *_ in bars(axes)] == [
            GROUPS.index((r["data"], r["variant"])) for r in expected
        ]
        colours = [colour for *_, colour in bars(axes)]
        assert len(set(colours)) == len(MODELS)
        for model in MODELS:
            assert (
                len({c for c, r in zip(colours, expected, strict=True) if r["model"] == model}) == 1
            )
        np.testing.assert_allclose(
            papers(axes), [(x, r["paper"]) for (x, *_), r in zip(bars(axes), expected, strict=True)]
        )
        xs = sorted(x for x, *_ in bars(axes))
        assert min(np.diff(xs)) > 0.9 * axes.patches[0].get_width()  # no bar over another
        low, high = axes.get_ylim()
        assert low == 0
        assert high > max(r["paper"] for r in expected)


def test_a_row_of_the_papers_number_alone_has_a_diamond_and_no_bar(drawn):
    alone = {k: v for k, v in row("b", "mic", 0, paper=0.7).items() if k not in ("mean", "std")}
    axes = drawn(grouped_bars, [row("a", "mic", 0.5), alone], metrics=("mic",)).figure.axes[1]
    assert [height for _, _, height, _ in bars(axes)] == [0.5]
    ((x, y),) = papers(axes)
    assert y == 0.7
    assert x > bars(axes)[0][0]


def test_error_bars_are_one_standard_deviation_each_way(drawn):
    axes = drawn(grouped_bars, table(), metrics=("mic",)).figure.axes[1]
    spans = [
        segment[:, 1] for collection in axes.collections for segment in collection.get_segments()
    ]
    heights = [height for _, _, height, _ in bars(axes)]
    np.testing.assert_allclose(
        sorted(map(tuple, spans)), sorted((h - 0.05, h + 0.05) for h in heights)
    )


def test_negative_values_are_visible(drawn):
    axes = drawn(
        grouped_bars, [row("a", "r2", -0.4), row("b", "r2", 0.5)], metrics=("r2",)
    ).figure.axes[1]
    assert axes.get_ylim()[0] < -0.45


def test_texts_of_grouped_bars(drawn, tmp_path, svg, assert_no_overlap):
    grouped_bars(tmp_path / "b.svg", table(), metrics=("mic", "tic"), title="Five <methods>")
    texts = svg(tmp_path / "b.svg")[0]
    for word in (*MODELS, "paper", "MIC", "TIC", "pendulum", "celeba SMILE", "Five <methods>"):
        assert word in texts
    assert_no_overlap(drawn(grouped_bars, table(), metrics=("mic", "tic"), title="Five methods"))
    many = [
        row(f"method number {k}", "mic", 0.5, data=data, paper=0.4)
        for k in range(9)
        for data in ("one", "another", "a third")
    ]
    assert_no_overlap(
        drawn(
            grouped_bars,
            many,
            metrics=("mic",),
            title="A title that is longer than the figure is wide, so that it needs two lines",
        )
    )


def test_horizontal_bars_are_in_order_and_mark_chance(drawn, assert_no_overlap):
    rows = [
        row("vae", "score", 0.6, paper=0.62),
        row("vae", "score", 0.7, variant="large"),
        row("pca", "score", 0.9, paper=0.8),
    ]
    canvas = drawn(horizontal_bars, rows, metric="score", chance=0.25, title="Scores")
    axes = canvas.figure.axes[1]
    np.testing.assert_allclose([p.get_width() for p in axes.patches], [0.6, 0.7, 0.9])
    assert [t.get_text() for t in axes.get_yticklabels()] == ["vae", "vae large", "pca"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first is on top
    np.testing.assert_allclose(papers(axes), [(0.62, 0), (0.8, 2)])
    assert [
        list(line.get_xdata())
        for line in axes.lines
        if line.get_marker() != "D" and len(line.get_xdata()) == 2
    ] == [[0.25, 0.25]]
    assert_no_overlap(canvas)
    assert_no_overlap(drawn(horizontal_bars, rows, metric="score"))


def ladder():
    rows = []
    for depth in range(1, 6):
        for k, name in enumerate(("VAE", "VAE+BN", "LVAE+BN+WU")):
            if depth == 1 and k == 2:
                continue
            paper = {"paper": -84.0 - depth} if k else {}
            rows.append(
                row(
                    "ladder-vae",
                    "log_likelihood",
                    -90.0 + depth + k,
                    variant=f"{name} {depth}",
                    **paper,
                )
            )
            rows += [
                row(
                    "ladder-vae",
                    "active_units",
                    10.0 * k + i,
                    variant=f"{name} {depth}",
                    part=f"z{i + 1}",
                )
                for i in range(depth)
            ]
    long = row("ladder-vae", "log_likelihood", -82.0, variant="LVAE+BN+WU 5 long", paper=-82.12)
    return [
        long,
        *rows,
        row("ladder-vae", "active_units", 33.0, variant="LVAE+BN+WU 5 long", part="z1"),
    ]


def test_curves_over_depth_have_the_paper_dashed(drawn, assert_no_overlap):
    canvas = drawn(
        curves_over_depth,
        ladder(),
        metric="log_likelihood",
        layers=("active_units", "kl"),
        title="Hierarchies",
    )
    axes = canvas.figure.axes[1]
    ours = {
        line.get_color(): np.column_stack(line.get_data()).astype(float)
        for line in axes.lines
        if line.get_marker() == "o"
    }
    assert list(ours) == list(SERIES[:4])  # long, VAE, VAE+BN, LVAE+BN+WU
    np.testing.assert_allclose(ours[SERIES[0]], [(5, -82)])
    np.testing.assert_allclose(ours[SERIES[1]], [(d, -90 + d) for d in range(1, 6)])
    np.testing.assert_allclose(ours[SERIES[3]], [(d, -88 + d) for d in range(2, 6)])
    theirs = {
        line.get_color(): line
        for line in axes.lines
        if line.get_marker() == "D" and len(line.get_xdata())
    }
    assert SERIES[1] not in theirs
    np.testing.assert_allclose(
        np.column_stack(theirs[SERIES[2]].get_data()), [(d, -84 - d) for d in range(1, 6)]
    )
    assert theirs[SERIES[2]].get_linestyle() != "-"
    assert_no_overlap(canvas)


def test_layers_are_those_of_the_deepest_model(drawn, assert_no_overlap):
    kl = [
        row("ladder-vae", "kl", 20.0 - i, variant=f"VAE {depth}", part=f"z{i + 1}")
        for depth in (4, 5)
        for i in range(depth)
    ]
    canvas = drawn(
        curves_over_depth,
        [*ladder(), *kl],
        metric="log_likelihood",
        layers=("active_units", "kl"),
    )
    assert_no_overlap(canvas)
    _, _, axes, kl_axes = canvas.figure.axes
    assert sorted(height for _, _, height, _ in bars(kl_axes)) == [16.0, 17.0, 18.0, 19.0, 20.0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["z1", "z2", "z3", "z4", "z5"]
    heights = sorted((round(x), height) for x, _, height, _ in bars(axes))
    expected = [(0, 33.0)] + [(i, 10.0 * k + i) for k in range(3) for i in range(5)]
    assert heights == sorted(expected)


def test_missing_metrics_and_layers_raise():
    with pytest.raises(DataError, match="no numbers of 'tic' to draw; the results have mic"):
        grouped_bars("figure.png", [row("a", "mic", 1.0)], metrics=("mic", "tic"))
    with pytest.raises(DataError, match="'VAE' has no number of layers"):
        curves_over_depth(
            "figure.png",
            [row("a", "elbo", 1.0, variant="VAE")],
            metric="elbo",
            layers=("active_units",),
        )


def test_series_colours_are_distinct():
    assert len(set(SERIES)) == len(SERIES)
    assert SERIES[0] == BLUE
    assert INK not in SERIES


def test_curves_over_parameter_use_parts_and_variants(drawn):
    def row(variant, part, metric, mean):
        return {
            "data": "d",
            "model": "m",
            "variant": variant,
            "part": part,
            "metric": metric,
            "mean": mean,
            "std": 0.1,
        }

    rows = [
        row("path", "0.1", "path_shd", 4.0),
        row("path", "0.01", "path_shd", 6.0),
        row("masks 2", "", "shd", 3.0),
        row("path", "", "shd", 9.0),
    ]
    canvas = drawn(
        curves_over_parameter,
        rows,
        panels={"SHD": {"path_shd": "path", "shd": "masks"}},
        across="price",
    )
    axes = next(a for a in canvas.figure.axes if a.get_xlabel() == "price")
    assert axes.get_xscale() == "log"
    lines = [bar.lines[0].get_xydata().tolist() for bar in axes.containers]
    assert lines == [
        [[0.01, 6.0], [0.1, 4.0]],
        [[2.0, 3.0]],
    ]  # variants without a number are left out
