"""Graphs from nothing: known mechanisms are found, undecidable ones are said to be so, and units and column order do not matter."""

import numpy as np
import pandas as pd
import pytest
import torch

from intervae.causal.graph import CausalGraph
from intervae.data.simulators.flow import Flow
from intervae.data.simulators.pendulum import Pendulum
from intervae.discovery import METHODS, discover
from intervae.errors import DataError, UsageError

SAMPLES = 300  # rows used: fewer than the default, to be quick


def noises(seed: int, variables: int, rows: int = 600) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.7, 1.7, size=(variables, rows))


def named(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def edges(found) -> set[tuple[str, str]]:
    return {(cause, effect) for cause, effect, _ in found.graph.edges}


# ---- the published data -------------------------------------------------------------------------------------------------
def published(simulator, kind: str, seed: int) -> pd.DataFrame:
    """The grid, or a continuous draw, with the columns in a random order."""
    rng = np.random.default_rng(seed)
    exogenous = simulator.published_grid()[0] if kind == "grid" else simulator.sample_exogenous(1500, rng)
    table = pd.DataFrame(simulator.simulate(exogenous), columns=[v.name for v in simulator.variables])
    return table[list(rng.permutation(table.columns))]


@pytest.mark.parametrize("kind", ["grid", "continuous"])
@pytest.mark.parametrize("simulator", [Pendulum(), Flow()], ids=lambda s: s.name)
def test_the_graph_of_published_labels_is_found(simulator, kind):
    found = discover(published(simulator, kind, seed=0), seed=0, samples=500)
    assert found.graph.shd(simulator.graph) == 0
    assert found.ambiguous == []
    assert set(found.order) == set(simulator.graph.names)
    assert (found.graph.weights[found.graph.adjacency == 1] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "continuous"])
@pytest.mark.parametrize("simulator", [Pendulum(), Flow()], ids=lambda s: s.name)
def test_the_graph_of_published_labels_is_found_with_every_seed(simulator, kind):
    distances = [discover(published(simulator, kind, seed), seed=seed).graph.shd(simulator.graph) for seed in range(10)]
    assert distances == [0] * 10


# ---- known mechanisms ---------------------------------------------------------------------------------------------------
def test_a_linear_chain_with_uniform_noise_is_oriented():
    e = noises(0, 3)
    b = e[0] + 0.7 * e[1]
    found = discover(named({"c": b + 0.7 * e[2], "a": e[0], "b": b}), samples=SAMPLES)
    assert edges(found) == {("a", "b"), ("b", "c")}
    assert found.order == ("a", "b", "c")
    assert found.ambiguous == []


def test_independent_variables_give_an_empty_graph():
    for seed in range(3):
        found = discover(noises(seed, 4).T, seed=seed, samples=SAMPLES)
        assert found.graph.edges == []
        assert found.cost == (0.0,) * 4


def test_a_collider_has_two_causes_though_neither_alone_explains_it():
    e = noises(1, 3)
    found = discover(named({"effect": np.tanh(e[0] * e[1]) * 2 + 0.3 * e[2], "left": e[0], "right": e[1]}), samples=SAMPLES)
    assert edges(found) == {("left", "effect"), ("right", "effect")}


def test_a_nonlinear_graph_of_six_variables_is_found():
    e = noises(2, 6)
    a, b = e[0], e[1]
    c = np.sin(1.5 * a) + 0.4 * e[2]
    d = np.tanh(1.5 * c) + 0.7 * b + 0.4 * e[3]
    f = d**2 + 0.4 * e[4]
    g = np.cos(1.3 * d) + 0.7 * b + 0.4 * e[5]
    found = discover(named({"g": g, "f": f, "d": d, "c": c, "b": b, "a": a}), samples=SAMPLES)
    assert edges(found) == {("a", "c"), ("c", "d"), ("b", "d"), ("d", "f"), ("d", "g"), ("b", "g")}


def test_a_beam_finds_a_chain_too_long_for_every_subset():
    e = noises(3, 9, rows=400)
    columns = [e[0]]
    for noise in e[1:]:
        columns.append(np.sin(1.2 * columns[-1]) + 0.4 * noise)
    found = discover(np.stack(columns[::-1], axis=1), samples=400, beam=45, max_parents=1)  # 126 subsets of 4 and of 5
    assert edges(found) == {(f"x{i + 1}", f"x{i}") for i in range(8)}


def test_a_weight_is_the_share_of_variance_lost_without_the_cause():
    e = noises(4, 3, rows=1000)
    found = discover(named({"small": e[0], "large": e[1], "effect": e[0] + 2 * e[1] + 0.5 * e[2]}), samples=1000)
    assert found.graph.weights[found.graph.index("large"), 2] == pytest.approx(4 / 5.25, abs=0.05)
    assert found.graph.weights[found.graph.index("small"), 2] == pytest.approx(1 / 5.25, abs=0.03)


def test_an_edge_that_could_run_either_way_is_said_to_be_ambiguous():
    rng = np.random.default_rng(5)
    a = rng.normal(size=600)
    found = discover(named({"a": a, "b": a + rng.normal(size=600)}), samples=SAMPLES)  # linear and Gaussian: no direction
    assert len(found.ambiguous) == 1
    assert set(found.ambiguous) == edges(found)


def gaussian_chain(rows: int = 600) -> pd.DataFrame:
    """a -> b -> c, linear and Gaussian: no direction shows."""
    a, b, c = np.random.default_rng(7).normal(size=(3, rows))
    b += a
    c += b
    return named({"c": c, "a": a, "b": b})


def test_one_known_direction_settles_the_edges_that_data_leave_open():
    alone = discover(gaussian_chain(), samples=SAMPLES)
    assert {frozenset(edge) for edge in alone.ambiguous} == {frozenset("ab"), frozenset("bc")}
    for known in ({"required": [["a", "b"]]}, {"forbidden": [["b", "a"]]}, {"tiers": [["a"], ["b", "c"]]}):
        found = discover(gaussian_chain(), samples=SAMPLES, knowledge=known)
        assert edges(found) == {("a", "b"), ("b", "c")}, known
        assert found.ambiguous == [], known


def test_a_required_cause_comes_first_and_a_forbidden_one_never_though_the_data_say_otherwise():
    rng = np.random.default_rng(6)
    a, other = rng.normal(size=(2, 600))
    table = named({"b": a**2 + 0.5 * rng.normal(size=600), "a": a, "c": other})
    found = discover(table, samples=SAMPLES, knowledge={"required": [["b", "a"], ["c", "a"]]}, max_parents=1)
    assert {("b", "a"), ("c", "a")} <= edges(found)
    assert found.order[-1] == "a"
    assert sum(found.cost) > 1  # and says that the data speak against it
    assert edges(discover(table, samples=SAMPLES, knowledge={"forbidden": [["a", "b"], ["b", "a"]]})) == set()


def test_a_curved_edge_is_not_ambiguous():
    rng = np.random.default_rng(6)
    a = rng.normal(size=600)
    found = discover(named({"b": a**2 + 0.5 * rng.normal(size=600), "a": a}), samples=SAMPLES)
    assert edges(found) == {("a", "b")}
    assert found.ambiguous == []


# ---- what must not matter -----------------------------------------------------------------------------------------------
def mixed_table() -> pd.DataFrame:
    e = noises(7, 4)
    c = np.sin(e[0]) + e[1] + 0.3 * e[2]
    return named({"a": e[0], "b": e[1], "c": c, "d": c**2 + 0.5 * e[3]})


def test_same_seed_same_answer_and_another_seed_takes_other_rows():
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
    np.testing.assert_allclose(moved.graph.subgraph(plain.graph.names).weights, plain.graph.weights, atol=1e-4)


def test_arrays_tensors_and_tables_are_the_same_data():
    table = mixed_table()
    plain = discover(table, samples=200)
    for same in (table.to_numpy(), torch.tensor(table.to_numpy()), table.to_numpy().tolist()):
        assert discover(same, names=["a", "b", "c", "d"], samples=200).graph == plain.graph


# ---- wrong input --------------------------------------------------------------------------------------------------------
def spoiled(row: int, column: str, value: float) -> pd.DataFrame:
    table = mixed_table()
    table.loc[row, column] = value
    return table


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        (spoiled(5, "b", np.nan), {}, "column 'b' is nan in row 5"),
        (mixed_table().assign(b=3.0), {}, "column 'b' is constant"),
        (mixed_table().head(20), {}, "20 rows are too few"),
        (mixed_table().to_numpy(), {"names": ["a", "b", "a", "d"]}, "column 'a' appears twice"),
        (mixed_table().to_numpy(), {"names": ["a"]}, "1 names were given for 4 columns"),
        (mixed_table().assign(b=lambda t: (t.b > 0) * 1.0), {}, "b \\(binary\\)"),
        (mixed_table(), {"kinds": ["continuous", "categorical", "continuous", "continuous"]}, "b \\(categorical\\)"),
        (mixed_table(), {"kinds": ["continuous"]}, "1 kinds were given for 4 columns"),
        (mixed_table(), {"kinds": ["continuous", "numeric", "continuous", "continuous"]}, "'b' cannot be 'numeric'"),
        (mixed_table().assign(b="red"), {}, "'b' is constant"),
        (mixed_table().assign(b="red").to_numpy(), {}, "not a number"),
        (np.arange(100.0), {}, "at least two columns"),
        (3.0, {}, "at least two columns"),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(table, options, says):
    with pytest.raises(DataError, match=says):
        discover(table, **options)


def test_unknown_methods_and_settings_are_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="independence"):
        discover(mixed_table(), "independance")
    with pytest.raises(UsageError, match="'resolution'"):
        discover(mixed_table(), resolutoin=0.1)
    with pytest.raises(UsageError, match="resolution must lie between"):
        discover(mixed_table(), resolution=2.0)


def test_every_method_gives_a_named_acyclic_graph_with_its_assumptions():
    table = mixed_table()
    quick = {"notears": {"steps": 50}, "dagma": {"steps": 50}, "notears-mlp": {"steps": 20}, "dagma-mlp": {"steps": 20}, "ges": {}}
    for method in METHODS:
        if method.startswith("causal-learn"):
            continue
        found = discover(table, method, **quick.get(method, {"samples": 200}))
        assert isinstance(found.graph, CausalGraph)
        assert found.graph.is_acyclic
        assert found.method == method
        assert found.graph.names == tuple(table.columns)
        position = {name: i for i, name in enumerate(found.order)}
        assert all(position[cause] < position[effect] for cause, effect, _ in found.graph.edges)
        assert len(found.cost) == 4
        assert found.assumptions
