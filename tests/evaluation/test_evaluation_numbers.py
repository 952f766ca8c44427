"""The numbers of `evaluate` agree with direct calls of the metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from intervae import metrics
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset
from intervae.evaluation import evaluate
from intervae.metrics.base import Measurement
from intervae.models.base import Model
from pixel_means import PixelMeans


def test_mic_and_tic_match_direct_calls(
    measurements: dict[str, Measurement], model: Model, pendulum: Dataset
) -> None:
    latents, labels = model.encode(pendulum.test.images).numpy(), pendulum.test.labels.numpy()
    for i, name in enumerate(pendulum.names):
        assert measurements["mic"].per_variable[name] == pytest.approx(
            metrics.mic(latents[:, i].mean(1), labels[:, i])
        )
        best = max(metrics.tic(latents[:, i, j], labels[:, i]) for j in range(latents.shape[2]))
        assert measurements["tic_best_dim"].per_variable[name] == pytest.approx(best)
    assert measurements["mic"].n == len(pendulum.test) == 24
    assert measurements["mic"].parameters["matching"] == "identity"
    assert measurements["mic"].parameters["matched"] == {name: name for name in pendulum.names}
    assert 0 < measurements["mic"].parameters["by_chance"]["value"] < 1


def test_likelihood_and_active_units_match_direct_calls(
    measurements: dict[str, Measurement], model: Model, pendulum: Dataset
) -> None:
    bounds = metrics.likelihood_bounds(
        model.log_weights, pendulum.test.images, pendulum.test.labels, samples=64
    )
    assert measurements["elbo"].value == pytest.approx(bounds.elbo.mean())
    assert measurements["log_likelihood"].value == pytest.approx(bounds.importance_weighted.mean())
    description = measurements["log_likelihood"].parameters["reading"]
    assert description == type(model).likelihood_description
    variances = model.encode(pendulum.test.images).var(0, unbiased=False)
    assert measurements["active_units"].value == (variances > 0.01).sum()


def test_graph_and_disentanglement_match_direct_calls(
    measurements: dict[str, Measurement], model: Model, pendulum: Dataset
) -> None:
    assert pendulum.graph is not None
    for row in metrics.graph_metrics(pendulum.graph, model.graph).rows():
        assert measurements[row.metric].value == row.value
    labels = pendulum.test.labels.numpy()
    latents = model.encode(pendulum.test.images).numpy().mean(2)
    assert measurements["mig"].value == pytest.approx(
        metrics.mig(latents, labels, kinds="continuous").value
    )
    assert measurements["mcc"].value == pytest.approx(
        metrics.mcc(latents, labels, kinds="continuous", matching="identity").value
    )
    scores = metrics.irs(latents, labels, kinds="continuous").per_variable.values()
    expected = dict(zip(pendulum.names, scores, strict=True))  # names instead of z0, z1, ...
    assert measurements["irs"].per_variable == pytest.approx(expected)


def test_edges_are_ranked_by_strength_and_permuted(make_model: Any, pendulum: Dataset) -> None:
    names = pendulum.names
    backwards = CausalGraph.from_edges(
        names,
        [
            (names[3], names[0], 0.9),
            (names[3], names[1], 0.8),
            (names[2], names[0], 0.7),
            (names[2], names[1], 0.6),
        ],
    )
    model = make_model("causal-vae", pendulum, graph=backwards)
    measured = {
        m.metric: m.value for m in evaluate(model, pendulum, ["shd", "edges", "shd_permuted"])
    }
    assert measured["shd"] == 4  # every edge is reversed
    assert measured["shd_permuted"] == 0  # the true graph under other names
    curves = metrics.edge_curves(pendulum.graph, backwards)
    assert measured[curves.auroc.metric] == curves.auroc.value < 0.5


def test_counterfactual_errors_match_direct_calls(
    measurements: dict[str, Measurement], model: Model, pendulum: Dataset
) -> None:
    assert pendulum.simulator is not None
    images, exogenous = pendulum.test.images.numpy(), pendulum.test.fields["exogenous"].numpy()

    def query(pictures: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        return model.counterfactual(pictures, do).numpy()

    for m in metrics.counterfactual_errors(
        query, pendulum.simulator, images, exogenous, pendulum.variables
    ):
        assert measurements[m.metric].per_variable == pytest.approx(m.per_variable)
    assert measurements["nondescendant_latent_movement"].value == 0
    assert measurements["reader_r2_min"].n == 500
    errors = measurements["counterfactual_variable_error"]
    assert set(errors.per_variable) == set(pendulum.names)
    assert errors.value > errors.parameters["true_picture"]["value"]  # an untrained model


def test_movement_of_a_non_descendant_latent_is_detected(
    model: Any, pendulum: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervene = type(model).intervene

    def leaky(self: Any, latents: Tensor, do: Any) -> Tensor:
        after = intervene(self, latents, do)
        if "light" in do:
            after[:, 0] += 0.125  # the pendulum is no effect of the light
        return after

    monkeypatch.setattr(type(model), "intervene", leaky)
    measurements = {m.metric: m for m in evaluate(model, pendulum, ["counterfactual"])}
    movement = measurements["nondescendant_latent_movement"]
    assert movement.value == pytest.approx(0.125, abs=1e-5)
    assert {name for name, value in movement.per_variable.items() if value > 0} == {"light"}


def test_axioms_fit_the_regressor_on_other_images_and_name_the_graph(
    model: Model, pendulum: Dataset
) -> None:
    measurements = {m.metric: m for m in evaluate(model, pendulum, ["axioms"])}
    assert set(measurements) == {
        "composition_1",
        "composition_10",
        "reversibility_1",
        "reversibility_10",
        "effectiveness_error",
        "minimality_variables",
        "minimality_picture",
        "predictor_r2_min",
    }
    trained = measurements["predictor_r2_min"].parameters["training_pictures"]
    assert trained == len(pendulum.validation) + len(pendulum.train)
    (reconstruction,) = evaluate(model, pendulum, ["reconstruction"])
    assert measurements["composition_1"].value == pytest.approx(reconstruction.value, rel=1e-4)
    assert measurements["minimality_variables"].parameters["graph"] == "true"
    without_graph = evaluate(model, replace(pendulum, graph=None), ["axioms"])
    graphs = {m.metric: m.parameters.get("graph") for m in without_graph}
    assert graphs["minimality_variables"] == graphs["minimality_picture"] == "the model's"


def test_latent_movement_uses_the_models_graph_and_axioms_the_true_one(
    make_model: Any, pendulum: Dataset
) -> None:
    wrong = CausalGraph.from_edges(
        pendulum.names,
        [
            ("light", "pendulum"),
            ("pendulum", "shadow_length"),
            ("shadow_length", "shadow_position"),
        ],
    )
    model = make_model("causal-vae", pendulum, graph=wrong)
    measurements = {m.metric: m for m in evaluate(model, pendulum, ["counterfactual", "axioms"])}
    latent_movement = measurements["nondescendant_latent_movement"]
    assert latent_movement.value == 0
    # in the model's graph every variable descends from the light, in the true graph not
    assert "light" not in latent_movement.per_variable
    assert "light" in measurements["minimality_variables"].per_variable
    assert "light" in measurements["nondescendant_movement"].per_variable


def test_diversity_compares_samples_with_test_images(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data()
    (collapsed,) = evaluate(PixelMeans(data.spec), data, ["diversity"])
    assert (collapsed.value, collapsed.n) == (0, len(data.test))
    monkeypatch.setattr(
        PixelMeans,
        "sample",
        lambda self, n, do=None, seed=None: 0.5 * data.test.images[:n].flip(0) / 255,
    )
    assert evaluate(PixelMeans(data.spec), data, ["diversity"])[0].value == pytest.approx(0.5)
