"""An untrained CausalVAE on Pendulum and its default measurements."""

from __future__ import annotations

from typing import Any

import pytest

from intervae.data import Dataset
from intervae.evaluation import evaluate
from intervae.metrics.base import Measurement
from intervae.models.base import Model


@pytest.fixture(scope="session")
def model(make_model: Any, pendulum: Dataset) -> Model:
    return make_model("causal-vae", pendulum, seed=1)


@pytest.fixture(scope="session")
def measurements(model: Model, pendulum: Dataset) -> dict[str, Measurement]:
    return {m.metric: m for m in evaluate(model, pendulum)}
