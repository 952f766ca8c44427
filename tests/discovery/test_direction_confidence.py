"""Confidence in directions: calibrated, open where the data cannot decide, kept with a model."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import intervae
from intervae.causal.graph import CausalGraph
from intervae.data.simulators.flow import Flow
from intervae.data.simulators.pendulum import Pendulum
from intervae.discovery import OpenDirectionWarning, assess_directions, bootstrap, discover
from intervae.discovery.direction_confidence import CALIBRATION, OPEN_BELOW
from intervae.discovery.direction_evidence import FEATURES, direction_evidence, evidence_features
from intervae.errors import DataError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import direction_pairs as pairs


def confidence(x: np.ndarray, y: np.ndarray) -> float:
    return CALIBRATION.confidence(evidence_features(*direction_evidence(x, y)))


def morpho(seed: int, rows: int = 800) -> pd.DataFrame:
    thickness, intensity = pairs.morpho_mnist(np.random.default_rng(seed), rows)
    return pd.DataFrame({"thickness": thickness, "intensity": intensity})


# ---- pairs ---------------------------------------------------------------------------------------
def test_swapping_the_variables_negates_the_evidence() -> None:
    x, y = pairs.additive(np.random.default_rng(0), 300)
    forward = evidence_features(*direction_evidence(x, y))
    assert forward.shape == (len(FEATURES),)
    np.testing.assert_allclose(evidence_features(*direction_evidence(y, x)), -forward, atol=1e-9)
    assert confidence(x, y) + confidence(y, x) == pytest.approx(1.0)


def test_units_do_not_change_the_evidence() -> None:
    x, y = pairs.heteroscedastic(np.random.default_rng(1), 300)
    plain = np.concatenate(direction_evidence(x, y))
    scaled = np.concatenate(direction_evidence(1e4 * x - 7, -0.01 * y + 3))
    np.testing.assert_allclose(scaled, plain, atol=0.3)


def test_the_post_nonlinear_likelihood_prefers_the_direction_of_morpho_mnist() -> None:
    """The additive model alone prefers the wrong direction, by its own test."""
    evidence, likelihood = direction_evidence(*morpho(0).to_numpy().T)
    assert evidence[0, 0] > evidence[1, 0] + 5
    assert likelihood[0, 1] > likelihood[1, 1] + 5


def test_a_strong_additive_curve_is_decided() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, 600)
    assert confidence(x, x**2 + 0.2 * rng.normal(size=600)) > 0.9


def test_linear_gaussian_pairs_are_open() -> None:
    rng = np.random.default_rng(3)
    values = [confidence(*pairs.linear_gaussian(rng, 400)) for _ in range(10)]
    assert all(1 - OPEN_BELOW < value < OPEN_BELOW for value in values)


@pytest.mark.slow
def test_confidence_is_calibrated_on_new_families() -> None:
    results = [
        (confidence(*pair), name != "confounded")
        for name, pair in pairs.simulated(pairs.HELD_OUT, range(5000, 5040))
    ]
    stated = np.array([max(value, 1 - value) for value, _ in results])
    right = np.array([value > 0.5 and directed for value, directed in results])
    sure = stated >= 0.9
    assert sure.sum() >= 20
    assert right[sure].mean() >= 0.9
    middle = (stated >= 0.6) & ~sure
    assert abs(right[middle].mean() - stated[middle].mean()) < 0.12


# ---- graphs --------------------------------------------------------------------------------------
def test_the_reversed_edge_of_morpho_mnist_is_open() -> None:
    result = discover(morpho(1, 2000), samples=400)
    (edge,) = [edge[:2] for edge in result.graph.edges]
    assert result.open_directions == (edge,)
    (note,) = [note for note in result.notes if note.kind == "open-direction"]
    assert f"the direction of {edge[0]} -> {edge[1]} is open" in note.text
    assert "--graph" in note.text


def test_bootstrap_confidence_has_the_confidence_in_the_direction() -> None:
    resampled = bootstrap(morpho(1, 1000), resamples=4, samples=300)
    reverse = resampled.frequency[1, 0]
    assert reverse == 1.0  # every resample repeats the error of the method
    assert resampled.confidence[1, 0] < OPEN_BELOW
    assert resampled.confidence[0, 1] + resampled.confidence[1, 0] == pytest.approx(1.0)


@pytest.mark.parametrize("simulator", [Pendulum(), Flow()], ids=lambda s: s.name)
def test_independent_causes_of_one_effect_decide_its_directions(simulator) -> None:
    rng = np.random.default_rng(4)
    table = simulator.simulate(simulator.sample_exogenous(1500, rng))
    directions = {(d.cause, d.effect): d for d in assess_directions(table, simulator.graph)}
    for effect in simulator.graph.names:
        parents = simulator.graph.parents(effect)
        independent = [p for p in parents if not simulator.graph.parents(p)]
        if len(independent) == 2:
            assert all(directions[p, effect].structure for p in parents)
            assert all(not directions[p, effect].is_open for p in parents)


def test_a_reversed_collider_edge_is_not_confirmed_by_structure() -> None:
    rng = np.random.default_rng(5)
    a, b, c = rng.normal(size=(3, 800))
    c += a + b
    table = np.stack([a, b, c], axis=1)
    right = assess_directions(table, CausalGraph.from_edges("abc", [("a", "c"), ("b", "c")]))
    assert all(direction.structure for direction in right)
    wrong = assess_directions(table, CausalGraph.from_edges("abc", [("c", "a"), ("b", "c")]))
    assert not any(direction.structure for direction in wrong)


def test_known_edges_are_not_assessed() -> None:
    table = morpho(1)
    knowledge = {"required": [["thickness", "intensity"]]}
    result = discover(table, samples=300, knowledge=knowledge)
    assert result.directions == ()
    assert result.open_directions == ()
    tiers = {"tiers": [["thickness"], ["intensity"]]}
    assert discover(table, samples=300, knowledge=tiers).open_directions == ()


def test_directions_of_categories_are_refused() -> None:
    table = morpho(1).assign(dark=lambda t: t.intensity > 128)
    with pytest.raises(DataError, match="check_directions"):
        discover(table, "ges", check_directions=True)


# ---- models --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["causal-vae", "deep-scm"])
def test_training_warns_and_the_run_marks_the_open_edge(name: str, tmp_path: Path) -> None:
    labels = morpho(1, 300)
    images = np.random.default_rng(0).integers(0, 255, (300, 1, 16, 16), dtype=np.uint8)
    np.savez(
        tmp_path / "data.npz",
        images=images,
        labels=labels.to_numpy(dtype=np.float32),
        names=np.array([*labels.columns]),
    )
    data = intervae.load_data(tmp_path / "data.npz")
    model = intervae.create(name, data, epochs=1)
    with pytest.warns(OpenDirectionWarning, match=r"direction of \w+ -> \w+ is open.*--graph"):
        model.fit(data, out=tmp_path / "run", device="cpu", progress=False)
    assert len(model.undirected_edges) == 1
    (edge,) = json.loads((tmp_path / "run/graph.json").read_text())["edges"]
    assert edge["direction"] == "open"
    assert "the data leaves the direction open" in (tmp_path / "run/README.md").read_text()
    assert intervae.load(tmp_path / "run").undirected_edges == model.undirected_edges
