"""Discs of `bowl` against their law, and their area and centre of mass in the images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.simulators import Bowl
from intervae.errors import QueryError, UsageError

SIMULATOR = Bowl()
NOISES = SIMULATOR.sample_exogenous(150, np.random.default_rng(0))
VALUES = SIMULATOR.simulate(NOISES)


def test_growth_is_the_squared_distance_plus_noise() -> None:
    many = SIMULATOR.simulate(SIMULATOR.sample_exogenous(50_000, np.random.default_rng(1)))
    x, y, growth = many.T
    noise = growth - x**2 - y**2
    assert -0.25 <= noise.min() < -0.249 < 0.249 < noise.max() <= 0.25
    assert np.abs(np.corrcoef([x, y, noise])[np.triu_indices(3, 1)]).max() < 0.02
    # Var(x^2) of U(-1, 1) is 4 / 45
    assert growth.var() == pytest.approx(2 * 4 / 45 + 0.25 / 12, rel=0.03)
    assert SIMULATOR.graph.parents("growth") == ["x", "y"]


@pytest.mark.parametrize("size", [128, 64, 16])
def test_discs_have_their_area_and_centre(size: int) -> None:
    images = SIMULATOR.render(VALUES, size=size)[:, 0] / 255
    unit, pixels = size / 64, np.arange(size)
    radius = (5 + 3 * VALUES[:, 2]) * unit
    area = images.sum((1, 2))
    np.testing.assert_allclose(area, np.pi * radius**2, rtol=0.08)
    columns, rows = images.sum(1) @ pixels / area, images.sum(2) @ pixels / area
    np.testing.assert_allclose((columns + 0.5) / unit - 0.5, 31.5 + 18 * VALUES[:, 0], atol=0.4)
    np.testing.assert_allclose((rows + 0.5) / unit - 0.5, 31.5 - 18 * VALUES[:, 1], atol=0.4)
    assert not images[:, [0, -1]].any()  # every disc is inside


def test_do_on_a_cause_changes_the_disc_and_on_the_effect_only_its_size() -> None:
    _, values = SIMULATOR.counterfactual(NOISES, {"x": 0.5})
    np.testing.assert_allclose(values[:, 2], VALUES[:, 2] - VALUES[:, 0] ** 2 + 0.25)
    _, values = SIMULATOR.counterfactual(NOISES, {"growth": 1.0})
    np.testing.assert_array_equal(values[:, :2], VALUES[:, :2])


def test_data_reload_and_errors() -> None:
    data = load_data("bowl", size=16, samples=60, seed=3)
    assert data.names == ("x", "y", "growth")
    images, _ = data.simulator.counterfactual(data.test.fields["exogenous"], {}, size=16)
    assert torch.equal(torch.as_tensor(images), data.test.images)
    assert torch.equal(reload(data.source).test.images, data.test.images)
    with pytest.raises(UsageError, match="samples=3 must be a whole number, 8 or more"):
        Bowl().dataset(samples=3)
    with pytest.raises(QueryError, match="bowl has no published grid"):
        SIMULATOR.published_grid()
