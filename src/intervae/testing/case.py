"""A model class under test: small models and small data that suit it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from intervae.data import Batch, Dataset
from intervae.models.base import Model
from intervae.testing.data import ramps, random_pairs, simulated_clips, simulated_images

# a model gets those that its Settings have
SMALL_SETTINGS: dict[str, Any] = {
    "dims": 2,
    "latents": 3,
    "channels": (8, 8),
    "patch": 4,
    "filters": 8,
    "hidden": 32,
    "mechanism_hidden": 8,
    "epochs": 2,
    "batch_size": 16,
}


@dataclass(frozen=True)
class ModelCase:
    """A model class under test.

    Arguments:
        cls: the class.
        settings: data -> settings of a small model, beyond those of `SMALL_SETTINGS`.
        batch_terms: names of loss terms that are statistics of the batch, not means over samples.
    """

    cls: type[Model]
    settings: Callable[[Dataset], Mapping[str, Any]] = lambda data: {}
    batch_terms: frozenset[str] = frozenset()

    def model(self, data: Dataset, *, seed: int = 0, **changes: Any) -> Model:
        """Return a small model for the data with its initial weights, which answers queries."""
        small = {key: value for key, value in SMALL_SETTINGS.items() if key in self._fields}
        model = self.cls(data.spec, seed=seed, **{**small, **self.settings(data), **changes})
        return model.train().eval()

    def epochs(self, number: int) -> dict[str, int]:
        """Return the setting of the number of epochs, if the model has one."""
        return {"epochs": number} if "epochs" in self._fields else {}

    @property
    def _fields(self) -> set[str]:
        return {field.name for field in fields(self.cls.Settings)}

    def data(self, shape: tuple[int, int, int] = (1, 16, 16), **options: Any) -> Dataset:
        """Return images of a shape; clips or pairs of images if the model takes those."""
        if self.cls.takes_clips:
            options = {"frames": 3, **options}
        return self._with_pairs(ramps(shape, **options))

    def simulated(self) -> Dataset:
        """Return data of a simulator, whose labels are far from standardised."""
        return self._with_pairs(simulated_clips() if self.cls.takes_clips else simulated_images())

    def _with_pairs(self, data: Dataset) -> Dataset:
        return random_pairs(data) if hasattr(self.cls, "attribute") else data


# ---- helpers of checks -------------------------------------------------------------------------
def first_batch(data: Dataset, rows: Any = slice(0, 8)) -> Batch:
    """Return rows of the training split as a batch at step 0."""
    batch = data.train.batch(torch.arange(len(data.train))[rows].to(data.train.device))
    return {**batch, "step": torch.zeros((), device=data.train.device)}


def state_of(model: Model) -> dict[str, Tensor]:
    """Return a copy of all tensors of a model."""
    return {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}


def assert_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> None:
    """Assert that two mappings hold the same tensors, bit for bit."""
    assert first.keys() == second.keys()
    for key in first:
        assert torch.equal(first[key].cpu(), second[key].cpu()), key


def assert_close(value: float, expected: float, *, tolerance: float, what: str = "") -> None:
    """Assert equality up to a tolerance, relative and absolute."""
    close = math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance)
    assert close, f"{what}: {value} is not {expected}"


def assert_raises(kind: type[BaseException], words: str, call: Callable[[], Any]) -> str:
    """Assert that a call raises an error whose text matches `words`; return the text."""
    text = None
    try:
        call()
    except kind as error:
        text = str(error)
    assert text is not None, f"the call did not raise {kind.__name__} ({words})"
    assert re.search(words, text), f"{text!r} does not match {words!r}"
    return text


def without_seconds(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the history of a run without its times."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in history]


@contextmanager
def no_noise() -> Iterator[None]:
    """Replace random draws by constants, so that a loss is a function of its batch."""

    def constant(value: float) -> Callable[..., Tensor]:
        def draw(*size: Any, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
            shape = size if isinstance(size[0], int) else tuple(size[0])
            return torch.full(shape, value, dtype=dtype, device=device)

        return draw

    with (
        patch.object(torch, "randn", constant(0.0)),
        patch.object(torch, "rand", constant(0.25)),
        patch.object(torch, "randn_like", lambda like, **_: torch.zeros_like(like)),
        patch.object(torch, "rand_like", lambda like, **_: torch.full_like(like, 0.25)),
    ):
        yield
