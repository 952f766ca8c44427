"""Bootstrap: confidences against a count by hand; methods of causal-learn."""

import importlib.util
import sys

import numpy as np
import pytest

from intervae.discovery import METHODS, Discovery, bootstrap, discover
from intervae.discovery.causal_learn import cpdag_from_marks
from intervae.errors import DataError, UsageError
from intervae.figures import draw_graph


def table(rows: int = 1000) -> np.ndarray:
    """x0 -> x2 <- x1; x3 -> x4, whose direction is not identifiable."""
    x = np.random.default_rng(0).normal(size=(rows, 5))
    x[:, 2] += x[:, 0] - x[:, 1]
    x[:, 4] += x[:, 3]
    return x


def test_confidence_is_the_fraction_of_resamples_with_the_edge() -> None:
    boot = bootstrap(
        table(), "ges", resamples=12, penalty=3.0
    )  # a high penalty: no edges by chance
    assert boot.confidence[0, 2] == boot.confidence[1, 2] == 1.0
    assert boot.confidence[2, 0] == 0.0
    assert boot.confidence[3, 4] == boot.confidence[4, 3] == 0.5  # not identifiable
    assert boot.graph == discover(table(), "ges", penalty=3.0).graph
    assert boot.failed == 0
    again = bootstrap(table(), "ges", resamples=12, penalty=3.0)
    np.testing.assert_array_equal(boot.confidence, again.confidence)
    assert not np.array_equal(
        boot.confidence, bootstrap(table(100), "ges", resamples=12, seed=1).confidence
    )


def test_confidence_equals_a_count_by_hand() -> None:
    columns = table(120)
    halves, counted = [], np.zeros((5, 5))

    def learn(rows: np.ndarray, names: list[str], kinds: list[str], *, seed: int) -> Discovery:
        result = discover(rows, "ges", seed=seed)
        if len(rows) < len(columns):  # a resample
            halves.append(rows)
            counted[:] += np.where(result.pattern == -1, 0.5, result.pattern)
        return result

    boot = bootstrap(columns, learn, resamples=5, seed=4, replace=False)
    np.testing.assert_allclose(boot.confidence, counted / 5)
    assert len(halves) == 5
    assert all(len(np.unique(rows, axis=0)) == len(rows) == 60 for rows in halves)  # no row twice
    by_name = bootstrap(columns, "ges", resamples=5, seed=4)
    np.testing.assert_array_equal(by_name.confidence, boot.confidence)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_pure_noise_has_low_confidence(method: str) -> None:
    if method.startswith("causal-learn") and importlib.util.find_spec("causallearn") is None:
        pytest.skip("causal-learn is not installed")
    quick = (
        {"steps": 100, "rounds": 3, "rate": 0.03} if method.startswith(("notears", "dagma")) else {}
    )
    quick |= {"rate": 0.01, "steps": 200} if method in ("notears", "dagma") else {}
    boot = bootstrap(np.random.default_rng(0).normal(size=(200, 4)), method, resamples=6, **quick)
    adjacency = (boot.confidence + boot.confidence.T)[np.triu_indices(4, 1)]
    assert boot.graph.edges == []
    assert adjacency.mean() <= 0.15
    assert adjacency.max() <= 0.4


def test_resampling_with_replacement_finds_edges_in_noise() -> None:
    noise = np.random.default_rng(0).normal(size=(200, 4))
    assert (
        bootstrap(noise, "ges-generalised", resamples=6, replace=True).confidence.sum() > 6 * 0.25
    )  # 6 pairs


def test_edges_are_ranked_by_confidence(tmp_path) -> None:
    boot = bootstrap(table(), "ges", resamples=6)
    ranked = [confidence for _, _, confidence in boot.edges()]
    assert ranked == sorted(ranked, reverse=True)
    draw_graph(tmp_path / "graph.svg", boot.graph, confidence=boot.confidence)
    assert "100%" in (tmp_path / "graph.svg").read_text()


def test_failed_resamples_are_counted() -> None:
    columns = np.random.default_rng(1).normal(size=(100, 3))
    columns[:, 2] = 0.0
    columns[7, 2] = 1.0  # constant in about half of the resamples
    boot = bootstrap(columns, "ges", resamples=20)
    assert 0 < boot.failed < 20
    with pytest.raises(UsageError, match="resamples=1"):
        bootstrap(columns, "ges", resamples=1)
    with pytest.raises(DataError, match="constant"):
        bootstrap(np.ones((100, 3)), "ges", resamples=5)
    with pytest.raises(DataError, match="99 rows are too few to learn from half of them; give 100"):
        bootstrap(columns[:99], "ges", resamples=5)


def test_cpdag_from_causal_learn_end_marks() -> None:
    marks = np.zeros((4, 4), dtype=int)
    marks[0, 1], marks[1, 0] = -1, 1  # 0 -> 1
    marks[1, 2] = marks[2, 1] = -1  # 1 - 2
    marks[2, 3] = marks[3, 2] = 1  # 2 <-> 3: undirected
    cpdag = cpdag_from_marks(marks)
    assert {tuple(edge) for edge in np.argwhere(cpdag).tolist()} == {
        (0, 1),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 2),
    }


@pytest.mark.parametrize("method", ["causal-learn-pc", "causal-learn-ges"])
def test_missing_causal_learn_error_names_the_install_command(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("causallearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "causallearn", None)
    with pytest.raises(UsageError, match=r"pip install .*causal-learn"):
        discover(table(), method)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["causal-learn-pc", "causal-learn-ges"])
def test_causal_learn_finds_the_collider(method: str) -> None:
    if importlib.util.find_spec("causallearn") is None:
        pytest.skip("causal-learn is not installed")
    result = discover(table(), method)
    assert {("x0", "x2"), ("x1", "x2")} <= {edge[:2] for edge in result.graph.edges}
    assert {frozenset(edge) for edge in result.ambiguous} == {frozenset(("x3", "x4"))}


def test_pc_refuses_tests_for_other_kinds_of_columns() -> None:
    with pytest.raises(UsageError, match="fisherz, kci"):
        discover(table(), "causal-learn-pc", test="fisher")
    with pytest.raises(DataError, match="discrete"):
        discover(table(), "causal-learn-pc", test="chisq")
