"""A run of a stack has the losses and weights of that run alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intervae.data import Dataset
from intervae.nets.norm import batch_norm_layers
from intervae.training import fit, fit_seeds
from intervae.training.seeds import fit_stack
from stacked_models import SEEDS, difference, lines, same_weights, stacked

# (model, settings): of the kinds of losses that can be stacked
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("vae", {}),
    ("beta-vae", {"capacity": 2.0, "capacity_steps": 20}),
    ("beta-tcvae", {}),
    ("causal-vae", {"influence_weight": 0.5}),
    ("causal-vae", {"graph": "joint", "encode_labels": True}),
    ("causal-vae", {"rest": 2}),
    ("condition-vae", {}),
    ("causal-vae-unsup", {}),
    ("causal-prior-vae", {}),
    ("deep-scm", {}),
    ("ivae", {}),
    ("ladder-vae", {"batch_norm": False}),
]


@pytest.mark.parametrize(("name", "settings"), MODELS, ids=[name for name, _ in MODELS])
def test_seed_of_a_stack_gives_the_run_of_that_seed(
    name: str, settings: dict[str, Any], make_model: Any, pendulum: Dataset
) -> None:
    """Sums in another order differ by rounding, which training amplifies.

    Measured: at most 1.3e-5 of a tensor's norm (3e-7 without convolutions of a rest). Losses
    without matrix products are bit-equal, see the next test.
    """
    model = make_model(name, pendulum, **settings)
    for run in fit_seeds(model, pendulum, seeds=SEEDS, **stacked()):
        alone = make_model(name, pendulum, **settings)
        history = fit(alone, pendulum, seed=run.seed, device="cpu").history
        assert difference(alone, run.model) < 2e-4
        for line, expected in zip(run.result.history, history, strict=True):
            assert (line["phase"], line.get("epoch")) == (expected["phase"], expected.get("epoch"))
            for split in ("train", "validation"):
                if split in expected:
                    assert line[split] == pytest.approx(expected[split], rel=1e-4, abs=1e-4)
    assert not same_weights(run.model, make_model(name, pendulum, **settings))


@pytest.mark.parametrize("name", ["ladder-vae", "cmcl"])
def test_batch_normalisation_has_the_statistics_of_each_run(
    name: str, make_model: Any, pendulum: Dataset
) -> None:
    """With a small rate: Adam turns rounding into steps along directions that have no gradient.

    With the usual rate, runs whose weights begin 1e-7 apart part in these directions as well
    (measured after two epochs: 0.7 of the norm of a mean; a run and its copy in a stack: 0.35).
    """
    settings = {"epochs": 2, "learning_rate": 1e-6}
    model = make_model(name, pendulum, **settings)
    variances = []
    for run in fit_seeds(model, pendulum, seeds=SEEDS, **stacked()):
        alone = make_model(name, pendulum, **settings)
        history = fit(alone, pendulum, seed=run.seed, device="cpu").history
        for line, expected in zip(run.result.history, history, strict=True):
            for split in ("train", "validation"):
                assert line[split] == pytest.approx(expected[split], rel=1e-2, abs=1e-3)
        assert difference(alone, run.model) < 0.05  # of shifts, which begin at 0
        variances.append(torch.cat([layer.variance for layer in batch_norm_layers(alone)]))
    assert (variances[0] - variances[1]).norm() > 0.02 * variances[0].norm()


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "muon", "adagrad", "rmsprop", "sgd"])
def test_every_optimiser_clips_and_steps_each_run_by_itself(
    optimiser: str, toy: Any, toy_data: Dataset
) -> None:
    def make() -> Any:
        return toy(
            player={"optimiser": optimiser, "clip": 0.3, "prefix_rates": (("second", 0.2),)},
            schedule="cosine",
            averaging=0.5,
        )

    models = [make() for _ in SEEDS]
    runs = fit_stack(models, toy_data, SEEDS, [None] * 3, **stacked())
    assert len({run.model.second.item() for run in runs}) == 3
    for run in runs:
        alone = make()
        history = fit(alone, toy_data, seed=run.seed, device="cpu").history
        assert same_weights(alone, run.model)
        assert lines(run.result.history) == lines(history)


def test_settings_of_the_optimiser_may_differ(toy: Any, toy_data: Dataset) -> None:
    def make(rate: float) -> Any:
        epochs = 2 if rate == 0.1 else 4
        return toy(player={"learning_rate": rate}, schedule="cosine", epochs=epochs)

    rates = [0.01, 0.1, 0.03]
    runs = fit_stack([make(r) for r in rates], toy_data, [5] * 3, [None] * 3, **stacked())
    for run, rate in zip(runs, rates, strict=True):
        alone = make(rate)
        fit(alone, toy_data, seed=5, device="cpu")
        assert same_weights(alone, run.model)
