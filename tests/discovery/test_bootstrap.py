"""Bootstrap confidence: sure where the data are, half where the direction is open, the same for the same seed; and bridges to causal-learn."""

import importlib.util
import sys

import numpy as np
import pytest

from intervae.discovery import bootstrap, discover
from intervae.discovery.bridges import pattern_from_marks
from intervae.errors import DataError, UsageError
from intervae.figures import draw_graph


def table(rows: int = 400) -> np.ndarray:
    """x0 -> x2 <- x1; x3 -> x4, of which only the presence shows."""
    x = np.random.default_rng(0).normal(size=(rows, 5))
    x[:, 2] += x[:, 0] - x[:, 1]
    x[:, 4] += x[:, 3]
    return x


def test_confidence_is_the_share_of_resamples_with_the_edge() -> None:
    sure = bootstrap(table(), "ges", resamples=12)
    assert sure.confidence[0, 2] == sure.confidence[1, 2] == 1.0
    assert sure.confidence[2, 0] == 0.0
    assert sure.confidence[3, 4] == sure.confidence[4, 3] == 0.5  # no data can tell the direction
    assert sure.graph == discover(table(), "ges").graph
    assert sure.failed == 0
    again = bootstrap(table(), "ges", resamples=12)
    np.testing.assert_array_equal(sure.confidence, again.confidence)
    assert not np.array_equal(sure.confidence, bootstrap(table(60), "ges", resamples=12, seed=1).confidence)


def test_confidence_is_checked_against_a_count_by_hand() -> None:
    columns = table(80)
    sure = bootstrap(columns, "ges", resamples=5, seed=4)
    generator = np.random.default_rng([4, 7])
    counted = np.zeros((5, 5))
    for _ in range(5):
        pattern = discover(columns[generator.integers(0, 80, 80)], "ges", seed=4).pattern
        counted += np.where(pattern == -1, 0.5, pattern)
    np.testing.assert_allclose(sure.confidence, counted / 5)


def test_consensus_and_edges_are_ranked_by_confidence(tmp_path) -> None:
    sure = bootstrap(table(), "ges", resamples=6)
    assert sure.consensus(0.9).adjacency.sum() == 2
    assert sure.consensus(0.9).is_acyclic
    ranked = [confidence for _, _, confidence in sure.edges()]
    assert ranked == sorted(ranked, reverse=True)
    draw_graph(tmp_path / "sure.svg", sure.graph, confidence=sure.confidence)
    assert "100%" in (tmp_path / "sure.svg").read_text()


def test_resamples_that_cannot_be_used_are_counted() -> None:
    columns = np.random.default_rng(1).normal(size=(60, 3))
    columns[:, 2] = 0.0
    columns[7, 2] = 1.0  # constant in about a third of the resamples
    sure = bootstrap(columns, "ges", resamples=20)
    assert 0 < sure.failed < 20
    with pytest.raises(UsageError, match="resamples=1"):
        bootstrap(columns, "ges", resamples=1)
    with pytest.raises(DataError, match="constant"):
        bootstrap(np.ones((60, 3)), "ges", resamples=5)


def test_the_bridge_reads_the_end_marks_of_causal_learn() -> None:
    marks = np.zeros((4, 4), dtype=int)
    marks[0, 1], marks[1, 0] = -1, 1  # 0 -> 1
    marks[1, 2] = marks[2, 1] = -1  # 1 - 2
    marks[2, 3] = marks[3, 2] = 1  # 2 <-> 3: open
    pattern = pattern_from_marks(marks)
    assert {tuple(edge) for edge in np.argwhere(pattern).tolist()} == {(0, 1), (1, 2), (2, 1), (2, 3), (3, 2)}


@pytest.mark.parametrize("method", ["causal-learn-pc", "causal-learn-ges"])
def test_without_causal_learn_the_error_says_how_to_install_it(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("causallearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "causallearn", None)
    with pytest.raises(UsageError, match=r"pip install .*causal-learn"):
        discover(table(), method)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["causal-learn-pc", "causal-learn-ges"])
def test_causal_learn_finds_the_collider(method: str) -> None:
    if importlib.util.find_spec("causallearn") is None:
        pytest.skip("causal-learn is not installed; it is an extra")
    found = discover(table(), method)
    assert {("x0", "x2"), ("x1", "x2")} <= {edge[:2] for edge in found.graph.edges}
    assert {frozenset(edge) for edge in found.ambiguous} == {frozenset(("x3", "x4"))}


def test_the_tests_of_pc_are_for_their_kinds_of_columns() -> None:
    with pytest.raises(UsageError, match="fisherz, kci"):
        discover(table(), "causal-learn-pc", test="fisher")
    with pytest.raises(DataError, match="discrete"):
        discover(table(), "causal-learn-pc", test="chisq")
