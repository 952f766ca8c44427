"""A model that was never trained refuses queries about pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intervae import create, load
from intervae.data import Dataset
from intervae.errors import QueryError
from intervae.models.base import Model

CHECK = Model.check_trained  # imported before the tests replace it

SMALL = {"channels": (8, 8), "hidden": 16, "batch_size": 16, "epochs": 1}


@pytest.fixture(autouse=True)
def real_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "check_trained", CHECK)


def test_untrained_models_refuse_and_trained_ones_answer(
    make_data: Callable[..., Dataset], tmp_path: Path
) -> None:
    data = make_data()
    first = data.names[0]
    edges = [(first, data.names[1])]
    model: Any = create("causal-vae", data, graph=edges, **SMALL)
    images = data.test.images[:2]
    queries = {
        "counterfactual": lambda m: m.counterfactual(images, {first: 1.0}),
        "measure": lambda m: m.measure(images),
        "sample": lambda m: m.sample(2, seed=0),
    }
    for query in queries.values():
        with pytest.raises(QueryError, match=r"this causal-vae is not trained.*fit\(data\)"):
            query(model)
    model.encode(images)  # initial weights may be looked at
    model.fit(data, out=tmp_path / "run", tensorboard=False, progress=False)
    loaded = load(tmp_path / "run")
    for query in queries.values():
        assert len(query(model)) == len(query(loaded)) == 2


def test_other_models_refuse_too(make_data: Callable[..., Dataset]) -> None:
    data = make_data()
    images = data.test.images[:2]
    for name in ("deep-scm", "cmcl", "vae", "condition-vae", "causal-prior-vae"):
        model: Any = create(name, data)
        with pytest.raises(QueryError, match="is not trained"):
            model.sample(2)
        if hasattr(model, "counterfactual"):
            with pytest.raises(QueryError, match="is not trained"):
                model.counterfactual(images, {model.graph.names[0]: 0.0})
