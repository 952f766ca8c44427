"""A toy model with two parameters, `first` and `second`, whose phases the tests define."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intervae.data import Batch, Dataset, Variable, build_dataset
from intervae.models import MODELS, Model
from intervae.models.phases import Phase, Player
from intervae.training import loop


@dataclass(frozen=True)
class ToySettings:
    epochs: int = 3


class Toy(Model):
    """`plan` gives the phases; `index` of a batch tells which samples it holds."""

    name, title, Settings = "toy", "Two numbers", ToySettings
    latent_names = ("z",)
    plan: Callable[[Toy], list[Phase]]

    def build(self) -> None:
        self.first, self.second = nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(()))
        self.register_buffer("count", torch.zeros(()))
        self.count: Tensor

    def phases(self) -> list[Phase]:
        return self.plan(self)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Least squares with noise: the weights depend on the order of samples and the noise."""
        noise = torch.randn((), generator=generator)
        return {
            "loss": (self.first.sum() + self.second - batch["labels"][:, 0] + 0.1 * noise)
            .square()
            .mean()
        }

    def state_to_log(self) -> dict[str, Any]:
        return {"first": self.first[0, 0].item(), "second": self.second.item()}

    def encode(self, images: Any, labels: Any = None) -> Tensor:
        return self.as_images(images).mean((1, 2, 3))[:, None, None]

    def decode(self, latents: Tensor) -> Tensor:
        return latents[..., None].expand(-1, *self.spec.image_shape)

    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        return self.decode(torch.zeros(n, 1, 1))


@pytest.fixture(scope="session")
def toy_data() -> Dataset:
    """50 training samples of 4 x 4 with their numbers in the field `index`."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (80, 1, 4, 4), dtype=np.uint8)
    test = np.arange(80) >= 60
    validation = (np.arange(80) >= 50) & ~test
    return build_dataset(
        "toy",
        images,
        rng.normal(size=(80, 1)),
        [Variable("a")],
        validation=validation,
        test=test,
        fields={"index": np.arange(80)},
        source={"name": "toy"},
    )


@pytest.fixture
def toy(toy_data: Dataset, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Toy]:
    """`toy(plan)`: a toy with the phases `plan(model)`, by default one phase of `epochs`."""
    monkeypatch.setitem(MODELS, "toy", Toy)

    def make(
        plan: Callable[[Toy], list[Phase]] | None = None,
        *,
        epochs: int = 3,
        player: dict[str, Any] | None = None,
        **options: Any,
    ) -> Toy:
        model = Toy(toy_data.spec, epochs=epochs)
        settings = {"batch_size": 10, "epochs": epochs, **options}
        model.plan = plan or (
            lambda m: [
                Phase(
                    "main",
                    (Player(m.loss, **{"learning_rate": 0.05, **(player or {})}),),
                    **settings,
                )
            ]
        )
        return model

    return make


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`interrupt(n)`: KeyboardInterrupt instead of the n-th checkpoint; 0: never."""
    write, left = loop.save_checkpoint, [0]

    def maybe(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        write(*arguments)

    def at(n: int) -> None:
        left[0] = n

    monkeypatch.setattr(loop, "save_checkpoint", maybe)
    return at
