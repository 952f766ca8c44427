"""Graph drawings: arrows join their nodes, nothing overlaps, colours match the SHD."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.text import Text

from intervae.causal.graph import CausalGraph
from intervae.data.simulators import Pendulum
from intervae.errors import DataError
from intervae.figures import draw_graph
from intervae.figures.edge_routing import sample_curve
from intervae.figures.graph_edges import KINDS
from intervae.figures.graph_layout import arrange


def random_graph(n, edges, seed, names=None, acyclic=True):
    """About `edges` edges over n variables in a random order."""
    rng = np.random.default_rng(seed)
    chosen = rng.random((n, n)) < 2 * edges / max(1, n * (n - 1)) / (1 if acyclic else 2)
    weights = np.where(chosen, rng.uniform(0.2, 1.5, (n, n)) * rng.choice([-1, 1], (n, n)), 0)
    weights = np.triu(weights, 1) if acyclic else weights * (1 - np.eye(n))
    order = rng.permutation(n)
    return CausalGraph(names or [f"variable_{i}" for i in range(n)], weights[np.ix_(order, order)])


def nodes_and_arrows(canvas):
    """Boxes (left, top, right, bottom) of the nodes, and arrows by (cause, effect)."""
    nodes = sorted(
        (p for p in canvas.figure.findobj(FancyBboxPatch) if p.get_gid()),
        key=lambda p: int(p.get_gid().split("-")[1]),
    )
    boxes = np.array(
        [
            (p.get_x(), p.get_y(), p.get_x() + p.get_width(), p.get_y() + p.get_height())
            for p in nodes
        ]
    )
    arrows = {
        tuple(map(int, p.get_gid().split("-")[1:])): p
        for p in canvas.figure.findobj(FancyArrowPatch)
        if (p.get_gid() or "").startswith("edge")
    }
    return boxes, arrows


def assert_well_drawn(canvas, graph, edges):
    """Arrows join the borders of their nodes and no other node; nodes do not overlap."""
    boxes, arrows = nodes_and_arrows(canvas)
    assert len(boxes) == len(graph)
    assert set(arrows) == edges
    assert boxes[:, :2].min() >= 0
    assert boxes[:, 2].max() <= canvas.width
    assert boxes[:, 3].max() <= canvas.height
    for k, (left, top, right, bottom) in enumerate(boxes):
        others = np.delete(boxes, k, axis=0)
        assert not (
            (others[:, 0] < right)
            & (others[:, 2] > left)
            & (others[:, 1] < bottom)
            & (others[:, 3] > top)
        ).any()
    for (cause, effect), arrow in arrows.items():
        points = sample_curve(arrow._path_original)
        for end, node in ((points[0], cause), (points[-1], effect)):
            left, top, right, bottom = boxes[node]
            assert left < end[0] < right
            assert min(abs(end[1] - top), abs(end[1] - bottom)) < 1e-6
        inside = (points[:, None] > boxes[:, :2] + 0.5).all(2) & (
            points[:, None] < boxes[:, 2:] - 0.5
        ).all(2)
        assert not inside.any(), f"{cause} -> {effect} runs through {np.flatnonzero(inside.any(0))}"
        assert points[:, 0].min() >= 0
        assert points[:, 0].max() <= canvas.width


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 20, 30])
def test_labels_do_not_overlap_for_1_to_30_nodes(drawn, assert_no_overlap, n):
    for seed, density in enumerate((0.5, 1.4)):
        graph = random_graph(n, density * n, seed)
        canvas = drawn(draw_graph, graph)
        assert_well_drawn(canvas, graph, {(int(j), int(i)) for j, i in np.argwhere(graph.weights)})
        assert_no_overlap(canvas)


@pytest.mark.parametrize("seed", range(3))
def test_causes_are_above_their_effects(drawn, seed):
    graph = random_graph(14, 20, seed)
    boxes, arrows = nodes_and_arrows(drawn(draw_graph, graph))
    assert arrows
    for cause, effect in arrows:
        assert boxes[cause, 3] < boxes[effect, 1]


def test_an_svg_has_every_name_and_one_arrow_per_edge(tmp_path, svg):
    names = ["a<b", "R&D", "größe", "温度", "$x^2$", 'say "hi"', "x -- y", "shadow_length"]
    graph = random_graph(8, 12, 5, names)
    draw_graph(tmp_path / "g.svg", graph, title="<title> & more")
    texts, ids, _ = svg(tmp_path / "g.svg")
    assert set(names) <= set(texts)
    assert "<title> & more" in texts
    assert sorted(i for i in ids if i.startswith("edge-")) == sorted(
        f"edge-{j}-{i}" for j, i in np.argwhere(graph.weights)
    )
    for *_, weight in graph.edges:
        assert f"{weight:.2f}".replace("-", "−") in texts


@pytest.mark.parametrize(
    "graph",
    [
        CausalGraph.from_edges("ab", [("a", "b", 1.0), ("b", "a", 0.5)]),
        CausalGraph.from_edges(
            "abc", [("a", "b", 1.0), ("b", "c", 0.5), ("c", "a", 0.3), ("b", "a", 0.2)]
        ),
        random_graph(9, 25, 0, acyclic=False),
        CausalGraph([f"v{i}" for i in range(12)], 1 - np.eye(12)),
    ],
    ids=["two", "three", "nine", "complete"],
)
def test_a_graph_with_cycles_is_drawn(drawn, graph):
    canvas = drawn(draw_graph, graph)
    assert_well_drawn(canvas, graph, {(int(j), int(i)) for j, i in np.argwhere(graph.weights)})
    _, arrows = nodes_and_arrows(canvas)
    for (cause, effect), arrow in arrows.items():
        if (effect, cause) in arrows and len(arrows) < 60:  # two separate lines
            there, back = (
                sample_curve(arrow._path_original),
                sample_curve(arrows[effect, cause]._path_original)[::-1],
            )
            assert np.abs(there[len(there) // 2] - back[len(back) // 2]).max() > 2


@pytest.mark.parametrize("seed", range(6))
def test_colours_agree_with_the_structural_hamming_distance(drawn, words, seed):
    names = [f"v{i}" for i in range(7)]
    estimated, true = random_graph(7, 9, seed, names), random_graph(7, 9, seed + 100, names)
    canvas = drawn(
        draw_graph, estimated, true_graph=CausalGraph(names[::-1], true.weights[::-1, ::-1])
    )  # another order of the same variables
    _, arrows = nodes_and_arrows(canvas)
    kinds = {kind: set() for kind in KINDS}
    for edge, arrow in arrows.items():
        kinds[
            next(
                kind for kind, (color, _) in KINDS.items() if to_hex(arrow.get_edgecolor()) == color
            )
        ].add(edge)
    f, t = estimated.adjacency, true.adjacency
    pairs = {(j, i) for j in range(7) for i in range(7)}
    assert kinds["correct"] == {(j, i) for j, i in pairs if f[j, i] and t[j, i]}
    assert kinds["reversed"] == {(j, i) for j, i in pairs if f[j, i] and t[i, j]}
    assert kinds["wrong"] == {(j, i) for j, i in pairs if f[j, i] and not t[j, i] and not t[i, j]}
    assert kinds["missing"] == {(j, i) for j, i in pairs if t[j, i] and not f[j, i] and not f[i, j]}
    assert len(kinds["missing"] | kinds["wrong"] | kinds["reversed"]) == estimated.shd(true)
    legend = {text for text, _ in words(canvas)}
    assert {f"{kind} ({len(edges)})" for kind, edges in kinds.items() if edges} <= legend
    assert all(arrows[edge].get_linestyle() != "-" for edge in kinds["missing"])


def test_positions_depend_only_on_the_true_graph(drawn):
    true = Pendulum.graph
    estimated = CausalGraph(true.names, 0.5 * true.weights)
    reversed_edge = CausalGraph.from_edges(
        true.names, [("shadow_length", "light", 0.5), ("pendulum", "shadow_length", 0.5)]
    )
    np.testing.assert_allclose(
        nodes_and_arrows(drawn(draw_graph, estimated, true_graph=true))[0][:, 1],
        nodes_and_arrows(drawn(draw_graph, reversed_edge, true_graph=true))[0][:, 1],
    )


def test_arrow_width_increases_with_strength(drawn):
    graph = CausalGraph.from_edges("abcd", [("a", "d", 0.1), ("b", "d", -0.5), ("c", "d", 1.0)])
    _, arrows = nodes_and_arrows(drawn(draw_graph, graph))
    widths = [arrows[k, 3].get_linewidth() for k in range(3)]
    assert widths == sorted(widths)
    assert widths[2] > 2 * widths[0]


def test_an_unweighted_graph_has_no_printed_strengths(drawn, words):
    assert {text for text, _ in words(drawn(draw_graph, Pendulum.graph))} == set(
        Pendulum.graph.names
    )


def test_confidence_fades_arrows_and_is_printed(drawn, words):
    graph = CausalGraph.from_edges("abc", [("a", "c", 0.5), ("b", "c", 0.7)])
    confidence = np.zeros((3, 3))
    confidence[0, 2], confidence[1, 2] = 0.3, 0.95
    canvas = drawn(draw_graph, graph, confidence=confidence)
    _, arrows = nodes_and_arrows(canvas)
    assert arrows[0, 2].get_alpha() < arrows[1, 2].get_alpha() <= 1
    assert {"0.50 (30%)", "0.70 (95%)"} <= {text for text, _ in words(canvas)}


def test_long_names_do_not_overlap(drawn, assert_no_overlap):
    graph = random_graph(
        6, 7, 2, [f"a_rather_long_name_that_somebody_gave_to_variable_number_{i}" for i in range(6)]
    )
    canvas = drawn(draw_graph, graph, true_graph=graph)
    assert_well_drawn(canvas, graph, {(int(j), int(i)) for j, i in np.argwhere(graph.weights)})
    assert_no_overlap(canvas)


def test_wrong_input_raises(tmp_path):
    with pytest.raises(DataError, match="different variables"):
        draw_graph(tmp_path / "g.png", Pendulum.graph, true_graph=CausalGraph.empty("ab"))
    for confidence in (np.ones(4), np.full((4, 4), 1.5), np.full((4, 4), np.nan)):
        with pytest.raises(DataError, match=r"must be \(4, 4\) numbers in \[0, 1\]"):
            draw_graph(tmp_path / "g.png", Pendulum.graph, confidence=confidence)
    with pytest.raises(DataError, match="without variables"):
        draw_graph(tmp_path / "g.png", CausalGraph.empty([]))
    assert not list(tmp_path.iterdir())


def test_undirected_edges_are_dashed_without_a_head(drawn, assert_no_overlap):
    graph = CausalGraph("abcd", np.diag([0.5, 0.9, 0.7], 1))
    canvas = drawn(draw_graph, graph, undirected=[("b", "c")])
    assert_well_drawn(canvas, graph, {(0, 1), (1, 2), (2, 3)})
    assert_no_overlap(canvas)
    for edge, arrow in nodes_and_arrows(canvas)[1].items():
        plain = edge == (1, 2)
        assert (
            "Curve" in type(arrow.get_arrowstyle()).__name__
            and not arrow.get_arrowstyle().arrow.endswith(">")
        ) is plain
        assert (arrow.get_linestyle() != "-") is plain
    words = [text.get_text() for text in canvas.figure.findobj(Text)]
    assert "no arrow head: direction unknown (1)" in words
    assert not any(
        "head" in text.get_text() for text in drawn(draw_graph, graph).figure.findobj(Text)
    )


# ---- layout --------------------------------------------------------------------------------------
def crossings(layout, edges):
    return (
        sum(
            (layout.x[a] - layout.x[c]) * (layout.x[b] - layout.x[d]) < 0
            for a, b in edges
            for c, d in edges
        )
        // 2
    )


def test_layout_avoids_needless_crossings():
    edges = [(0, 7), (1, 6), (2, 5), (3, 4), (0, 6)]
    layout = arrange(np.full(8, 40.0), edges, gap=20, lane=12, widest=1000)
    assert layout.layer.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert crossings(layout, edges) == 0


def test_a_long_edge_passes_a_straight_chain():
    layout = arrange(
        np.full(4, 60.0), [(0, 1), (1, 2), (2, 3), (0, 3)], gap=20, lane=12, widest=1000
    )
    assert layout.layer.tolist() == [0, 1, 2, 3]
    assert len(layout.lanes[0, 3]) == 2
    assert all(
        abs(lane - layout.x[node]) >= 30 + 20 - 1e-6
        for lane, node in zip(layout.lanes[0, 3], (1, 2), strict=True)
    )
    assert layout.lanes[0, 3][0] == pytest.approx(layout.lanes[0, 3][1], abs=1)


def test_wide_rows_are_broken():
    edges = [(k, 15 + k) for k in range(15)]
    layout = arrange(np.full(32, 100.0), edges, gap=20, lane=12, widest=500)
    assert np.bincount(layout.layer).max() <= 4
    assert all(layout.layer[a] < layout.layer[b] for a, b in edges)
    assert (
        layout.isolated_layer == layout.layer[30] == layout.layer[31] == layout.layer[:30].max() + 1
    )


def test_a_complete_graph_of_30_is_drawn_in_seconds(drawn):
    graph = CausalGraph([f"v{i}" for i in range(30)], np.triu(np.ones((30, 30)), 1))
    canvas = drawn(draw_graph, graph)
    assert_well_drawn(canvas, graph, {(j, i) for j in range(30) for i in range(j + 1, 30)})
