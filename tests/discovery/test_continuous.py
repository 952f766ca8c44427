"""NOTEARS and DAGMA: small known graphs, units, prior knowledge, mixed kinds, and bad tables."""

import importlib.util
import warnings

import numpy as np
import pandas as pd
import pytest

from intervae.causal.graph import CausalGraph
from intervae.discovery import METHODS, Discovery, Knowledge, UnitsWarning, discover, varsortability
from intervae.errors import DataError, UsageError

LINEAR, NETWORKS = ("notears", "dagma"), ("notears-mlp", "dagma-mlp")
QUICK = {
    "notears": {"steps": 300, "rate": 0.01, "rounds": 8},
    "dagma": {"steps": 300, "rate": 0.01, "rounds": 4},
}
QUICK |= {
    "notears-mlp": {"steps": 100, "rounds": 3, "rate": 0.03},
    "dagma-mlp": {"steps": 100, "rounds": 3, "rate": 0.03},
}
NOISE_FREE = ("independence", "lagrangian")  # accept collinear columns


def equal_noises(rows: int = 500, seed: int = 0) -> pd.DataFrame:
    """a -> b -> d <- c, a -> c with equal noise variances, found in raw units."""
    rng = np.random.default_rng(seed)
    a, b, c, d = rng.normal(size=(4, rows))
    b += 1.5 * a
    c -= 1.2 * a
    d += 1.3 * b - 0.9 * c
    return pd.DataFrame({"d": d, "b": b, "a": a, "c": c})


TRUE = CausalGraph.from_edges(
    ("d", "b", "a", "c"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
)


@pytest.mark.parametrize("method", LINEAR)
def test_a_linear_graph_with_equal_noises_is_found_in_raw_units(
    method: str,
) -> None:
    with pytest.warns(UnitsWarning, match="units"):
        result = discover(equal_noises(), method, standardise=False, **QUICK[method])
    assert result.graph.shd(TRUE) == 0
    weights = {(cause, effect): weight for cause, effect, weight in result.graph.edges}
    assert weights["a", "b"] == pytest.approx(1.5, abs=0.3)
    assert weights["a", "c"] == pytest.approx(-1.2, abs=0.3)
    assert result.order[0] == "a"
    assert result.cost[0] == pytest.approx(1.0)
    assert len(result.notes) == 1


@pytest.mark.parametrize("method", [*LINEAR, *NETWORKS])
def test_the_units_warning_names_the_calling_line(method: str) -> None:
    table, quick = equal_noises(60), {"steps": 2, "rounds": 1}
    with pytest.warns(UnitsWarning) as by_name:
        discover(table, method, standardise=False, **quick)
    with pytest.warns(UnitsWarning) as by_function:
        METHODS[method](
            table.to_numpy(), list(table.columns), ["continuous"] * 4, standardise=False, **quick
        )
    assert by_name[0].filename == by_function[0].filename == __file__


@pytest.mark.parametrize("method", NETWORKS)
def test_networks_find_a_nonlinear_graph_that_linear_methods_miss(method: str) -> None:
    rng = np.random.default_rng(1)
    a, b, c = rng.normal(size=(3, 600))
    b += 2 * a**2
    c += 3 * np.cos(2 * b)
    table = pd.DataFrame({"c": c, "b": b, "a": a})
    with pytest.warns(UnitsWarning):
        result = discover(table, method, standardise=False, steps=300, rounds=3, rate=0.02)
    assert {edge[:2] for edge in result.graph.edges} == {("a", "b"), ("b", "c")}
    with pytest.warns(UnitsWarning):
        line = discover(table, "notears", standardise=False, **QUICK["notears"])
    assert ("a", "b") not in {edge[:2] for edge in line.graph.edges}


@pytest.mark.parametrize("method", [*LINEAR, *NETWORKS])
def test_units_do_not_matter_after_standardising(
    method: str,
) -> None:
    table = equal_noises(200)
    result = discover(table, method, **QUICK[method])
    scaled = discover(table * [100.0, 0.01, 3.0, -5.0], method, **QUICK[method])
    assert result.notes == ()
    assert (
        len(result.graph.edges) >= 3
    )  # of four; directions are not identifiable after standardising
    if method in LINEAR:
        np.testing.assert_allclose(
            np.abs(result.graph.weights), np.abs(scaled.graph.weights), atol=1e-6
        )
    assert (result.graph.adjacency == scaled.graph.adjacency).all()


def test_in_raw_units_another_unit_changes_the_graph() -> None:
    """The reason why tables are standardised by default."""
    table = equal_noises()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        raw = discover(table, "dagma", standardise=False, **QUICK["dagma"])
        other = discover(
            table * [0.01, 1.0, 1.0, 1.0],
            "dagma",
            standardise=False,
            threshold=1e-3,
            **QUICK["dagma"],
        )
    assert ("b", "d") in {edge[:2] for edge in raw.graph.edges}
    assert ("b", "d") not in {edge[:2] for edge in other.graph.threshold(0.3).edges}


def test_varsortability_is_the_fraction_of_paths_with_growing_variance() -> None:
    chain = CausalGraph.from_edges("abc", [("a", "b"), ("b", "c")])
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1000, 3))
    assert varsortability(noise * [1, 2, 3], chain) == 1.0
    assert varsortability(noise * [3, 2, 1], chain) == 0.0
    assert varsortability(noise * [1, 3, 2], chain) == pytest.approx(
        2 / 3
    )  # a to b and a to c grow, b to c falls
    standard = (noise - noise.mean(0)) / noise.std(0)
    assert varsortability(standard, chain) == pytest.approx(0.5)
    assert np.isnan(varsortability(noise, CausalGraph.empty("abc")))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", [name for name in METHODS if name != "causal-learn-ges"])
def test_knowledge_is_satisfied(method: str) -> None:
    if method == "causal-learn-pc" and importlib.util.find_spec("causallearn") is None:
        pytest.skip("causal-learn is not installed")
    known = Knowledge(
        required=(("d", "a"),), forbidden=(("b", "a"), ("a", "b")), tiers=(("c", "d"), ("b",))
    )
    result = discover(equal_noises(150), method, knowledge=known, **QUICK.get(method, {}))
    edges = {edge[:2] for edge in result.graph.edges}
    assert ("d", "a") in edges
    assert not edges & {("b", "a"), ("a", "b"), ("b", "c"), ("b", "d")}
    assert result.graph.is_acyclic
    assert all((effect, cause) not in {("d", "a")} for cause, effect in result.ambiguous)


def test_a_method_without_knowledge_refuses_it() -> None:
    with pytest.raises(UsageError, match="'causal-learn-ges' takes no prior knowledge; use 'ges'"):
        discover(equal_noises(100), "causal-learn-ges", knowledge={"required": [["a", "b"]]})


def test_knowledge_may_be_a_mapping_and_is_checked() -> None:
    table = equal_noises(100)
    same = {"required": [["d", "a"]]}
    assert ("d", "a") in {
        edge[:2] for edge in discover(table, "dagma", knowledge=same, steps=50).graph.edges
    }
    for wrong, message in (
        ({"require": []}, "did you mean 'required'"),
        ({"required": [["a", "e"]]}, "unknown variable in the knowledge 'e'"),
        ({"required": [["a", "b"], ["b", "a"]]}, "cycle"),
        ({"required": [["a", "b"]], "forbidden": [["a", "b"]]}, "required and also forbidden"),
        ({"required": [["a", "b"]], "tiers": [["b"], ["a"]]}, "required and also forbidden"),
        ({"tiers": [["a"], ["a", "b"]]}, "two tiers"),
        ({"tiers": ["a", "b"]}, "single name"),
        ({"forbidden": [["a", "a"]]}, "two different names"),
    ):
        with pytest.raises((DataError, UsageError), match=message):
            discover(table, "dagma", knowledge=wrong)


@pytest.mark.parametrize("method", ["notears-mlp", "dagma-mlp", "ges-generalised"])
def test_edges_between_mixed_kinds(method: str) -> None:
    rng = np.random.default_rng(2)
    group = rng.integers(0, 3, 800)
    dose = np.array([-1.5, 0.0, 1.5])[group] + 0.7 * rng.normal(size=800)
    age = rng.normal(size=800)
    ill = rng.uniform(size=800) < 1 / (1 + np.exp(-4 * age))
    table = pd.DataFrame(
        {"ill": ill, "dose": dose, "group": np.array(["low", "mid", "high"])[group], "age": age}
    )
    result = discover(
        table,
        method,
        **({} if method.startswith("ges") else {"steps": 300, "rounds": 4, "rate": 0.02}),
    )
    pairs = {frozenset(edge[:2]) for edge in result.graph.edges}
    assert pairs == {frozenset(("dose", "group")), frozenset(("age", "ill"))}
    assert all(np.isfinite(result.cost))


def test_strings_and_booleans_of_a_data_frame_become_codes() -> None:
    from intervae.discovery.base import read_table

    frame = pd.DataFrame(
        {
            "city": list("bca") * 20,
            "on": [True, False, True] * 20,
            "size": range(60),
            "two": ["x", "y", "y"] * 20,
        }
    )
    columns, names, kinds = read_table(frame, None, None)
    assert names == ("city", "on", "size", "two")
    assert kinds == ("categorical", "binary", "continuous", "binary")
    np.testing.assert_array_equal(columns[:3, 0], [1, 2, 0])
    frame.loc[3, "city"] = None
    with pytest.raises(DataError, match="'city' is nan in row 3"):
        read_table(frame, None, None)


@pytest.mark.parametrize("method", METHODS)
def test_bad_tables_are_refused_by_every_method(method: str) -> None:
    good = equal_noises(100)
    for table, message in (
        (good.assign(e=1.0), "column 'e' is constant"),
        (
            good.assign(e=np.where(np.arange(100) == 7, np.nan, np.arange(100))),
            "column 'e' is nan in row 7",
        ),
        (good.iloc[:20], "20 rows are too few"),
    ):
        with pytest.raises(DataError, match=message):
            discover(table, method)


COLLINEAR = [
    ("e", lambda t: 2 * t.a - t.b + 1, "column 'e' is a linear combination of 'b', 'a'"),
    ("e", lambda t: t.a, "linear combination of 'a'"),
]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in NOISE_FREE])
def test_collinear_columns_are_refused(method: str) -> None:
    good = equal_noises(100)
    for name, column, message in COLLINEAR:
        with pytest.raises(DataError, match=message):
            discover(good.assign(**{name: column(good)}), method)


def collinear_notes(result: Discovery) -> list[str]:
    """Texts of notes that are not about the direction of an edge."""
    return [note.text for note in result.notes if note.kind != "open-direction"]


@pytest.mark.parametrize("method", NOISE_FREE)
def test_methods_for_noise_free_labels_note_collinear_columns(method: str) -> None:
    good, quick = equal_noises(100), {"rounds": 3, "steps": 50} if method == "lagrangian" else {}
    assert collinear_notes(discover(good, method, **quick)) == []
    for name, column, message in COLLINEAR:
        result = discover(good.assign(**{name: column(good)}), method, **quick)
        (text,) = collinear_notes(result)
        assert message in text
        assert "may be a guess" in text
        assert result.graph.is_acyclic


def test_the_direction_to_a_copied_column_is_ambiguous() -> None:
    good = equal_noises(100)
    assert {
        frozenset(edge) for edge in discover(good.assign(e=good.a), "independence").ambiguous
    } >= {frozenset("ae")}


def duplicate_categories(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    town = rng.integers(0, 4, rows)
    return pd.DataFrame(
        {
            "x": rng.normal(size=rows) + town,
            "town": np.array(list("pqrs"))[town],
            "code": np.array(["K3", "A1", "Z9", "C2"])[town],
        }
    )


@pytest.mark.parametrize("method", [*NETWORKS, "ges-generalised"])
def test_duplicate_categorical_columns_are_refused(method: str) -> None:
    table = duplicate_categories()
    with pytest.raises(
        DataError,
        match="column 'code' has the same information as 'town': each value of one goes with one "
        "value of the other; leave one",
    ):
        discover(table, method)
    numbered = table.assign(
        code=table.code.map({"K3": 5.0, "A1": 1.0, "Z9": 2.5, "C2": 0.0})
    )  # the same as numbers
    with pytest.raises(DataError, match="column 'code' has the same information as 'town'"):
        discover(numbered, method)
    nearly = table.assign(
        code=np.where(np.arange(len(table)) == 3, "other", table.code)
    )  # differs in one row
    result = discover(
        nearly, method, **({"samples": 100} if method == "ges-generalised" else QUICK[method])
    )
    assert {"town", "code"} in [set(edge[:2]) for edge in result.graph.edges]


def test_a_coarser_categorical_column_is_accepted() -> None:
    table = duplicate_categories().assign(
        code=lambda t: np.where(t.town.isin(["p", "q"]), "north", "south")
    )  # the region of a town, binary
    assert {"town", "code"} in [
        set(edge[:2]) for edge in discover(table, "ges-generalised").graph.edges
    ]


@pytest.mark.parametrize("method", [*NETWORKS, "ges-generalised"])
def test_too_many_categories_are_refused(method: str) -> None:
    table = pd.DataFrame(
        {"id": [f"p{k}" for k in range(1000)], "x": np.random.default_rng(0).normal(size=1000)}
    )
    with pytest.raises(
        DataError, match="column 'id' has 1000 categories in 1000 rows; merge the rare ones"
    ):
        discover(table, method)


@pytest.mark.parametrize("method", ["notears", "dagma", "ges"])
def test_linear_methods_refuse_categories_and_name_an_alternative(method: str) -> None:
    with pytest.raises(DataError, match=r"'(notears-mlp|dagma-mlp|ges-generalised)'"):
        discover(equal_noises(100).assign(e=list("abcd") * 25), method)


def test_wrong_settings_are_refused() -> None:
    table = equal_noises(100)
    for settings, message in (
        ({"noise": "unequal"}, "equal, free"),
        ({"steps": 0}, "steps=0"),
        ({"l1": -1.0}, "l1=-1.0"),
        ({"device": "tpu"}, "device='tpu'"),
        ({"lambda1": 0.1}, "unknown setting"),
    ):
        with pytest.raises(UsageError, match=message):
            discover(table, "dagma", **settings)


@pytest.mark.parametrize("method", NETWORKS)
def test_the_same_seed_gives_the_same_graph(method: str) -> None:
    table = equal_noises(100)
    first, second = (discover(table, method, seed=3, **QUICK[method]) for _ in range(2))
    assert first.graph == second.graph


def test_every_method_documents_its_columns() -> None:
    for name, learner in METHODS.items():
        assert learner.__doc__, name
        assert "columns" in learner.__doc__, name


@pytest.mark.gpu
@pytest.mark.parametrize("method", [*LINEAR, *NETWORKS])
def test_cpu_and_gpu_agree(method: str) -> None:
    table = equal_noises(200)
    here, there = (
        discover(table, method, device=device, **QUICK[method]) for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(here.graph.weights, there.graph.weights, atol=1e-3)
