"""Bootstrap confidence: sure where the data are, half where the direction is open, the same for the same seed; and bridges to causal-learn."""

import importlib.util
import sys

import numpy as np
import pytest

from intervae.discovery import METHODS, Discovery, bootstrap, discover
from intervae.discovery.bridges import pattern_from_marks
from intervae.errors import DataError, UsageError
from intervae.figures import draw_graph


def table(rows: int = 1000) -> np.ndarray:
    """x0 -> x2 <- x1; x3 -> x4, of which only the presence shows."""
    x = np.random.default_rng(0).normal(size=(rows, 5))
    x[:, 2] += x[:, 0] - x[:, 1]
    x[:, 4] += x[:, 3]
    return x


def test_confidence_is_the_share_of_resamples_with_the_edge() -> None:
    sure = bootstrap(table(), "ges", resamples=12, price=3.0)  # dear edges: none by chance
    assert sure.confidence[0, 2] == sure.confidence[1, 2] == 1.0
    assert sure.confidence[2, 0] == 0.0
    assert sure.confidence[3, 4] == sure.confidence[4, 3] == 0.5  # no data can tell the direction
    assert sure.graph == discover(table(), "ges", price=3.0).graph
    assert sure.failed == 0
    again = bootstrap(table(), "ges", resamples=12, price=3.0)
    np.testing.assert_array_equal(sure.confidence, again.confidence)
    assert not np.array_equal(sure.confidence, bootstrap(table(100), "ges", resamples=12, seed=1).confidence)


def test_confidence_is_checked_against_a_count_by_hand() -> None:
    columns = table(120)
    halves, counted = [], np.zeros((5, 5))

    def learn(rows: np.ndarray, names: list[str], kinds: list[str], *, seed: int) -> Discovery:
        found = discover(rows, "ges", seed=seed)
        if len(rows) < len(columns):  # not the whole table
            halves.append(rows)
            counted[:] += np.where(found.pattern == -1, 0.5, found.pattern)
        return found

    sure = bootstrap(columns, learn, resamples=5, seed=4, replace=False)
    np.testing.assert_allclose(sure.confidence, counted / 5)
    assert len(halves) == 5
    assert all(len(np.unique(rows, axis=0)) == len(rows) == 60 for rows in halves)  # no row twice
    by_name = bootstrap(columns, "ges", resamples=5, seed=4)
    np.testing.assert_array_equal(by_name.confidence, sure.confidence)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_pure_noise_gives_no_confidence(method: str) -> None:
    """Rows drawn with replacement would be held out and learned from at once, and every pair be linked in 20% to 80% of the tables."""
    if method.startswith("causal-learn") and importlib.util.find_spec("causallearn") is None:
        pytest.skip("causal-learn is not installed; it is an extra")
    quick = {"steps": 100, "rounds": 3, "rate": 0.03} if method.startswith(("notears", "dagma")) else {}
    quick |= {"rate": 0.01, "steps": 200} if method in ("notears", "dagma") else {}
    sure = bootstrap(np.random.default_rng(0).normal(size=(200, 4)), method, resamples=6, **quick)
    linked = (sure.confidence + sure.confidence.T)[np.triu_indices(4, 1)]
    assert sure.graph.edges == []
    assert linked.mean() <= 0.15
    assert linked.max() <= 0.4


def test_rows_drawn_with_replacement_are_what_the_halves_guard_against() -> None:
    noise = np.random.default_rng(0).normal(size=(200, 4))
    assert bootstrap(noise, "ges-generalised", resamples=6, replace=True).confidence.sum() > 6 * 0.25  # of 6 pairs


def test_consensus_and_edges_are_ranked_by_confidence(tmp_path) -> None:
    sure = bootstrap(table(), "ges", resamples=6)
    assert sure.consensus(0.9).adjacency.sum() == 2
    assert sure.consensus(0.9).is_acyclic
    ranked = [confidence for _, _, confidence in sure.edges()]
    assert ranked == sorted(ranked, reverse=True)
    draw_graph(tmp_path / "sure.svg", sure.graph, confidence=sure.confidence)
    assert "100%" in (tmp_path / "sure.svg").read_text()


def test_resamples_that_cannot_be_used_are_counted() -> None:
    columns = np.random.default_rng(1).normal(size=(100, 3))
    columns[:, 2] = 0.0
    columns[7, 2] = 1.0  # constant in about half of the resamples
    sure = bootstrap(columns, "ges", resamples=20)
    assert 0 < sure.failed < 20
    with pytest.raises(UsageError, match="resamples=1"):
        bootstrap(columns, "ges", resamples=1)
    with pytest.raises(DataError, match="constant"):
        bootstrap(np.ones((100, 3)), "ges", resamples=5)
    with pytest.raises(DataError, match="99 rows are too few to learn from half of them; give 100"):
        bootstrap(columns[:99], "ges", resamples=5)


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
