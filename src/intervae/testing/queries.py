"""Checks of queries: valid input, invalid input, and do()."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import SkipTest

import numpy as np
import torch

from intervae.data import Dataset
from intervae.errors import MissingQueryError, QueryError
from intervae.models import MODELS
from intervae.models.base import Model
from intervae.models.capabilities import (
    Counterfactual,
    HasGraph,
    Intervention,
    Likelihood,
    MeasuresVariables,
    TableLinks,
    Temporal,
    Transition,
    Traversal,
)
from intervae.models.causal import CausalModel
from intervae.models.checks import QUERIES
from intervae.testing.case import ModelCase, assert_raises


# ---- input -------------------------------------------------------------------------------------
def check_image_types(case: ModelCase) -> None:
    """Images may be bytes, floats, arrays, or a single one."""
    data = case.data((3, 16, 16))
    model, images = case.model(data), data.test.images[:4]
    expected = model.encode(images)
    assert torch.equal(expected, model.encode(images.float() / 255))
    read_only = images.numpy().copy()
    read_only.setflags(write=False)
    assert torch.equal(expected, model.encode(read_only))
    flipped_twice = np.flip(np.flip(images.numpy(), 3).copy(), 3)  # negative strides
    assert torch.equal(expected, model.encode(flipped_twice))
    assert model.encode(images[0]).shape[0] == 1
    assert torch.allclose(model.encode(images[0])[0], expected[0], atol=1e-5)


def check_many_images(case: ModelCase) -> None:
    """Queries on more images than one chunk give the same answer for each."""
    data = case.data((1, 8, 8))
    model = case.model(data)
    images = data.test.images[:1].expand(600, *data.test.shape[1:])
    latents = model.encode(images)
    assert latents.shape[0] == model.decode(latents).shape[0] == 600
    assert torch.allclose(latents, latents[:1].expand_as(latents), atol=1e-5)


def check_wrong_images(case: ModelCase) -> None:
    """Wrong images raise an error of one sentence."""
    data = case.data((3, 16, 20))
    model = case.model(data)
    queries: list[Callable[[Any], Any]] = [model.encode, model.reconstruct]
    if hasattr(model, "counterfactual"):
        queries.append(lambda images: model.counterfactual(images, {}))
    for images, words in _wrong_images(data.train.shape[1:]):
        for query in queries:
            assert_raises(QueryError, words, lambda: query(images))  # noqa: B023


def _wrong_images(shape: tuple[int, ...]) -> Iterator[tuple[Any, str]]:
    good = torch.full((2, *shape), 0.5)
    nan, infinite, high, low = good.clone(), good.clone(), good.clone(), good.clone()
    nan[1, 0, 2, 3], infinite[0, 0, 0, 0] = float("nan"), float("-inf")
    high[0, 0, 1, 1], low[1, 0, 1, 1] = 1.5, -0.1
    yield from (
        (nan, "NaN"),
        (infinite, "NaN or infinite"),
        (high, r"\[0, 1\].*1\.5.*255"),
        (low, r"\[0, 1\]"),
        (high.numpy(), r"\[0, 1\]"),
        (good.movedim(1, -1), "resize or transpose"),
        (good[..., :-1], "resize"),
        (good[0, 0], "shape"),
        (good[None], "shape"),
        (good[:0], "no images"),
        ("no-such-picture.png", "does not exist" if len(shape) == 3 else "not an array"),
        (None, "not an array"),
        ([[1, 2], [3]], "not an array"),
    )


def check_empty_sample(case: ModelCase) -> None:
    """sample(0) raises an error."""
    model = case.model(case.data())
    assert_raises(QueryError, "one at least", lambda: model.sample(0))


# ---- capabilities ------------------------------------------------------------------------------
def query_calls(model: Model, data: Dataset) -> dict[str, Callable[[], Any]]:
    """Return a call of every query with arguments that suit a model of this data."""
    images, labels = data.test.images[:4], data.test.labels[:4]
    action = data.actions[0] if data.actions else "jump"
    return {
        "encode": lambda: model.encode(images),
        "decode": lambda: model.decode(model.encode(images)),
        "sample": lambda: model.sample(2, seed=0),
        "graph": lambda: model.graph,
        "measure": lambda: model.measure(images),
        "intervene": lambda: model.intervene(model.encode(images), {model.graph.names[0]: 1.0}),
        "counterfactual": lambda: model.counterfactual(images, {model.graph.names[0]: 1.0}),
        "act": lambda: model.act(images, action),
        "act_repeatedly": lambda: model.act_repeatedly(images, action, 2),
        "attribute": lambda: model.attribute(images, images),
        "explain": lambda: model.explain(images, images),
        "best_explanation": lambda: model.best_explanation(images, images),
        "mechanism": lambda: model.mechanism(0, model.encode(images)),
        "action_mechanism": lambda: model.action_mechanism(images, action),
        "effect_curve": lambda: model.effect_curve(model.latent_names[0], {}),
        "label_influence": lambda: model.label_influence(images, labels),
        "traverse": lambda: model.traverse(torch.zeros(2, len(model.latent_names))),
        "extrapolate": lambda: model.extrapolate(images, 2),
        "latents_over_time": lambda: model.latents_over_time(images, {model.latent_names[0]: 1.0}),
        "log_weights": lambda: model.log_weights(images, labels, 2, torch.Generator()),
    }


def check_queries(case: ModelCase) -> None:
    """hasattr(model, query) is true exactly where the call works."""
    data = case.data()
    model = case.model(data)
    calls = query_calls(model, data)
    assert set(calls) == set(QUERIES)
    for query, call in calls.items():
        if hasattr(model, query):
            assert call() is not None, query
            continue
        words = rf"^{case.cls.name} cannot answer {query}\(\)"
        text = assert_raises(MissingQueryError, words, lambda: getattr(model, query))  # noqa: B023
        able = [name for name, cls in MODELS.items() if hasattr(cls, query)]
        assert all(name in text for name in able or ["none yet"])


def check_protocols(case: ModelCase) -> None:
    """The protocols of models.capabilities agree with the queries of the model."""
    model = case.model(case.data())
    for protocol, query in (
        (HasGraph, "graph"),
        (MeasuresVariables, "measure"),
        (Intervention, "intervene"),
        (Counterfactual, "counterfactual"),
        (Transition, "act"),
        (Traversal, "traverse"),
        (Temporal, "extrapolate"),
        (Temporal, "latents_over_time"),
        (Likelihood, "log_weights"),
        (TableLinks, "effect_curve"),
    ):
        assert isinstance(model, protocol) == hasattr(model, query), query


def check_description(case: ModelCase) -> None:
    """The repr names the model, its state and an example that runs."""
    data = case.data()
    model = case.model(data)
    text = repr(model)
    assert text.startswith(f"{case.cls.name}: {case.cls.title}")
    assert "not trained" in text
    assert "<table>" in model._repr_html_()
    example = text.splitlines()[-1].split("example")[1].split("=", 1)[1].strip()
    query = example.removeprefix("model.").split("(")[0]
    assert hasattr(model, query), example


# ---- do() --------------------------------------------------------------------------------------
def _trained(case: ModelCase) -> tuple[CausalModel, Dataset]:
    if not issubclass(case.cls, CausalModel):
        raise SkipTest(f"{case.cls.name} is no CausalModel")
    data = case.simulated()
    model = case.model(data)
    model.fit(data)
    assert isinstance(model, CausalModel)
    return model, data


def check_non_descendants(case: ModelCase) -> None:
    """do() leaves every variable that is no descendant bit-equal."""
    model, data = _trained(case)
    latents = model.encode(data.test.images)
    for acted in model.latent_names:
        after = model.intervene(latents, {acted: 12.5})
        affected = {acted, *model.graph.descendants(acted)}
        for i, name in enumerate(model.latent_names):
            same = torch.equal(after[:, i], latents[:, i])
            assert same == (name not in affected), (acted, name)


def check_do_sets_values(case: ModelCase) -> None:
    """do() sets a number, or one per sample, that to_units() reads back."""
    model, data = _trained(case)
    latents = model.encode(data.test.images)
    values = np.linspace(-20, 20, len(latents))
    for i, acted in enumerate(model.latent_names):
        for do, expected in ((5.0, np.full(len(latents), 5.0)), (values, values)):
            measured = model.to_units(i, model.intervene(latents, {acted: do})[:, i])
            assert np.allclose(measured.cpu().numpy(), expected, atol=1e-3), acted


def check_units(case: ModelCase) -> None:
    """A latent named after a label has the label's units, any other the latent's."""
    model, data = _trained(case)
    latents = model.encode(data.test.images)
    for i, acted in enumerate(model.latent_names):
        is_label = acted in model.spec.names and not model.anonymous_latents
        after = model.intervene(latents, {acted: 12.5})[:, i]
        expected = model.spec.variable(acted).normalise(12.5) if is_label else 12.5
        assert torch.allclose(after, torch.full_like(after, expected), rtol=1e-4), acted
        value = model.to_units(i, after)
        assert torch.allclose(value, torch.full_like(value, 12.5), rtol=1e-4), acted


def check_wrong_do(case: ModelCase) -> None:
    """A wrong do() raises an error of one sentence."""
    model, data = _trained(case)
    images, first = data.test.images[:3], model.latent_names[0]
    similar = "light" if "light" in model.latent_names else first
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"lihgt": 3.0}, f"lihgt.*{similar}"),
        ({first: float("nan")}, "finite"),
        ({first: [1.0, 2.0]}, "2 values for 3"),
        ({first: "far"}, "number"),
    )
    for do, words in wrong:
        assert_raises(QueryError, words, lambda: model.counterfactual(images, do))  # noqa: B023
        assert_raises(QueryError, words, lambda: model.sample(3, do))  # noqa: B023
