"""CMCL trained on small simulated data: links and directions are recovered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from intervae.data import Dataset, Variable, build_dataset
from intervae.metrics import mic_matrix
from intervae.models.cmcl.model import CMCL


def small_world(samples: int = 900, size: int = 6, seed: int = 0) -> Dataset:
    """Images of two latents: `cause` causes the first, the second causes `effect`.

    Both relations are curved, noises and roots are Gaussian. The field `latents` holds z.
    """
    rng = np.random.default_rng(seed)
    cause, second, *noise = rng.normal(size=(4, samples))
    first = 1.5 * np.tanh(2 * cause) + 0.4 * noise[0]
    effect = 1.5 * np.tanh(2 * second) + 0.4 * noise[1]
    return spots(
        np.stack([first, second], 1),
        np.stack([cause, effect], 1),
        [Variable("cause"), Variable("effect")],
        size,
    )


def spots(
    latents: np.ndarray, table: np.ndarray, variables: list[Variable], size: int = 6
) -> Dataset:
    """Images whose upper and lower half are as bright as two latents (N, 2) are large."""
    pixels = np.repeat(
        np.repeat(np.tanh(0.5 * latents)[:, :, None], size // 2, axis=1), size, axis=2
    )
    images = np.rint(255 * (0.5 + 0.5 * pixels)).astype(np.uint8)[:, None]
    return build_dataset("small", images, table, variables, fields={"latents": latents})


def small_groups(samples: int = 900, seed: int = 0) -> Dataset:
    """A binary column causes the first latent, a categorical one the second."""
    rng = np.random.default_rng(seed)
    ill, site = rng.integers(2, size=samples), rng.integers(3, size=samples)
    latents = np.stack(
        [
            2.0 * ill - 1 + 0.4 * rng.normal(size=samples),
            np.array([-1.2, 1.2, 0.0])[site] + 0.3 * rng.normal(size=samples),
        ],
        1,
    )
    return spots(
        latents,
        np.stack([ill, site], 1),
        [Variable("ill", "binary"), Variable("site", "categorical", categories=("a", "b", "c"))],
    )


TRAINED: dict[str, Any] = {
    "latents": 2,
    "embedding": 4,
    "network": "conv",
    "channels": (8,),
    "hidden": 32,
    "likelihood": "gaussian",
    "scale": 0.05,
    "contrast": False,
    "epochs": 50,
    "batch_size": 64,
    "warm_up": 5,
    "learning_rate": 2e-3,
}


def own_correlations(model: CMCL, data: Dataset) -> np.ndarray:
    """(latents, true latents) absolute correlations on test images."""
    return np.abs(
        np.corrcoef(model.encode(data.test.images)[..., 0].T, data.test.fields["latents"].T)[:2, 2:]
    )


FAST: dict[str, Any] = {"rate_schedule": "cosine", "learning_rate": 3e-3}
VARIANTS: dict[str, dict[str, Any]] = {
    "paired convolutions, contrast": {"network": "pairs", "contrast": True, **FAST},
    "contrast": {"contrast": True, **FAST},
    "full pairing": {"pairing": "full"},
    "learned pairing": {"pairing": "learned", **FAST},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_recovers_a_cause_and_an_effect_with(variant: str) -> None:
    data = small_world()
    model = CMCL(data.spec, **{**TRAINED, **VARIANTS[variant]})
    model.fit(data, seed=0)
    correlations = own_correlations(model, data)
    first, second = (f"z{j}" for j in correlations.argmax(0))
    assert {edge[:2] for edge in model.graph.edges} == {("cause", first), (second, "effect")}
    assert correlations.max(0).min() > 0.95
    if VARIANTS[variant].get("pairing", "index") == "index":
        assert (first, second) == ("z0", "z1")


def test_recovers_the_latents_of_binary_and_categorical_columns() -> None:
    data = small_groups()
    model = CMCL(data.spec, **TRAINED)
    model.fit(data, seed=0)
    linked = {frozenset(edge[:2]) for edge in model.graph.edges}  # no identifiable direction
    assert linked == {frozenset({"ill", "z0"}), frozenset({"site", "z1"})}
    assert not model.margins.any()
    assert own_correlations(model, data).diagonal().min() > 0.9
    if "z0" in model.graph.children("ill"):
        upper = [
            model.counterfactual(data.test.images, {"ill": value}, data.test.labels)[:, :, :3]
            .mean()
            .item()
            for value in (0, 1)
        ]
        assert upper[1] - upper[0] > 0.2
    if "z1" in model.graph.children("site"):
        lower = [
            model.counterfactual(data.test.images, {"site": word}, data.test.labels)[:, :, 3:]
            .mean()
            .item()
            for word in "acb"
        ]
        assert lower == sorted(lower)


def test_recovers_both_directions_without_copying_the_labels() -> None:
    data = small_world()
    model = CMCL(data.spec, **TRAINED)
    model.fit(data, seed=0)
    assert {(a, b) for a, b, _ in model.graph.edges} == {("cause", "z0"), ("z1", "effect")}
    images, labels, true = data.test.images, data.test.labels, data.test.fields["latents"]
    z = model.encode(images)[..., 0]
    assert own_correlations(model, data).diagonal().min() > 0.9
    assert (
        mic_matrix(z.numpy(), true.numpy()).diagonal().min()
        > mic_matrix(z.numpy(), labels.numpy()).diagonal().max()
    )
    # given the labels of other images, the latents still follow the image
    shuffled = model.encode(images, labels.roll(7, 0))[..., 0]
    assert min(abs(np.corrcoef(shuffled[:, j], true[:, j])[0, 1]) for j in range(2)) > 0.7
    brightness = [
        model.counterfactual(images, {"cause": value}, labels)[:, :, :3].mean().item()
        for value in (-1.5, -0.5, 0.5, 1.5)
    ]
    assert brightness == sorted(brightness)
    assert brightness[-1] - brightness[0] > 0.3
    assert torch.equal(
        model.counterfactual(images, {"effect": 2.0}, labels), model.reconstruct(images, labels)
    )
