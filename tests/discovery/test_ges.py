"""GES: its scores against oracle values and closed forms, its classes against enumeration, and the graphs it finds."""

import os
from itertools import combinations, product
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from intervae.discovery import discover
from intervae.discovery.generalised_score import generalised_score
from intervae.discovery.ges import GaussianBIC
from intervae.discovery.patterns import directed_by, member_of, pattern_of
from intervae.errors import UsageError


def test_the_generalised_score_is_that_of_the_oracle() -> None:
    folder = os.environ.get("INTERVAE_ORACLES")
    if not folder:
        pytest.skip("INTERVAE_ORACLES names no folder with gs_score_oracle.npz")
    oracle = np.load(Path(folder) / "gs_score_oracle.npz", allow_pickle=False)
    tables = {"cont": oracle["X_cont"], "mixed": oracle["X_mixed"]}
    for data, node, parents, expected in zip(oracle["data"], oracle["node"], oracle["parents"], oracle["cv_score"], strict=True):
        found = generalised_score(tables[str(data)], int(node), [int(c) for c in str(parents) if c.isdigit()])
        assert found == pytest.approx(float(expected), rel=1e-6), (data, node, parents)


def full_generalised_score(table: np.ndarray, parents: list[int]) -> float:
    """The score of column 0 by its (N, N) kernel matrices, as the paper writes it."""
    rows, ridge, noise = len(table), 0.01, 0.01

    def kernel(column: np.ndarray) -> np.ndarray:
        squares = (column[:, None] - column[None, :]) ** 2
        return np.exp(-squares / (4 * np.median(squares[np.triu_indices(rows, 1)])))

    centre = np.eye(rows) - 1 / rows
    own = centre @ kernel(table[:, 0]) @ centre
    given = centre @ np.prod([kernel(table[:, p]) for p in parents], axis=0) @ centre
    total = 0.0
    for fold in np.array_split(np.arange(rows), 10):
        rest = np.setdiff1d(np.arange(rows), fold)
        n = len(rest)
        inverse = np.linalg.inv(given[np.ix_(rest, rest)] + n * ridge * np.eye(n))
        weight = given[np.ix_(fold, rest)] @ inverse  # predicts the features of the fold from those of the rest
        outside = np.eye(n) + n * ridge**2 / noise * inverse @ own[np.ix_(rest, rest)] @ inverse

        def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return own[np.ix_(a, b)]

        left = between(fold, rest) - weight @ between(rest, rest)  # residuals against training features
        residual = between(fold, fold) - 2 * between(fold, rest) @ weight.T + weight @ between(rest, rest) @ weight.T
        misfit = np.trace(residual - n * ridge**2 / noise * left @ inverse @ np.linalg.inv(outside) @ inverse @ left.T) / noise
        total += (len(fold) ** 2 * np.log(2 * np.pi) + len(fold) * 0.5 * np.linalg.slogdet(outside)[1] + misfit) / 2
    return total / 10


@pytest.mark.parametrize("parents", [[1], [1, 2]])
def test_the_generalised_score_through_factors_is_that_of_whole_kernels(parents: list[int]) -> None:
    table = np.random.default_rng(0).normal(size=(60, 3))
    table[:, 0] += np.sin(table[:, 1])
    assert generalised_score(table, 0, parents) == pytest.approx(full_generalised_score(table, parents), rel=1e-9)


def test_bic_is_the_gaussian_likelihood_and_its_price() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    x[:, 2] += x[:, 0] - 2 * x[:, 1]
    score = GaussianBIC(x)
    centred = x - x.mean(0)
    rest = centred[:, 2] - centred[:, :2] @ np.linalg.lstsq(centred[:, :2], centred[:, 2], rcond=None)[0]
    expected = 100 * np.log(rest.var() / centred[:, 2].var()) + 2 * 0.5 * np.log(200)
    assert score(2, [0, 1]) == pytest.approx(expected)
    assert score(2, []) == 0.0


def all_dags(n: int) -> list[np.ndarray]:
    pairs = list(combinations(range(n), 2))
    dags = []
    for states in product(range(3), repeat=len(pairs)):
        dag = np.zeros((n, n), dtype=bool)
        for (a, b), state in zip(pairs, states, strict=True):
            dag[a, b], dag[b, a] = state == 1, state == 2
        if nx.is_directed_acyclic_graph(nx.from_numpy_array(dag, create_using=nx.DiGraph)):
            dags.append(dag)
    return dags


def colliders(dag: np.ndarray) -> frozenset:
    adjacent = dag | dag.T
    return frozenset((a, c, b) for c in range(len(dag)) for a, b in combinations(np.flatnonzero(dag[:, c]).tolist(), 2) if not adjacent[a, b])


def test_classes_of_four_variables_are_those_of_enumeration() -> None:
    """An edge of a pattern has a direction just where all DAGs of the same skeleton and colliders agree (Verma and Pearl), over 4 variables."""
    classes: dict = {}
    for dag in all_dags(4):
        classes.setdefault(((dag | dag.T).tobytes(), colliders(dag)), []).append(dag)
    assert len(classes) == 185  # the published number of classes of 4 variables
    for members in classes.values():
        union = np.any(members, axis=0)  # both ways where they differ
        for dag in members:
            np.testing.assert_array_equal(pattern_of(dag), union)
        found = member_of(union)
        assert any((found == dag).all() for dag in members)


def test_a_partly_directed_graph_without_a_member_is_told() -> None:
    square = np.zeros((4, 4), dtype=bool)
    for a, b in ((0, 1), (1, 2), (2, 3), (3, 0)):
        square[a, b] = square[b, a] = True  # a ring of four lines: any order makes a new collider
    assert member_of(square) is None


def test_what_knowledge_leaves_of_a_class_is_what_its_members_that_keep_to_it_share() -> None:
    """Rules 1 to 4 direct all that follows from known directions and nothing else (Meek 1995), over all classes of 4 variables."""
    rng = np.random.default_rng(0)
    classes: dict = {}
    for dag in all_dags(4):
        classes.setdefault(((dag | dag.T).tobytes(), colliders(dag)), []).append(dag)
    for members in classes.values():
        union = np.any(members, axis=0)
        for _ in range(8):
            truth = members[rng.integers(len(members))]
            barred = truth.T & (rng.uniform(size=(4, 4)) < 0.4)  # some edges are known to run as in one member
            left = [dag for dag in members if not (dag & barred).any()]
            known = directed_by(union, barred)
            np.testing.assert_array_equal(known, np.any(left, axis=0))
            assert any((member_of(known) == dag).all() for dag in left)


def test_rule_four_is_needed_and_there() -> None:
    """b - a -> d -> c with a and c apart, b - d, b - c: c -> b would need a cycle or a new collider, and no other rule sees it."""
    a, b, c, d = range(4)
    pattern = np.zeros((4, 4), dtype=bool)
    pattern[a, d] = pattern[d, c] = True
    for one, other in ((b, a), (b, d), (b, c)):
        pattern[one, other] = pattern[other, one] = True
    known = directed_by(pattern, np.zeros((4, 4), dtype=bool))
    assert known[b, c]
    assert not known[c, b]


def linear(rows: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """x0 -> x2 <- x1, x2 -> x3, x4 -> x5: all but the last edge have a direction in the class."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    true = np.zeros((6, 6), dtype=bool)
    for cause, effect, weight in ((0, 2, 1.0), (1, 2, -0.8), (2, 3, 0.9), (4, 5, 0.7)):
        x[:, effect] += weight * x[:, cause]
        true[cause, effect] = True
    return x * [1, 10, 0.1, 5, 3, 1], true


def test_bic_ges_finds_the_class_of_a_linear_graph_whatever_the_units() -> None:
    table, true = linear()
    found = discover(table, "ges")
    np.testing.assert_array_equal(found.pattern != 0, pattern_of(true))
    assert [frozenset(edge) for edge in found.ambiguous] == [frozenset(("x4", "x5"))]
    assert found.graph.weights[2, 3] == pytest.approx(np.corrcoef(table[:, 2], table[:, 3])[0, 1], abs=1e-9)


def test_generalised_ges_finds_a_collider_that_no_line_shows() -> None:
    rng = np.random.default_rng(3)
    a, b, c = rng.normal(size=(3, 250))
    table = np.stack([c * 0.3 + np.cos(2 * a) + b**2, a, b], axis=1)
    found = discover(table, "ges-generalised", names=["c", "a", "b"])
    assert {edge[:2] for edge in found.graph.edges} == {("a", "c"), ("b", "c")}
    assert found.ambiguous == []
    assert ("b", "c") not in {edge[:2] for edge in discover(table, "ges", names=["c", "a", "b"]).graph.edges}


def test_few_samples_and_parents_are_refused() -> None:
    table, _ = linear(100)
    with pytest.raises(UsageError, match="samples=20"):
        discover(table, "ges-generalised", samples=20)
    with pytest.raises(UsageError, match="max_parents=0"):
        discover(table, "ges", max_parents=0)


def test_pairs_that_are_forbidden_either_way_are_never_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(300, 2))
    table = np.hstack([a, a @ [[1.0, 0.5], [0.0, 1.0]] + rng.normal(size=(300, 2))])
    asked: list[tuple[int, tuple[int, ...]]] = []
    plain = GaussianBIC.__call__
    monkeypatch.setattr(
        GaussianBIC, "__call__", lambda self, variable, parents: asked.append((variable, tuple(parents))) or plain(self, variable, parents)
    )
    forbidden = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    found = discover(table, "ges", names=["a", "b", "c", "d"], knowledge={"forbidden": forbidden})
    assert found.graph.adjacency.sum() >= 3  # a and b with c and d
    assert {frozenset((variable, parent)) for variable, parents in asked for parent in parents} <= {frozenset((i, j)) for i in (0, 1) for j in (2, 3)}


def chain(seed: int) -> pd.DataFrame:
    a, b, c = np.random.default_rng(seed).normal(size=(3, 1000))
    b += a
    c += b
    return pd.DataFrame({"a": a, "b": b, "c": c})


@pytest.mark.parametrize("seed", range(3))
def test_true_knowledge_directs_the_class_and_invents_no_edge(seed: int) -> None:
    """a -> b -> c: one known direction at a settles the rest, for c -> b would make a new collider; one known at c settles nothing else."""
    a_first = [
        {"tiers": [["a"], ["b", "c"]]},
        {"required": [["a", "b"]]},
        {"forbidden": [["b", "a"]]},
        {"tiers": [["a", "b"], ["c"]], "required": [["a", "b"]]},
    ]
    for knowledge in a_first:
        found = discover(chain(seed), "ges", knowledge=knowledge)
        assert {edge[:2] for edge in found.graph.edges} == {("a", "b"), ("b", "c")}, knowledge
        assert found.ambiguous == [], knowledge
    last = discover(chain(seed), "ges", knowledge={"forbidden": [["c", "b"]]})
    assert ("b", "c") in {edge[:2] for edge in last.graph.edges}
    assert {frozenset(edge) for edge in last.ambiguous} == {frozenset("ab")}
    assert last.details["score"] == pytest.approx(discover(chain(seed), "ges").details["score"])  # a member of the same class


def test_knowledge_against_the_class_still_gives_the_best_graph_that_keeps_to_it() -> None:
    """x0 -> x2 <- x1 with both directions into x2 forbidden: x2 causes both, and an edge between them takes up what the collider had made."""
    x = np.random.default_rng(2).normal(size=(1000, 3))
    x[:, 2] += x[:, 0] + x[:, 1]
    found = discover(x, "ges", knowledge={"tiers": [["x2"], ["x0", "x1"]]})
    assert {edge[:2] for edge in found.graph.edges} - {("x0", "x1"), ("x1", "x0")} == {("x2", "x0"), ("x2", "x1")}
    assert [frozenset(edge) for edge in found.ambiguous] == [frozenset(("x0", "x1"))]
    assert found.details["score"] > discover(x, "ges").details["score"]
