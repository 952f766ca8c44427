"""Support of labels: real rows are on it, contradictory ones are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from intervae.data import Dataset, Split, Variable
from intervae.data.simulators import Flow, Pendulum
from intervae.data.support import LabelSupport


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Pendulum().dataset(size=8, samples=2000)


@pytest.fixture(scope="module")
def support(data: Dataset) -> LabelSupport:
    result = LabelSupport.of(data.variables, data.train)
    assert result is not None
    return result


def test_few_real_rows_are_off_support(data: Dataset, support: LabelSupport) -> None:
    outside = support.distances(data.test.labels.numpy()) > support.limit()
    assert outside.mean() < 0.05
    flow = Flow().dataset(size=8, samples=2000)
    other = LabelSupport.of(flow.variables, flow.train)
    assert other is not None
    assert (other.distances(flow.test.labels.numpy()) > other.limit()).mean() < 0.05


def test_shadows_that_contradict_rod_and_light_are_off_support(
    data: Dataset, support: LabelSupport
) -> None:
    """do(light) with its shadows is on support; a shadow moved by one deviation is not."""
    noises = data.test.fields["exogenous"].numpy()
    light = data.spec.variable("light")
    values = np.random.default_rng(0).uniform(light.low, light.high, len(noises))
    assert data.simulator is not None
    consistent = data.simulator.simulate(noises, {"light": values})
    assert (support.distances(consistent) > support.limit()).mean() < 0.05
    for name in ("shadow_length", "shadow_position"):
        contradictory = data.test.labels.numpy().astype(float)
        contradictory[:, data.names.index(name)] += data.spec.variable(name).std
        assert (support.distances(contradictory) > support.limit()).mean() > 0.95
        # each value alone occurs, and so does it together with the light
        assert (support.distances(contradictory, [name]) > support.limit([name])).mean() < 0.3


def test_another_class_is_as_far_as_two_standard_deviations() -> None:
    variables = (Variable("x", std=2.0), Variable("side", "binary", std=0.5))
    labels = torch.tensor([[0.0, 0.0], [1.0, 0.0], [float("nan"), 1.0]])
    support = LabelSupport.of(variables, Split(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), labels))
    assert support is not None
    assert len(support.labels) == 2  # the row with a missing label is left out
    distances = support.distances(np.array([[3.0, 0.0], [0.0, 1.0], [2.0, 1.0]]))
    np.testing.assert_allclose(distances, [1.0, 2.0, np.hypot(0.5, 2.0)])
    assert support.limit() == pytest.approx(0.5)


def test_support_of_a_run_is_read_again(
    data: Dataset, support: LabelSupport, tmp_path: Path
) -> None:
    support.write(tmp_path)
    again = LabelSupport.read(tmp_path, data.variables)
    assert again is not None
    np.testing.assert_array_equal(again.labels, support.labels)
    assert LabelSupport.read(tmp_path, data.variables[:2]) is None
    assert LabelSupport.read(tmp_path / "elsewhere", data.variables) is None
