"""Files of figures: formats, deterministic bytes, atomic writes, threads; text layout."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from intervae import figures
from intervae.causal.graph import CausalGraph
from intervae.errors import DataError, UsageError
from intervae.figures import (
    adjacency_history,
    counterfactual_strip,
    draw_graph,
    intervention_sweep,
    interventions,
    reconstructions,
    scatter,
    training_curves,
)
from intervae.figures.counterfactuals import SweepRow
from intervae.figures.image_grids import InterventionRow
from intervae.figures.text_layout import printable, text_width, wrap

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
GRAPH = CausalGraph.from_edges("abc", [("a", "b", 0.5), ("b", "c", -1.0)])
LINE = {"phase": "joint", "epoch": 1, "train": {"loss": 2.0}, "validation": {"loss": 3.0}}
FIGURES = {
    "reconstructions": lambda path: reconstructions(path, IMAGES, IMAGES),
    "interventions": lambda path: interventions(
        path, [InterventionRow("do(a = 1)", IMAGES, IMAGES)], IMAGES
    ),
    "strip": lambda path: counterfactual_strip(
        path, IMAGES[0], IMAGES, ["a", "b"], difference=True
    ),
    "sweep": lambda path: intervention_sweep(path, IMAGES[0], [SweepRow("a", [0.0, 1.0], IMAGES)]),
    "graph": lambda path: draw_graph(path, GRAPH),
    "history": lambda path: adjacency_history(
        path, [GRAPH.weights, GRAPH.weights], GRAPH.names, true_graph=GRAPH
    ),
    "curves": lambda path: training_curves(path, [LINE, LINE]),
    "scatter": lambda path: scatter(
        path, IMAGES[0, 0, :, :2], IMAGES[0, 1, :, :2], "ab", ["m", ""], [0.5, 0.9]
    ),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_every_figure_writes_deterministic_png_and_svg(tmp_path, svg, name, suffix):
    first, second = tmp_path / f"deep/er/1.{suffix}", tmp_path / f"2.{suffix}"
    FIGURES[name](first)
    FIGURES[name](str(second))
    assert first.read_bytes() == second.read_bytes()
    assert sorted(p.name for p in first.parent.iterdir()) == [
        first.name
    ]  # no temporary file is left
    if suffix == "png":
        with Image.open(first) as picture:
            width, height = picture.size
        assert width > 60
        assert height > 60
        assert width % 18 == height % 18 == 0
    else:
        assert svg(first)[0]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("path", ["figure.jpeg", "figure", "figure.pgn"])
def test_an_unknown_suffix_raises_with_the_known_ones(tmp_path, name, path):
    with pytest.raises(UsageError) as caught:
        FIGURES[name](tmp_path / path)
    assert ".png" in str(caught.value)
    assert ".svg" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_upper_case_suffixes_are_accepted(tmp_path):
    FIGURES["graph"](tmp_path / "G.PNG")
    with Image.open(tmp_path / "G.PNG") as picture:
        assert picture.format == "PNG"


def test_a_failed_figure_leaves_the_old_file(tmp_path):
    path = tmp_path / "r.png"
    FIGURES["reconstructions"](path)
    before = path.read_bytes()
    with pytest.raises(DataError):
        reconstructions(path, IMAGES, IMAGES[:1])
    assert path.read_bytes() == before


def test_threads_give_equal_files_and_keep_global_settings(tmp_path):
    jobs = [
        (name, suffix) for name in ("interventions", "graph", "curves") for suffix in ("png", "svg")
    ]
    for name, suffix in jobs:
        FIGURES[name](tmp_path / f"alone-{name}.{suffix}")
    before = dict(mpl.rcParams)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda job: FIGURES[job[0]](tmp_path / f"{job[0]}.{job[1]}"), jobs))
    assert dict(mpl.rcParams) == before
    for name, suffix in jobs:
        assert (tmp_path / f"{name}.{suffix}").read_bytes() == (
            tmp_path / f"alone-{name}.{suffix}"
        ).read_bytes()


def test_matplotlib_settings_of_the_user_have_no_effect(tmp_path):
    for name in ("interventions", "graph"):
        FIGURES[name](tmp_path / f"{name}.png")
    with mpl.rc_context(
        {
            "savefig.bbox": "tight",
            "text.usetex": True,
            "font.size": 30,
            "savefig.facecolor": "black",
            "figure.facecolor": "black",
        }
    ):
        for name in ("interventions", "graph"):
            FIGURES[name](tmp_path / f"other-{name}.png")
    for name in ("interventions", "graph"):
        assert (tmp_path / f"{name}.png").read_bytes() == (
            tmp_path / f"other-{name}.png"
        ).read_bytes()


def test_figures_import_neither_pyplot_nor_a_model():
    imported = set()
    for path in Path(figures.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported |= {f"{node.module}.{name.name}" for name in node.names}
    assert "matplotlib.figure.Figure" in imported
    assert not [
        name
        for name in imported
        if name.startswith(
            ("matplotlib.pyplot", "intervae.models", "intervae.training", "intervae.nets")
        )
    ]


def test_wrap_breaks_before_an_equals_sign():
    label = "do(shadow_position = 12.5 canvas units)"
    assert wrap(label, 160).split("\n") == ["do(shadow_position", "= 12.5 canvas units)"]
    assert wrap(label, 1000) == label
    assert (
        max(text_width(line) for line in wrap("one two three four five six seven", 90).split("\n"))
        <= 90
    )
    assert wrap("unbreakable", 1) == "unbreakable"


def test_printable_removes_characters_that_xml_forbids():
    assert printable("温度 <größe> & \U0001f600") == "温度 <größe> & \U0001f600"
    assert printable("a\nb\x00c\ud800\uffff d") == "a b c d"
