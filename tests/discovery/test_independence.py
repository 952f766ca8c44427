"""Method `independence`: known graphs, ambiguous edges, invariances, wrong input."""

import numpy as np
import pandas as pd
import pytest
import torch

from intervae.causal.graph import CausalGraph
from intervae.data.simulators.flow import Flow
from intervae.data.simulators.pendulum import Pendulum
from intervae.discovery import METHODS, discover
from intervae.errors import DataError, UsageError

SAMPLES = 300  # fewer than the default, for speed


def noises(seed: int, variables: int, rows: int = 600) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.7, 1.7, size=(variables, rows))


def named(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def edges(result) -> set[tuple[str, str]]:
    return {(cause, effect) for cause, effect, _ in result.graph.edges}


# ---- published data ------------------------------------------------------------------------
def published(simulator, kind: str, seed: int) -> pd.DataFrame:
    """The grid, or a continuous draw, with the columns in a random order."""
    rng = np.random.default_rng(seed)
    exogenous = (
        simulator.published_grid()[0] if kind == "grid" else simulator.sample_exogenous(1500, rng)
    )
    table = pd.DataFrame(
        simulator.simulate(exogenous), columns=[v.name for v in simulator.variables]
    )
    return table[list(rng.permutation(table.columns))]


@pytest.mark.parametrize("kind", ["grid", "continuous"])
@pytest.mark.parametrize("simulator", [Pendulum(), Flow()], ids=lambda s: s.name)
def test_the_graph_of_published_labels_is_found(simulator, kind):
    result = discover(published(simulator, kind, seed=0), seed=0, samples=500)
    assert result.graph.shd(simulator.graph) == 0
    assert result.ambiguous == []
    assert set(result.order) == set(simulator.graph.names)
    assert (result.graph.weights[result.graph.adjacency == 1] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "continuous"])
@pytest.mark.parametrize("simulator", [Pendulum(), Flow()], ids=lambda s: s.name)
def test_the_graph_of_published_labels_is_found_with_every_seed(simulator, kind):
    distances = [
        discover(published(simulator, kind, seed), seed=seed).graph.shd(simulator.graph)
        for seed in range(10)
    ]
    assert distances == [0] * 10


# ---- known graphs --------------------------------------------------------------------------
def test_a_linear_chain_with_uniform_noise_is_oriented():
    e = noises(0, 3)
    b = e[0] + 0.7 * e[1]
    result = discover(named({"c": b + 0.7 * e[2], "a": e[0], "b": b}), samples=SAMPLES)
    assert edges(result) == {("a", "b"), ("b", "c")}
    assert result.order == ("a", "b", "c")
    assert result.ambiguous == []


def test_independent_variables_give_an_empty_graph():
    for seed in range(3):
        result = discover(noises(seed, 4).T, seed=seed, samples=SAMPLES)
        assert result.graph.edges == []
        assert result.cost == (0.0,) * 4


def test_a_collider_has_two_causes_without_marginal_effects():
    e = noises(1, 3)
    result = discover(
        named({"effect": np.tanh(e[0] * e[1]) * 2 + 0.3 * e[2], "left": e[0], "right": e[1]}),
        samples=SAMPLES,
    )
    assert edges(result) == {("left", "effect"), ("right", "effect")}


def test_a_nonlinear_graph_of_six_variables_is_found():
    e = noises(2, 6)
    a, b = e[0], e[1]
    c = np.sin(1.5 * a) + 0.4 * e[2]
    d = np.tanh(1.5 * c) + 0.7 * b + 0.4 * e[3]
    f = d**2 + 0.4 * e[4]
    g = np.cos(1.3 * d) + 0.7 * b + 0.4 * e[5]
    result = discover(named({"g": g, "f": f, "d": d, "c": c, "b": b, "a": a}), samples=SAMPLES)
    assert edges(result) == {("a", "c"), ("c", "d"), ("b", "d"), ("d", "f"), ("d", "g"), ("b", "g")}


def test_a_beam_search_finds_a_long_chain():
    e = noises(3, 9, rows=400)
    columns = [e[0]]
    for noise in e[1:]:
        columns.append(np.sin(1.2 * columns[-1]) + 0.4 * noise)
    result = discover(
        np.stack(columns[::-1], axis=1), samples=400, beam=45, max_parents=1, search="subsets"
    )  # 126 subsets of 4 and of 5
    assert edges(result) == {(f"x{i + 1}", f"x{i}") for i in range(8)}


def test_a_weight_is_the_variance_lost_without_the_cause():
    e = noises(4, 3, rows=1000)
    result = discover(
        named({"small": e[0], "large": e[1], "effect": e[0] + 2 * e[1] + 0.5 * e[2]}), samples=1000
    )
    assert result.graph.weights[result.graph.index("large"), 2] == pytest.approx(4 / 5.25, abs=0.05)
    assert result.graph.weights[result.graph.index("small"), 2] == pytest.approx(1 / 5.25, abs=0.03)


def test_a_linear_gaussian_edge_is_ambiguous():
    rng = np.random.default_rng(5)
    a = rng.normal(size=600)
    result = discover(
        named({"a": a, "b": a + rng.normal(size=600)}), samples=SAMPLES
    )  # linear and Gaussian
    assert len(result.ambiguous) == 1
    assert set(result.ambiguous) == edges(result)


def gaussian_chain(rows: int = 600) -> pd.DataFrame:
    """a -> b -> c, linear and Gaussian, so that no direction is identifiable."""
    a, b, c = np.random.default_rng(7).normal(size=(3, rows))
    b += a
    c += b
    return named({"c": c, "a": a, "b": b})


def test_one_known_direction_orients_all_ambiguous_edges():
    alone = discover(gaussian_chain(), samples=SAMPLES)
    assert {frozenset(edge) for edge in alone.ambiguous} == {frozenset("ab"), frozenset("bc")}
    for known in (
        {"required": [["a", "b"]]},
        {"forbidden": [["b", "a"]]},
        {"tiers": [["a"], ["b", "c"]]},
    ):
        result = discover(gaussian_chain(), samples=SAMPLES, knowledge=known)
        assert edges(result) == {("a", "b"), ("b", "c")}, known
        assert result.ambiguous == [], known


def test_knowledge_against_the_data_is_satisfied_at_a_cost():
    rng = np.random.default_rng(6)
    a, other = rng.normal(size=(2, 600))
    table = named({"b": a**2 + 0.5 * rng.normal(size=600), "a": a, "c": other})
    result = discover(
        table, samples=SAMPLES, knowledge={"required": [["b", "a"], ["c", "a"]]}, max_parents=1
    )
    assert {("b", "a"), ("c", "a")} <= edges(result)
    assert result.order[-1] == "a"
    assert sum(result.cost) > 1  # evidence against the knowledge
    assert (
        edges(discover(table, samples=SAMPLES, knowledge={"forbidden": [["a", "b"], ["b", "a"]]}))
        == set()
    )


def test_a_nonlinear_edge_is_not_ambiguous():
    rng = np.random.default_rng(6)
    a = rng.normal(size=600)
    result = discover(named({"b": a**2 + 0.5 * rng.normal(size=600), "a": a}), samples=SAMPLES)
    assert edges(result) == {("a", "b")}
    assert result.ambiguous == []


# ---- invariances ---------------------------------------------------------------------------
def mixed_table() -> pd.DataFrame:
    e = noises(7, 4)
    c = np.sin(e[0]) + e[1] + 0.3 * e[2]
    return named({"a": e[0], "b": e[1], "c": c, "d": c**2 + 0.5 * e[3]})


def test_a_seed_fixes_the_result_and_another_draws_other_rows():
    table = mixed_table()
    first, again, other = (discover(table, seed=seed, samples=200) for seed in (3, 3, 4))
    assert first.graph == again.graph
    assert (first.order, first.cost) == (again.order, again.cost)
    assert not np.array_equal(first.graph.weights, other.graph.weights)


def test_units_do_not_matter():
    table = mixed_table()
    plain = discover(table, samples=SAMPLES)
    scaled = discover(table * [1e-6, -3.0, 1e4, 0.1] + [5.0, 1e3, -7.0, 0.0], samples=SAMPLES)
    np.testing.assert_allclose(scaled.graph.weights, plain.graph.weights, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_order_of_the_columns_does_not_matter(seed):
    table = mixed_table()
    plain = discover(table, samples=SAMPLES)
    names = list(np.random.default_rng(seed).permutation(table.columns))
    moved = discover(table[names], samples=SAMPLES)
    np.testing.assert_allclose(
        moved.graph.subgraph(plain.graph.names).weights, plain.graph.weights, atol=1e-4
    )


def test_arrays_tensors_lists_and_frames_give_the_same_graph():
    table = mixed_table()
    plain = discover(table, samples=200)
    for same in (table.to_numpy(), torch.tensor(table.to_numpy()), table.to_numpy().tolist()):
        assert discover(same, names=["a", "b", "c", "d"], samples=200).graph == plain.graph


# ---- wrong input ---------------------------------------------------------------------------
def table_with(row: int, column: str, value: float) -> pd.DataFrame:
    table = mixed_table()
    table.loc[row, column] = value
    return table


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (table_with(5, "b", np.nan), {}, "column 'b' is nan in row 5"),
        (mixed_table().assign(b=3.0), {}, "column 'b' is constant"),
        (mixed_table().head(20), {}, "20 rows are too few"),
        (mixed_table().to_numpy(), {"names": ["a", "b", "a", "d"]}, "column 'a' appears twice"),
        (mixed_table().to_numpy(), {"names": ["a"]}, "1 names were given for 4 columns"),
        (mixed_table().assign(b=lambda t: (t.b > 0) * 1.0), {}, "b \\(binary\\)"),
        (
            mixed_table(),
            {"kinds": ["continuous", "categorical", "continuous", "continuous"]},
            "b \\(categorical\\)",
        ),
        (mixed_table(), {"kinds": ["continuous"]}, "1 kinds were given for 4 columns"),
        (
            mixed_table(),
            {"kinds": ["continuous", "numeric", "continuous", "continuous"]},
            "'b' cannot be 'numeric'",
        ),
        (mixed_table().assign(b="red"), {}, "'b' is constant"),
        (mixed_table().assign(b="red").to_numpy(), {}, "not numbers"),
        (np.arange(100.0), {}, "at least two columns"),
        (3.0, {}, "at least two columns"),
    ],
)
def test_bad_tables_are_refused(table, options, message):
    with pytest.raises(DataError, match=message):
        discover(table, **options)


def test_unknown_methods_and_settings_name_the_known_ones():
    with pytest.raises(UsageError, match="independence"):
        discover(mixed_table(), "independance")
    with pytest.raises(UsageError, match="'resolution'"):
        discover(mixed_table(), resolutoin=0.1)
    with pytest.raises(UsageError, match="resolution must be between"):
        discover(mixed_table(), resolution=2.0)
    with pytest.raises(UsageError, match="'fee' of 'independence' is now called 'edge_penalty'"):
        discover(mixed_table(), fee=2.0)


def test_every_method_returns_an_acyclic_graph_and_assumptions():
    table = mixed_table()
    quick = {
        "notears": {"steps": 50},
        "dagma": {"steps": 50},
        "notears-mlp": {"steps": 20},
        "dagma-mlp": {"steps": 20},
        "ges": {},
    }
    for method in METHODS:
        if method.startswith("causal-learn"):
            continue
        result = discover(table, method, **quick.get(method, {"samples": 200}))
        assert isinstance(result.graph, CausalGraph)
        assert result.graph.is_acyclic
        assert result.method == method
        assert result.graph.names == tuple(table.columns)
        position = {name: i for i, name in enumerate(result.order)}
        assert all(position[cause] < position[effect] for cause, effect, _ in result.graph.edges)
        assert len(result.cost) == 4
        assert result.assumptions
