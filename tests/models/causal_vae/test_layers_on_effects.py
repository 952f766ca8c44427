"""decoder=layers after a short training: do() against the simulator's true pictures."""

from __future__ import annotations

import warnings
from typing import Any

import intervae
from intervae.data.simulators import Pendulum
from intervae.evaluation import evaluate


def test_every_do_is_nearer_to_the_truth_than_the_untouched_picture() -> None:
    """The sets of variables are found. The decoder alone keeps no pixel; it answers for causes."""
    data = Pendulum().dataset(size=24, samples=1500)
    model: Any = intervae.create(
        "causal-vae",
        data,
        graph=data.graph,
        decoder="layers",
        prior_std=0.015,
        channels=(8, 16, 16),
        hidden=64,
        batch_size=32,
        epochs=15,
        layer_hidden=32,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data, seed=0, device="cpu")
    assert [layer.variables for layer in model.layers] == [
        ("pendulum",),
        ("light",),
        ("shadow_length", "shadow_position"),
    ]
    results = {m.metric: m for m in evaluate(model, data, ["counterfactual"])}
    errors = results["counterfactual_pixel_mae"]
    untouched = results["identity_pixel_mae"].per_variable
    alone = errors.parameters["decoder_alone"]
    for name, error in errors.per_variable.items():
        assert error < 0.5 * untouched[name], name
    for name in ("pendulum", "light"):
        assert alone[name] < 0.5 * untouched[name], name
