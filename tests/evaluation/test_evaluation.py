"""`evaluate` picks the metrics that apply, and raises or reports those that do not."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

import intervae as package
from intervae import metrics
from intervae.data import Dataset
from intervae.errors import DataError, UsageError
from intervae.evaluation import METRICS, Metric, evaluate, register_metric
from intervae.evaluation.context import Context
from intervae.metrics.base import Measurement
from intervae.models import MODELS
from intervae.models.base import Model
from pixel_means import PixelMeans

ELSEWHERE = (
    "actions",  # needs transitions: tests/models/ct_vae/test_ct_vae.py
    "heat_map",  # needs masks: tests/models/test_heat_maps.py
    "object_layers",  # needs layers: tests/models/causal_vae/test_layers.py
)
MEASURED_HERE = [name for name in METRICS if name not in ELSEWHERE]
DEFAULT = {name for name in MEASURED_HERE if not METRICS[name].on_request}


def test_by_default_all_applicable_metrics_are_measured(
    measurements: dict[str, Measurement],
) -> None:
    expected = {
        "r2_min",
        "reconstruction_pixel_mae",
        "mic",
        "tic",
        "mic_best_dim",
        "tic_best_dim",
        "counterfactual_pixel_mae",
        "identity_pixel_mae",
    }
    expected |= {
        "counterfactual_psnr",
        "counterfactual_ssim",
        "counterfactual_variable_error",
        "nondescendant_movement",
        "outside_mask_mae",
        "changed_outside_share",
        "reader_r2_min",
    }
    expected |= {
        "nondescendant_latent_movement",
        "shd",
        "tpr",
        "fpr",
        "fdr",
        "elbo",
        "log_likelihood",
        "active_units",
        "mig",
        "sap",
        "irs",
        "mcc",
    }
    expected |= {"dci_disentanglement", "dci_completeness", "dci_informativeness"}
    assert set(measurements) == expected


def test_outside_mask_needs_a_simulator_that_names_its_objects(
    model: Model, pendulum: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {m.metric: m for m in evaluate(model, pendulum, ["outside_mask"])}
    error, share = measured["outside_mask_mae"], measured["changed_outside_share"]
    assert error.value > 0.1  # an untrained model
    assert share.value > 0.5
    for m in (error, share):
        assert m.parameters["doing_nothing"]["value"] == 0
        # an untrained decoder answers every do() about as it reconstructs
        assert m.parameters["reconstruction"]["value"] == pytest.approx(m.value, rel=0.1)
    monkeypatch.setattr(type(pendulum.simulator), "objects", {})
    with pytest.raises(UsageError, match="needs data with a simulator that names its objects"):
        evaluate(model, pendulum, ["outside_mask"])
    assert not set(measured) & {m.metric for m in evaluate(model, pendulum)}


@pytest.mark.parametrize("name", MEASURED_HERE)
def test_every_metric_is_finite_and_serialisable(
    name: str, model: Model, pendulum: Dataset
) -> None:
    measured = evaluate(model, pendulum, [name, name])
    assert len({m.metric for m in measured}) == len(measured) > 0  # named twice, measured once
    for m in measured:
        assert math.isfinite(m.value)
        assert all(math.isfinite(value) for value in m.per_variable.values())
        assert m.n > 0
        assert json.loads(json.dumps(m.to_json(), allow_nan=False))["metric"] == m.metric


def test_no_two_entries_measure_the_same_metric(model: Model, pendulum: Dataset) -> None:
    measured = [m.metric for m in evaluate(model, pendulum, MEASURED_HERE)]
    assert len(set(measured)) == len(measured)


def test_unknown_and_inapplicable_metrics_raise_before_measuring(
    model: Model, make_data: Any, pendulum: Dataset
) -> None:
    with pytest.raises(UsageError, match="unknown metric 'mick'; did you mean 'mic'"):
        evaluate(model, pendulum, ["r2", "mick"])
    data = make_data()
    expected = "'counterfactual' does not apply to pixel-means on made: it needs data with a simu"
    with pytest.raises(UsageError, match=expected):
        evaluate(PixelMeans(data.spec), data, ["counterfactual"])


def test_a_default_metric_that_fails_is_reported_and_skipped(
    model: Model, pendulum: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(context: Any) -> Any:
        raise DataError("one class only.")

    # A registry of its own: entries deleted and restored would change the order for other tests.
    two = METRICS.copy()
    for name in DEFAULT - {"r2", "mig"}:
        del two[name]
    two["mig"] = Metric("", "", lambda _: True, fails)
    monkeypatch.setattr("intervae.evaluation.METRICS", two)
    messages: list[str] = []
    assert [m.metric for m in evaluate(model, pendulum, notify=messages.append)] == ["r2_min"]
    assert messages == ["mig left out: one class only."]
    with pytest.raises(DataError, match="one class only"):
        evaluate(model, pendulum, ["mig"], notify=messages.append)


def test_a_registered_metric_is_measured(model: Model, pendulum: Dataset) -> None:
    def count(context: Context) -> list[Measurement]:
        return [Measurement("images", len(context.data.test), 1)]

    metric = Metric("number of test images", "nothing", lambda _: True, count, on_request=True)
    register_metric("images", metric)
    try:
        (measured,) = evaluate(model, pendulum, ["images"])
        assert (measured.metric, measured.value) == ("images", len(pendulum.test))
        with pytest.raises(UsageError, match="a metric called 'images' is already registered"):
            register_metric("images", metric)
    finally:
        del METRICS["images"]


@pytest.mark.parametrize("cls", [cls for cls in MODELS.values() if hasattr(cls, "log_weights")])
def test_models_with_log_weights_describe_their_likelihood(cls: Any) -> None:
    assert re.match(r"(Conditional l|L)ikelihood p\(x( \| u)?\): ", cls.likelihood_description)


def test_metrics_are_exported(model: Model, pendulum: Dataset) -> None:
    assert package.evaluate is evaluate
    assert set(metrics.__all__) >= {
        "counterfactual_errors",
        "likelihood_bounds",
        "action_accuracy",
        "ssim",
        "composition",
        "simulator_regressor",
    }
    for name in metrics.__all__:
        assert callable(getattr(metrics, name))
