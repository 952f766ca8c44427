"""Registration of the simulators and of the readers of published files."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from intervae.data.dataset import Dataset
from intervae.data.registry import Loader, register
from intervae.errors import UsageError


def _simulator(class_name: str) -> Callable[[], Loader]:
    """Return a function that opens the loader of a simulator."""

    def open_simulator() -> Loader:
        from intervae.data import simulators

        simulator = getattr(simulators, class_name)()

        @functools.wraps(simulator.dataset)
        def load(**options: Any) -> Dataset:
            if not isinstance(options.get("size", 0), int):
                raise UsageError(
                    f"size={options['size']}: {simulator.name!r} is drawn square; give one number."
                )
            return simulator.dataset(**options)

        return load

    return open_simulator


def _reader(function: str, module: str = "") -> Callable[[], Loader]:
    """Return a function that opens the reader `function` of `readers/<module>.py`."""
    name = f"intervae.data.readers.{module or function}"
    return lambda: getattr(importlib.import_module(name), function)


SIMULATED = {
    "pendulum": (
        "Pendulum",
        "a pendulum, a light and the shadow: 4 variables, true graph and counterfactuals",
    ),
    "flow": (
        "Flow",
        "water flowing from a glass with a ball in it: 4 variables, true graph and counterfactuals",
    ),
    "garden": (
        "Garden",
        "a cloud before the sun, a poplar and a balloon before a brick wall: 5 variables, "
        "occlusion, texture, true graph and counterfactuals",
    ),
    "bowl": (
        "Bowl",
        "white discs that grow with the square of their distance from the middle: 3 variables, "
        "true graph and counterfactuals",
    ),
    "cross-modal": (
        "CrossModal",
        "images of latents that cause, or are caused by, table columns (CMCL): true graph and "
        "counterfactuals",
    ),
    "motion": (
        "Motion",
        "short clips of a moving sprite over backgrounds: a position per frame, true graph and "
        "counterfactuals",
    ),
    "parabola": (
        "Parabola",
        "76,800 white ovals whose height is the square of their position: 4 variables, true graph "
        "and counterfactuals",
    ),
    "shapes3d-like": (
        "Shapes3d",
        "a rendered room with an object, the six factors of 3D Shapes: a grid of 480,000 images "
        "and counterfactuals",
    ),
    "spring": (
        "Spring",
        "short clips of two sprites joined by a spring: two positions per frame, true graph and "
        "counterfactuals",
    ),
    "xray-like": (
        "XRay",
        "rendered chests with an opacity that a binary column causes, or that causes it (CMCL): "
        "true graph, counterfactuals and masks",
    ),
}
PUBLISHED = {
    "dsprites": (
        _reader("dsprites"),
        "2D shapes on a complete grid of 5 factors, 737,280 black-and-white images; a grid that we "
        "rendered again where the original file is missing",
    ),
    "celeba": (
        _reader("celeba"),
        "aligned faces with the CausalVAE label sets smile (true graph) and beard, "
        "or any of 40 attributes",
    ),
    "covid-cxr": (
        _reader("covid_cxr"),
        "577 chest X-rays with and without COVID-19 and the patients' table, split by patient",
    ),
    "mnist": (_reader("mnist"), "70,000 handwritten digits, published test split"),
    "mnist-rotation": (
        _reader("mnist_rotation", "mnist_moved"),
        "ten MNIST digits rotated by a table column (CMCL): true graph and counterfactuals",
    ),
    "mnist-shift": (
        _reader("mnist_shift", "mnist_moved"),
        "ten MNIST digits shifted by a table column (CMCL): true graph and counterfactuals",
    ),
    "morpho-mnist": (
        _reader("morpho_mnist"),
        "MNIST digits whose thickness causes their intensity (DeepSCM): 3 variables or 4, true "
        "graph and counterfactuals",
    ),
    "omniglot": (_reader("omniglot"), "32,460 drawings of characters from 50 alphabets"),
    "norb": (
        _reader("norb"),
        "small NORB: toys under varied viewpoints and lighting, 4 factors, published test split",
    ),
    "sprites": (
        _reader("sprites"),
        "clips of 1,296 game characters in 9 sequences (Li and Mandt 2018), "
        "the paper's held-out characters as test split",
    ),
    "sprites-frames": (
        _reader("sprites_frames"),
        "single frames of those clips, 93,312 images on a complete grid of 7 factors",
    ),
    "sprites-reed": (
        _reader("sprites_reed"),
        "119,616 frames of 672 game characters, 10 factors (Reed et al. 2015)",
    ),
    "cars3d": (
        _reader("cars3d"),
        "183 cars from 24 azimuths and 4 elevations, 17,568 images on a complete grid of 3 factors",
    ),
    "shapes3d": (
        _reader("shapes3d"),
        "3D Shapes: a room with an object, 480,000 images on a complete grid of 6 factors",
    ),
}

for _name, (_class_name, _description) in SIMULATED.items():
    register(_name, _description, "nothing", _simulator(_class_name))
for _name, (_open_loader, _description) in PUBLISHED.items():
    register(_name, _description, "files below INTERVAE_DATA: docs/datasets.md", _open_loader)
