"""Notes on interventions: combinations unlike the training data, values that are not shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from intervae.data import Dataset
from intervae.data.simulators import Pendulum
from intervae.data.support import LabelSupport
from intervae.models.intervention_values import (
    InterventionValues,
    not_shown_notes,
    off_support,
    off_support_note,
    related_variables,
)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Pendulum().dataset(size=8, samples=2000)


@pytest.fixture(scope="module")
def model(data: Dataset) -> Any:
    """What the notes ask of a model: names, variables and graph."""
    return SimpleNamespace(spec=data.spec, latent_names=data.names, graph=data.graph)


def values(data: Dataset, target: np.ndarray, error: float = 0.0) -> InterventionValues:
    """Labels of the test rows before do(), read with an error in standard deviations."""
    labels = data.test.labels.numpy().astype(float)
    noise = np.random.default_rng(0).normal(size=labels.shape) * [v.std for v in data.variables]
    return InterventionValues(data.names, labels + error * noise, target, target, labels != target)


def test_contradictory_shadows_warn_and_consistent_ones_do_not(data: Dataset, model: Any) -> None:
    support = LabelSupport.of(data.variables, data.train)
    noises = data.test.fields["exogenous"].numpy()
    assert data.simulator is not None
    consistent = data.simulator.simulate(noises, {"light": 80.0})
    assert off_support(model, values(data, consistent), ["light"], support).mean() < 0.05
    contradictory = data.test.labels.numpy().astype(float)
    contradictory[:, 2] += data.spec.variable("shadow_length").std
    changed = values(data, contradictory)
    assert off_support(model, changed, ["shadow_length"], support).mean() > 0.95
    (note,) = off_support_note(model, changed, ["shadow_length"], support)
    assert "combinations of pendulum, light, shadow_length are unlike the training data" in note
    # no support is known: nothing is said
    assert not off_support(model, changed, ["shadow_length"], None).any()


def test_poor_readings_alone_do_not_warn(data: Dataset, model: Any) -> None:
    """A reader that is off by half a deviation was off support before do() already."""
    support = LabelSupport.of(data.variables, data.train)
    rough = values(data, data.test.labels.numpy().astype(float), error=0.5)
    rough = rough._replace(target=rough.before)
    distances = support.distances(rough.before)  # type: ignore[union-attr]
    assert (distances > support.limit()).mean() > 0.5  # type: ignore[union-attr]
    assert not off_support(model, rough, ["light"], support).any()


def test_related_variables_are_acted_ones_effects_and_causes(model: Any) -> None:
    assert related_variables(model, ["shadow_length"]) == ["pendulum", "light", "shadow_length"]
    assert len(related_variables(model, ["light"])) == 4
    assert related_variables(model, ["z0"]) == []


def test_value_that_is_not_shown_gets_a_note(data: Dataset) -> None:
    target = data.test.labels.numpy().astype(float)
    target[:, 1] = 100.0
    shown = values(data, target)
    assert not not_shown_notes(shown, data.spec)
    after = target.copy()
    after[0, 1] = 60.0
    one = InterventionValues(data.names, *(table[:1] for table in shown[1:]))._replace(
        after=after[:1]
    )
    (note,) = not_shown_notes(one, data.spec)
    assert note.startswith("do() sets light to 100, but the picture shows 60")
    (note,) = not_shown_notes(shown._replace(after=after), data.spec)
    assert note.startswith(f"1 of {len(after)} pictures do not show the light")
