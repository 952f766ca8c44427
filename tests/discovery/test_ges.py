"""GES: scores against oracle values and closed forms, CPDAGs against enumeration, graphs."""

import os
from itertools import combinations, product
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from intervae.discovery import discover
from intervae.discovery.cpdag import consistent_extension, dag_to_cpdag, orient_known
from intervae.discovery.gaussian_bic import GaussianBIC
from intervae.discovery.generalised_score import GeneralisedScore
from intervae.errors import UsageError


def generalised_score(table: np.ndarray, variable: int, parents: list[int]) -> float:
    """Score of one column conditions others."""
    columns = [table[:, v].astype(float) for v in (variable, *parents)]
    return GeneralisedScore(columns)(0, range(1, len(columns)))


def test_the_generalised_score_equals_the_oracle() -> None:
    folder = os.environ.get("INTERVAE_ORACLES")
    if not folder:
        pytest.skip("INTERVAE_ORACLES names no folder with gs_score_oracle.npz")
    oracle = np.load(Path(folder) / "gs_score_oracle.npz", allow_pickle=False)
    tables = {"cont": oracle["X_cont"], "mixed": oracle["X_mixed"]}
    for data, node, parents, expected in zip(
        oracle["data"], oracle["node"], oracle["parents"], oracle["cv_score"], strict=True
    ):
        result = generalised_score(
            tables[str(data)], int(node), [int(c) for c in str(parents) if c.isdigit()]
        )
        assert result == pytest.approx(float(expected), rel=1e-6), (data, node, parents)


def full_generalised_score(table: np.ndarray, parents: list[int]) -> float:
    """The score of column 0 by its (N, N) kernel matrices, as the paper writes it."""
    rows, ridge, noise = len(table), 0.01, 0.01

    def kernel(column: np.ndarray) -> np.ndarray:
        squares = (column[:, None] - column[None, :]) ** 2
        return np.exp(-squares / (4 * np.median(squares[np.triu_indices(rows, 1)])))

    centre = np.eye(rows) - 1 / rows
    own = centre @ kernel(table[:, 0]) @ centre
    conditions = centre @ np.prod([kernel(table[:, p]) for p in parents], axis=0) @ centre
    total = 0.0
    for fold in np.array_split(np.arange(rows), 10):
        rest = np.setdiff1d(np.arange(rows), fold)
        n = len(rest)
        inverse = np.linalg.inv(conditions[np.ix_(rest, rest)] + n * ridge * np.eye(n))
        weight = conditions[np.ix_(fold, rest)] @ inverse  # predicts the features of the fold
        outside = np.eye(n) + n * ridge**2 / noise * inverse @ own[np.ix_(rest, rest)] @ inverse

        def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return own[np.ix_(a, b)]

        residual_cross = between(fold, rest) - weight @ between(
            rest, rest
        )  # residuals against training features
        residual = (
            between(fold, fold)
            - 2 * between(fold, rest) @ weight.T
            + weight @ between(rest, rest) @ weight.T
        )
        quadratic = (
            np.trace(
                residual
                - n
                * ridge**2
                / noise
                * residual_cross
                @ inverse
                @ np.linalg.inv(outside)
                @ inverse
                @ residual_cross.T
            )
            / noise
        )
        total += (
            len(fold) ** 2 * np.log(2 * np.pi)
            + len(fold) * 0.5 * np.linalg.slogdet(outside)[1]
            + quadratic
        ) / 2
    return total / 10


@pytest.mark.parametrize("parents", [[1], [1, 2]])
def test_the_generalised_score_equals_that_of_full_kernels(parents: list[int]) -> None:
    table = np.random.default_rng(0).normal(size=(60, 3))
    table[:, 0] += np.sin(table[:, 1])
    assert generalised_score(table, 0, parents) == pytest.approx(
        full_generalised_score(table, parents), rel=1e-9
    )


def test_bic_is_the_gaussian_likelihood_plus_its_penalty() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    x[:, 2] += x[:, 0] - 2 * x[:, 1]
    score = GaussianBIC(x)
    centred = x - x.mean(0)
    rest = (
        centred[:, 2]
        - centred[:, :2] @ np.linalg.lstsq(centred[:, :2], centred[:, 2], rcond=None)[0]
    )
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
    return frozenset(
        (a, c, b)
        for c in range(len(dag))
        for a, b in combinations(np.flatnonzero(dag[:, c]).tolist(), 2)
        if not adjacent[a, b]
    )


def test_cpdags_of_four_variables_match_enumeration() -> None:
    """An edge is directed where all DAGs with the same skeleton and colliders agree."""
    classes: dict = {}
    for dag in all_dags(4):
        classes.setdefault(((dag | dag.T).tobytes(), colliders(dag)), []).append(dag)
    assert len(classes) == 185  # published
    for members in classes.values():
        union = np.any(members, axis=0)  # both ways where they differ
        for dag in members:
            np.testing.assert_array_equal(dag_to_cpdag(dag), union)
        result = consistent_extension(union)
        assert any((result == dag).all() for dag in members)


def test_a_pdag_without_consistent_extension_gives_none() -> None:
    square = np.zeros((4, 4), dtype=bool)
    for a, b in ((0, 1), (1, 2), (2, 3), (3, 0)):
        square[a, b] = square[b, a] = True  # any order has a new collider
    assert consistent_extension(square) is None


def test_knowledge_orients_exactly_what_it_implies() -> None:
    """Meek's rules 1 to 4, over all classes of 4 variables."""
    rng = np.random.default_rng(0)
    classes: dict = {}
    for dag in all_dags(4):
        classes.setdefault(((dag | dag.T).tobytes(), colliders(dag)), []).append(dag)
    for members in classes.values():
        union = np.any(members, axis=0)
        for _ in range(8):
            truth = members[rng.integers(len(members))]
            excluded = truth.T & (
                rng.uniform(size=(4, 4)) < 0.4
            )  # some directions of one member are known
            consistent = [dag for dag in members if not (dag & excluded).any()]
            known = orient_known(union, excluded)
            np.testing.assert_array_equal(known, np.any(consistent, axis=0))
            assert any((consistent_extension(known) == dag).all() for dag in consistent)


def test_meek_rule_four() -> None:
    """b - a -> d -> c, a and c not adjacent, b - d, b - c: no other rule gives b -> c."""
    a, b, c, d = range(4)
    pdag = np.zeros((4, 4), dtype=bool)
    pdag[a, d] = pdag[d, c] = True
    for i, j in ((b, a), (b, d), (b, c)):
        pdag[i, j] = pdag[j, i] = True
    known = orient_known(pdag, np.zeros((4, 4), dtype=bool))
    assert known[b, c]
    assert not known[c, b]


def linear(rows: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """x0 -> x2 <- x1, x2 -> x3, x4 -> x5; only the last edge is undirected in the CPDAG."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    true = np.zeros((6, 6), dtype=bool)
    for cause, effect, weight in ((0, 2, 1.0), (1, 2, -0.8), (2, 3, 0.9), (4, 5, 0.7)):
        x[:, effect] += weight * x[:, cause]
        true[cause, effect] = True
    return x * [1, 10, 0.1, 5, 3, 1], true


def test_ges_finds_the_cpdag_of_a_linear_graph_in_any_units() -> None:
    table, true = linear()
    result = discover(table, "ges")
    np.testing.assert_array_equal(result.pattern != 0, dag_to_cpdag(true))
    assert [frozenset(edge) for edge in result.ambiguous] == [frozenset(("x4", "x5"))]
    assert result.graph.weights[2, 3] == pytest.approx(
        np.corrcoef(table[:, 2], table[:, 3])[0, 1], abs=1e-9
    )


def test_generalised_ges_finds_a_nonlinear_collider() -> None:
    rng = np.random.default_rng(3)
    a, b, c = rng.normal(size=(3, 250))
    table = np.stack([c * 0.3 + np.cos(2 * a) + b**2, a, b], axis=1)
    result = discover(table, "ges-generalised", names=["c", "a", "b"])
    assert {edge[:2] for edge in result.graph.edges} == {("a", "c"), ("b", "c")}
    assert result.ambiguous == []
    assert ("b", "c") not in {
        edge[:2] for edge in discover(table, "ges", names=["c", "a", "b"]).graph.edges
    }


def test_too_few_samples_or_parents_are_refused() -> None:
    table, _ = linear(100)
    with pytest.raises(UsageError, match="samples=20"):
        discover(table, "ges-generalised", samples=20)
    with pytest.raises(UsageError, match="max_parents=0"):
        discover(table, "ges", max_parents=0)


def test_pairs_forbidden_both_ways_are_never_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(300, 2))
    table = np.hstack([a, a @ [[1.0, 0.5], [0.0, 1.0]] + rng.normal(size=(300, 2))])
    calls: list[tuple[int, tuple[int, ...]]] = []
    plain = GaussianBIC.__call__
    monkeypatch.setattr(
        GaussianBIC,
        "__call__",
        lambda self, variable, parents: (
            calls.append((variable, tuple(parents))) or plain(self, variable, parents)
        ),
    )
    forbidden = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    result = discover(table, "ges", names=["a", "b", "c", "d"], knowledge={"forbidden": forbidden})
    assert result.graph.adjacency.sum() >= 3  # a and b with c and d
    assert {frozenset((variable, parent)) for variable, parents in calls for parent in parents} <= {
        frozenset((i, j)) for i in (0, 1) for j in (2, 3)
    }


def chain(seed: int) -> pd.DataFrame:
    a, b, c = np.random.default_rng(seed).normal(size=(3, 1000))
    b += a
    c += b
    return pd.DataFrame({"a": a, "b": b, "c": c})


@pytest.mark.parametrize("seed", range(3))
def test_true_knowledge_orients_the_cpdag_without_new_edges(seed: int) -> None:
    """a -> b -> c: a known direction at a orients all edges, one at c only its own."""
    a_first = [
        {"tiers": [["a"], ["b", "c"]]},
        {"required": [["a", "b"]]},
        {"forbidden": [["b", "a"]]},
        {"tiers": [["a", "b"], ["c"]], "required": [["a", "b"]]},
    ]
    for knowledge in a_first:
        result = discover(chain(seed), "ges", knowledge=knowledge)
        assert {edge[:2] for edge in result.graph.edges} == {("a", "b"), ("b", "c")}, knowledge
        assert result.ambiguous == [], knowledge
    last = discover(chain(seed), "ges", knowledge={"forbidden": [["c", "b"]]})
    assert ("b", "c") in {edge[:2] for edge in last.graph.edges}
    assert {frozenset(edge) for edge in last.ambiguous} == {frozenset("ab")}
    assert last.details["score"] == pytest.approx(
        discover(chain(seed), "ges").details["score"]
    )  # the same class


def test_knowledge_against_the_class_gives_the_best_allowed_graph() -> None:
    """x0 -> x2 <- x1 with both edges forbidden: x2 causes both, with an edge between them."""
    x = np.random.default_rng(2).normal(size=(1000, 3))
    x[:, 2] += x[:, 0] + x[:, 1]
    result = discover(x, "ges", knowledge={"tiers": [["x2"], ["x0", "x1"]]})
    assert {edge[:2] for edge in result.graph.edges} - {("x0", "x1"), ("x1", "x0")} == {
        ("x2", "x0"),
        ("x2", "x1"),
    }
    assert [frozenset(edge) for edge in result.ambiguous] == [frozenset(("x0", "x1"))]
    assert result.details["score"] > discover(x, "ges").details["score"]
