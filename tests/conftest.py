"""Fixtures for all tests: tiny data and models, one thread."""

from __future__ import annotations

import os
import shutil
import signal
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from command import make_folder, train_tiny
from intervae.data import Dataset
from intervae.models import MODELS, Model
from intervae.testing import ModelCase
from intervae.testing.data import ramps as _make_data
from intervae.testing.data import simulated_images
from quick_settings import QUICK

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `gpu` needs a CUDA device."""
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.fixture(scope="session", autouse=True)
def initial_weights_answer() -> Iterator[None]:
    """Let models answer with their initial weights, which users may not ask; most tests do."""
    with mock.patch.object(Model, "check_trained", return_value=None):
        yield


@pytest.fixture(scope="session", autouse=True)
def signals_of_a_terminal() -> None:
    """Undo what `nohup` and jobs in the background ignore; tests send these signals."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGHUP", "SIGQUIT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


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
    """96 Pendulum images of 16 x 16 with their true graph and simulator."""
    return simulated_images()


@pytest.fixture(scope="session")
def make_data() -> Callable[..., Dataset]:
    """`make_data(shape, samples=, kinds=, seed=, frames=)`, see `intervae.testing.ramps`."""
    return _make_data


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """`make_model(name, data, **settings)`: a small model of that name."""

    def make(name: str, data: Dataset, **changes: Any) -> Model:
        case = ModelCase(MODELS[name], QUICK.get(name, lambda data: {}))
        return case.model(data, **changes)

    return make


# ---- folders and runs for tests of bad input ----------------------------------------------------
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
