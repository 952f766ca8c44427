"""The X-ray simulator against its equations: directions, opacity and masks."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.simulators import XRay
from intervae.errors import UsageError

CAUSAL, ANTI = XRay(), XRay(direction="anti-causal")
NOISES = CAUSAL.sample_exogenous(60, np.random.default_rng(5))
OPACITY, BRIGHTNESS, DISEASE, DOSE = range(4)


def test_the_disease_causes_the_opacity():
    noises = CAUSAL.sample_exogenous(20_000, np.random.default_rng(0))
    values = CAUSAL.simulate(noises)
    assert [(a, b) for a, b, _ in CAUSAL.graph.edges] == [
        ("disease", "opacity"),
        ("dose", "brightness"),
    ]
    assert values[:, DISEASE].mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_allclose(values[:, OPACITY], values[:, DISEASE] + 0.15 * noises[:, 0])
    np.testing.assert_allclose(
        values[:, BRIGHTNESS], 2 * np.tanh(values[:, DOSE]) + 0.3 * noises[:, 1]
    )


def test_the_opacity_causes_the_disease_with_logistic_probability():
    noises = ANTI.sample_exogenous(200_000, np.random.default_rng(0))
    values = ANTI.simulate(noises)
    assert [(a, b) for a, b, _ in ANTI.graph.edges] == [
        ("opacity", "disease"),
        ("dose", "brightness"),
    ]
    np.testing.assert_allclose(values[:, OPACITY], 0.5 + 0.5 * noises[:, 0])
    for low in (0.2, 0.5, 0.7):
        near = np.abs(values[:, OPACITY] - low) < 0.01
        assert values[near, DISEASE].mean() == pytest.approx(
            1 / (1 + np.exp(-8 * (low - 0.5))), abs=0.03
        )


def test_do_of_the_disease_changes_images_in_the_causal_direction_only():
    before = CAUSAL.render(CAUSAL.simulate(NOISES), NOISES)
    well, values = CAUSAL.counterfactual(NOISES, {"disease": 0.0})
    ill, _ = CAUSAL.counterfactual(NOISES, {"disease": 1.0})
    np.testing.assert_allclose(values[:, OPACITY], 0.15 * NOISES[:, 0])
    was_ill = CAUSAL.simulate(NOISES)[:, DISEASE] == 1
    np.testing.assert_array_equal(ill[was_ill], before[was_ill])
    np.testing.assert_array_equal(well[~was_ill], before[~was_ill])
    assert (ill != well).any((1, 2, 3)).all()
    for disease in (0.0, 1.0):
        unchanged, _ = ANTI.counterfactual(NOISES, {"disease": disease})
        np.testing.assert_array_equal(unchanged, ANTI.render(ANTI.simulate(NOISES), NOISES))


@pytest.mark.parametrize("size", [32, 64])
def test_an_opacity_changes_pixels_of_its_mask_in_the_lungs(size):
    noises, n = NOISES, len(NOISES)
    well, ill = (
        CAUSAL.counterfactual(noises, {"disease": d, "dose": 0.0}, size=size)[0].astype(float)
        for d in (0.0, 1.0)
    )
    change, region, lungs = (
        np.abs(ill - well),
        CAUSAL.opacity_regions(noises, n, size=size),
        CAUSAL.lungs(noises, n, size=size),
    )
    inside = (change * region).sum((1, 2, 3)) / change.sum((1, 2, 3))
    assert inside.min() > 0.85
    assert inside.mean() > 0.9
    assert (change * ~lungs).sum() < 0.03 * change.sum()
    assert 0.08 < region.mean() < 0.2  # energy of a constant heat map
    assert (ill.sum((1, 2, 3)) > well.sum((1, 2, 3))).all()
    left, right = region[..., : size // 2].any((1, 2, 3)), region[..., size // 2 :].any((1, 2, 3))
    assert (left & right).all()


def test_opacities_lie_in_the_outer_lungs_at_varying_positions():
    regions, lungs = (
        f(NOISES, len(NOISES))[:, 0].astype(float) for f in (CAUSAL.opacity_regions, CAUSAL.lungs)
    )
    off_centre = np.abs(np.arange(64) - 31.5)
    far, usual = (m.sum(1) @ off_centre / m.sum((1, 2)) for m in (regions, lungs))
    assert np.mean(far > usual) > 0.8
    assert len(np.unique(regions.reshape(len(regions), -1), axis=0)) == len(NOISES)


def test_masks_are_empty_without_an_opacity():
    values = CAUSAL.simulate(NOISES)
    masks = CAUSAL.masks(values, NOISES)
    np.testing.assert_array_equal(masks.any((1, 2, 3)), values[:, OPACITY] >= 0.5)
    np.testing.assert_array_equal(
        masks[values[:, OPACITY] >= 0.5],
        CAUSAL.opacity_regions(NOISES, 60)[values[:, OPACITY] >= 0.5],
    )


def test_images_get_brighter_with_opacity_and_brightness():
    table = np.zeros((5, 4))
    table[:, OPACITY] = [0, 0.25, 0.5, 1, 1.5]
    assert (np.diff(CAUSAL.render(table).astype(float).mean((1, 2, 3))) > 0).all()
    table = np.zeros((5, 4))
    table[:, BRIGHTNESS] = [-2, -1, 0, 1, 2]
    assert (np.diff(CAUSAL.render(table).astype(float).mean((1, 2, 3))) > 0).all()
    np.testing.assert_array_equal(CAUSAL.render([[-3.0, 0, 0, 0]]), CAUSAL.render([[0.0, 0, 0, 0]]))


@pytest.mark.parametrize("direction", ["causal", "anti-causal"])
def test_data_have_two_columns_and_fields_with_the_truth(direction):
    data = load_data("xray-like", samples=60, size=32, direction=direction)
    assert [(v.name, v.kind) for v in data.variables] == [
        ("disease", "binary"),
        ("dose", "continuous"),
    ]
    assert "opacity" not in json.dumps(data.spec.to_json())
    assert data.graph.names == ("opacity", "brightness", "disease", "dose")
    exogenous = data.test.fields["exogenous"].numpy()
    values = data.simulator.simulate(exogenous)
    np.testing.assert_allclose(data.test.labels, values[:, 2:], rtol=1e-6)
    np.testing.assert_allclose(data.test.fields["latents"], values[:, :2], rtol=1e-5)
    np.testing.assert_array_equal(
        data.test.images, data.simulator.render(values, exogenous, size=32)
    )
    np.testing.assert_array_equal(
        data.test.fields["mask"], data.simulator.masks(values, exogenous, size=32)[:, 0]
    )
    assert data.test.fields["mask"].shape == (12, 32, 32)
    again = reload(json.loads(json.dumps(data.source)))
    assert torch.equal(again.train.images, data.train.images)
    assert torch.equal(again.train.fields["mask"], data.train.fields["mask"])


def test_invalid_options_are_refused():
    with pytest.raises(UsageError, match="direction"):
        load_data("xray-like", direction="up")
    with pytest.raises(UsageError, match="samples=2 must be a whole number, 8 or more"):
        load_data("xray-like", samples=2)
    with pytest.raises(UsageError, match="size=4 is too small"):
        load_data("xray-like", samples=10, size=4)
