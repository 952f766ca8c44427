"""Python calls with arguments of the wrong kind: one of our errors, never one from inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae
from intervae.data import Dataset
from intervae.errors import IntervaeError, RunError
from intervae.models import Model

NOT_DATA = {
    "None": lambda data: None,
    "split": lambda data: data.train,
    "spec": lambda data: data.spec,
    "name": lambda data: "pendulum",
    "number": lambda data: 3,
    "array": lambda data: np.zeros((3, 3)),
    "list": lambda data: [1],
    "graph": lambda data: data.graph,
    "object": lambda data: object(),
}
SEEDS: list[Any] = [2**63, 2**64, 2**200, "a", -1, 1.5, True, [1], float("nan")]
PATHS: list[Any] = [3, [1], b"x", {}, "a\0b", "", "x" * 5000, object(), True]
DEVICES: list[Any] = [3, -1, None, [1], "quantum", "meta", "", "cuda:99", b"cpu", 1.5, "hpu"]
VARIABLES: list[Any] = [3, "light", [3], [None], [["light"]], object(), True, ["light", "light"]]
SHAPE = (2, 3, 16, 16)
TENSORS: dict[str, Callable[[], Any]] = {
    "sparse": lambda: torch.zeros(SHAPE).to_sparse(),
    "meta": lambda: torch.zeros(SHAPE, device="meta"),
    "complex": lambda: torch.zeros(SHAPE, dtype=torch.complex64),
    "None": lambda: None,
    "text": lambda: "x",
    "object": object,
    "ragged": lambda: [[1], [1, 2]],
    "texts": lambda: np.array(["a"]),
    "objects": lambda: np.array([object()], dtype=object),
}
DOS: list[Any] = [
    "light=3",
    3,
    ["light"],
    {"light": None},
    {"light": "a"},
    {3: 3.0},
    {None: 1.0},
    lambda value: value,
    {"light": lambda: 3},
    {"light": lambda value: 1 / 0},
    {"light": lambda value: "x"},
    {"light": float("nan")},
    {"light": 10**400},
    {"light": torch.zeros(2, device="meta")},
]


@pytest.fixture(scope="module")
def model(pendulum: Dataset) -> Model:
    return intervae.create("causal-vae", pendulum, graph=pendulum.graph, **SETTINGS)


SETTINGS: dict[str, Any] = {"channels": (8, 8), "hidden": 32, "batch_size": 16, "epochs": 1}


def refuses(call: Callable[[], Any]) -> str:
    """Assert one of our errors of a single line; return its text."""
    with pytest.raises(IntervaeError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?")), text
    return text


@pytest.mark.parametrize("kind", NOT_DATA)
def test_what_is_no_data_or_model_is_refused(kind: str, pendulum: Dataset, model: Model) -> None:
    odd = NOT_DATA[kind](pendulum)
    assert "data must be a Dataset" in refuses(lambda: intervae.create("vae", odd))
    assert "data must be a Dataset" in refuses(lambda: intervae.fit(model, odd))
    assert "data must be a Dataset" in refuses(lambda: intervae.evaluate(model, odd))
    assert "model must be a model" in refuses(lambda: intervae.fit(odd, pendulum))
    assert "model must be a model" in refuses(lambda: intervae.evaluate(odd, pendulum))
    assert "model must be a model" in refuses(lambda: intervae.heat_map(odd, None, "light"))
    refuses(lambda: intervae.load(odd))
    refuses(lambda: intervae.discover(odd))
    if kind != "spec":
        assert "data.spec" in refuses(lambda: intervae.MODELS["vae"](odd))


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
def test_odd_seeds_and_counts_are_refused(seed: Any, pendulum: Dataset, model: Model) -> None:
    assert "seed=" in refuses(lambda: intervae.create("vae", pendulum, seed=seed))
    assert "seed=" in refuses(lambda: model.fit(pendulum, seed=seed))
    assert "seed=" in refuses(lambda: model.sample(2, seed=seed))
    labels = pendulum.train.labels
    assert "seed=" in refuses(lambda: intervae.discover(labels, "notears", seed=seed))
    refuses(lambda: model.sample(seed))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: repr(path)[:12])
def test_odd_paths_are_refused(path: Any, pendulum: Dataset, model: Model) -> None:
    refuses(lambda: model.fit(pendulum, out=path))
    refuses(lambda: model.save(path))
    refuses(lambda: intervae.load(path))
    refuses(lambda: intervae.load_data(path))


@pytest.mark.parametrize("device", DEVICES, ids=repr)
def test_odd_devices_are_refused(
    device: Any, pendulum: Dataset, model: Model, finished: Path
) -> None:
    assert "device" in refuses(lambda: model.fit(pendulum, device=device))
    assert "device" in refuses(lambda: intervae.load(finished, device))


@pytest.mark.parametrize("variables", VARIABLES, ids=lambda each: repr(each)[:12])
def test_odd_variables_are_refused(variables: Any, pendulum: Dataset) -> None:
    options = {"samples": 50, "size": 8, "variables": variables}
    refuses(lambda: intervae.load_data("pendulum", **options))
    if variables != ["light", "light"]:
        refuses(lambda: pendulum.select(variables))


@pytest.mark.parametrize("kind", TENSORS)
def test_odd_tensors_are_refused(kind: str, model: Model) -> None:
    odd = TENSORS[kind]()
    refuses(lambda: model.encode(odd))
    refuses(lambda: model.decode(odd))
    refuses(lambda: model.counterfactual(odd, {"light": 10.0}))
    refuses(lambda: intervae.discover(odd))
    refuses(lambda: intervae.build_dataset("x", odd, np.zeros((2, 0)), []))
    refuses(lambda: intervae.load_data(odd))


@pytest.mark.parametrize("do", DOS, ids=lambda do: repr(do)[:24])
def test_odd_interventions_are_refused(do: Any, pendulum: Dataset, model: Model) -> None:
    refuses(lambda: model.counterfactual(pendulum.test.images[:2], do))


@pytest.mark.parametrize(
    "options",
    [{"size": 10**9}, {"samples": 10**12}, {"samples": "x"}, {"size": [1, 2, 3]}, {"kinds": 3}],
    ids=repr,
)
def test_odd_options_of_data_are_refused(options: dict[str, Any]) -> None:
    refuses(lambda: intervae.load_data("pendulum", **{"samples": 50, "size": 8, **options}))


def test_other_odd_arguments_are_refused(pendulum: Dataset, model: Model) -> None:
    for metrics in (3, "mic", [3]):
        refuses(lambda metrics=metrics: intervae.evaluate(model, pendulum, metrics))
    for name in (None, 3, ["vae"], "", b"vae"):
        refuses(lambda name=name: intervae.create(name, pendulum))
        refuses(lambda name=name: intervae.discover(pendulum.train.labels, name))
    for option in ({"resume": "x"}, {"overwrite": 3}, {"progress": "maybe"}, {"precision": 3}):
        refuses(lambda option=option: model.fit(pendulum, **option))
    text = refuses(lambda: intervae.create("causal-vae", pendulum, hidden=10**12))
    assert "does not fit into memory" in text


# ---- config.json ---------------------------------------------------------------------------------
DAMAGE: list[tuple[tuple[Any, ...], Any, str]] = [
    (("model",), 3, "field 'model' is 3; expected the name of a model"),
    (("settings",), [1], r"field 'settings' is \[1\]; expected an object of settings"),
    (("spec",), None, "field 'spec' is None; expected an object"),
    (("graph",), [], "field 'graph' is .*; expected an object with variables and edges"),
    (("spec", "image_shape"), [3, 16], "field 'spec.image_shape' .* three whole numbers"),
    (("spec", "image_shape"), "3x16", "field 'spec.image_shape'"),
    (("spec", "image_shape", 0), -3, "field 'spec.image_shape'"),
    (("spec", "variables"), {"a": 1}, "field 'spec.variables' .* a list of objects"),
    (("spec", "variables", 1), "light", "field 'spec.variables'"),
    (("spec", "variables", 1, "kind"), "odd", r"'spec.variables\[1\].kind' is 'odd'; expected con"),
    (("spec", "variables", 1, "mean"), "0", r"'spec.variables\[1\].mean' is '0'; expected a num"),
    (("spec", "variables", 1, "name"), 7, r"'spec.variables\[1\].name' is 7; expected a text"),
    (("spec", "variables", 1, "more"), 7, r"'spec.variables\[1\].more' is not known"),
    (("spec", "frames"), "6", "field 'spec.frames' is '6'; expected null or a whole number"),
    (("spec", "actions"), "up", "field 'spec.actions' is 'up'; expected a list of texts"),
    (("format",), 99, "has format 99; this version of intervae reads format 1"),
]


@pytest.mark.parametrize(("path", "value", "words"), DAMAGE, ids=lambda item: str(item)[:30])
def test_damaged_config_names_the_field_and_what_was_expected(
    path: tuple[Any, ...], value: Any, words: str, run: Path
) -> None:
    config = json.loads((run / "config.json").read_text())
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=words) as caught:
        intervae.load(run)
    assert str(run / "config.json") in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "3", "null", '"x"', "{}", '{"model": "vae"}'])
def test_config_of_another_kind_is_refused(content: str, run: Path) -> None:
    (run / "config.json").write_text(content)
    with pytest.raises(RunError, match="expected an object with model and spec"):
        intervae.load(run)
