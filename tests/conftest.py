"""Fixtures for all tests: tiny data, so that a whole training takes a fraction of a second, and one thread, as machines are shared."""

from __future__ import annotations

import os
import shutil
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command import make_folder, train_tiny
from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.simulators import Pendulum
from intervae.models import MODELS, Model, create

torch.set_num_threads(1)

# Of these a model takes what its Settings have, so that a newly registered model is quick without an entry of its own.
SMALL = {"dims": 2, "latents": 3, "channels": (8, 8), "patch": 4, "filters": 8, "hidden": 32, "mechanism_hidden": 8, "epochs": 2, "batch_size": 16}
# What a model needs beyond them: name -> function of the data.
QUICK: dict[str, Callable[[Dataset], dict[str, Any]]] = {
    "factor-vae": lambda _: {"discriminator_layers": 3, "discriminator_width": 16},
    "causal-vae": lambda data: {"graph": data.graph or "joint"},
    "info-gan": lambda _: {"noise": 4, "categories": (3,), "code_hidden": 8},
    "causal-gan": lambda data: {"graph": data.graph, "noise": 4, "controller_epochs": 2, "controller_batch": 16, "controller_batches": 1},
    "dc-ign": lambda data: {"latents": len(data.names) + 2, "group_size": 4},
    "causal-prior-vae": lambda _: {"widths": (16, 16), "restarts": 3, "first_epochs": 3, "trial_epochs": 1, "epochs": 2, "gate_steps": 4},
    "temporal-causal-prior-vae": lambda _: {"widths": (16,), "background_size": 2, "warm_up": 4, "refit_epochs": 1},
    "ct-vae": lambda _: {
        "features": 4,
        "codes": 8,
        "blocks": 1,
        "width": 8,
        "heads": 2,
        "edge_width": 4,
        "transition_epochs": 1,
        "transition_batch": 16,
        "likelihood": "bernoulli",
    },
    "cmcl": lambda data: {"latents": max(3, len(data.names)), "embedding": 4, "posterior_widths": (8,), "prior_widths": (8,), "graph_widths": (4,)},
    "mcq-vae": lambda _: {"features": 8, "codebooks": 2, "codes": 8, "blocks": 1, "likelihood": "bernoulli"},
    "vq-vae": lambda _: {"features": 4, "codes": 8, "blocks": 1, "likelihood": "bernoulli"},
    "ladder-vae": lambda _: {"latents": (4, 3, 2), "widths": (16, 12, 8)},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `gpu` needs a CUDA device."""
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.fixture
def exact_gpu() -> Iterator[None]:
    """Products of a GPU in full single precision, so that they can be compared with a CPU's."""
    switches = (torch.backends.cudnn, torch.backends.cuda.matmul)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of torch have a second name for it
        before = [switch.allow_tf32 for switch in switches]
        for switch in switches:
            switch.allow_tf32 = False
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value


@pytest.fixture(scope="session")
def pendulum() -> Dataset:
    """96 Pendulum pictures of 16 x 16 with their true graph and simulator."""
    return Pendulum().dataset(size=16, samples=96)


@pytest.fixture(scope="session")
def make_data() -> Callable[..., Dataset]:
    """`make_data(shape, samples=, kinds=, seed=, frames=)`, see `_make_data`."""
    return _make_data


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """`make_model(name, data, **settings)`: the smallest useful model of that name."""

    def make(name: str, data: Dataset, **changes: Any) -> Model:
        known = {f.name for f in fields(MODELS[name].Settings)}
        settings = {key: value for key, value in SMALL.items() if key in known}
        return create(name, data, **{**settings, **QUICK.get(name, lambda _: {})(data), **changes})

    return make


def _make_data(
    shape: tuple[int, int, int] = (1, 16, 16),
    *,
    samples: int = 64,
    kinds: tuple[str, ...] = ("continuous", "continuous", "continuous"),
    seed: int = 0,
    frames: int | None = None,
) -> Dataset:
    """Pictures of any (channels, height, width) that show the chain a -> b -> c: brightness, a horizontal and a vertical ramp.

    With `frames` they are clips in which the picture moves to the right by a pixel per frame.
    """
    rng = np.random.default_rng(seed)
    names = "abcdefgh"[: len(kinds)]
    table = np.zeros((samples, len(kinds)))
    for i, kind in enumerate(kinds):
        value = rng.normal(size=samples) + (0.8 * table[:, i - 1] if i else 0.0)
        table[:, i] = value > np.median(value) if kind == "binary" else value
    channels, height, width = shape
    ramps = [
        np.ones((height, width)),
        np.linspace(-1, 1, width)[None, :] * np.ones((height, 1)),
        np.linspace(-1, 1, height)[:, None] * np.ones((1, width)),
    ]
    brightness = sum(table[:, i, None, None] * ramps[i % 3] for i in range(len(kinds)))
    strength = np.linspace(1, 0.5, channels)[None, :, None, None]
    images = (255 / (1 + np.exp(-brightness[:, None] * strength))).astype(np.uint8)
    if frames is not None:
        images = np.stack([np.roll(images, t, axis=-1) for t in range(frames)], axis=1)
    variables = [Variable(name, kind) for name, kind in zip(names, kinds, strict=True)]  # type: ignore[arg-type]
    graph = CausalGraph.from_edges(names, pairwise(names))
    return build_dataset("made", images, table, variables, seed=seed, graph=graph, source={"name": "made"})


# ---- what the tests of bad input break ------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("good") / "mine")


@pytest.fixture
def folder(good_folder: Path, tmp_path: Path) -> Path:
    """80 pictures with a labels.csv of `level` and `width`, to be broken."""
    return Path(shutil.copytree(good_folder, tmp_path / "mine"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be changed."""
    return train_tiny(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run of the test's own."""
    return Path(shutil.copytree(finished, tmp_path / "run"))
