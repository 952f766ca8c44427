"""do() on a model whose encoder, decoder and mechanisms are known exactly: Pearl's three steps against closed forms."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intervae.causal.graph import CausalGraph
from intervae.data.base import Batch, Spec, Variable
from intervae.errors import QueryError
from intervae.models.causal import CausalModel
from intervae.models.phases import Phase

NAMES = ("c", "a", "b", "d")  # not in causal order: a -> b -> c, a -> c, and d alone


@dataclass(frozen=True)
class _Nothing:
    pass


class Glass(CausalModel):
    """A picture of four pixels, each the sigmoid of one latent: b = a^2 + noise, c = 2 a - 3 b + noise; units are 10 times the latent."""

    name, title, Settings = "glass", "A model one can see through", _Nothing
    latent_names = NAMES
    graph = CausalGraph.from_edges(NAMES, [("a", "b"), ("b", "c", -3.0), ("a", "c", 2.0)])  # type: ignore[assignment]

    def build(self) -> None:
        self.unused = nn.Parameter(torch.zeros(1))

    def phases(self) -> list[Phase]:
        return []

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {"loss": self.unused.sum()}

    def encode(self, images: Any, labels: Any = None) -> Tensor:
        return torch.logit(self.as_images(images).double().flatten(1))[..., None]

    def decode(self, latents: Tensor) -> Tensor:
        return torch.sigmoid(latents[..., 0])[:, None, None, :]

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        value = {name: latents[:, i] for i, name in enumerate(NAMES)}
        zero = torch.zeros_like(value["a"])
        return {"a": zero, "d": zero, "b": value["a"].square(), "c": 2 * value["a"] - 3 * value["b"]}[NAMES[index]]

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.randn((n, len(NAMES), 1), generator=generator).double()

    def to_units(self, index: int, latent: Tensor) -> Tensor:
        return 10 * latent.mean(-1)

    def from_units(self, index: int, value: Tensor, latent: Tensor) -> Tensor:
        return (value / 10)[:, None].expand_as(latent)


@pytest.fixture
def glass() -> Glass:
    return Glass(Spec((1, 1, 4), tuple(Variable(name) for name in NAMES)))


def factual(n: int = 6) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a, noise_b, noise_c, d = rng.normal(size=(4, n))
    b = a**2 + 0.3 * noise_b
    return {"a": a, "b": b, "c": 2 * a - 3 * b + 0.5 * noise_c, "d": d}


def picture(values: dict[str, np.ndarray]) -> Tensor:
    return torch.sigmoid(torch.as_tensor(np.stack([values[name] for name in NAMES], 1)))[:, None, None, :]


def expect(**changes: Any) -> dict[str, np.ndarray]:
    """The counterfactual by hand: the noises of `factual`, and `changes` (in latent units) in the place of mechanisms."""
    before = factual()
    noise_b, noise_c = before["b"] - before["a"] ** 2, before["c"] - 2 * before["a"] + 3 * before["b"]
    a = changes["a"](before["a"]) if "a" in changes else before["a"]
    b = a**2 + noise_b
    b = changes["b"](b) if "b" in changes else b
    c = 2 * a - 3 * b + noise_c
    c = changes["c"](c) if "c" in changes else c
    return {"a": a, "b": b, "c": c, "d": before["d"]}


def to(value: Any) -> Any:
    return lambda current: np.broadcast_to(value, current.shape)


SAMPLES = np.linspace(-1, 1, 6)
CASES = {
    "nothing": ({}, {}),
    "a root": ({"a": 10.0}, {"a": to(1.0)}),
    "a middle one, cut off from its cause": ({"b": -5.0}, {"b": to(-0.5)}),
    "a leaf": ({"c": 7}, {"c": to(0.7)}),
    "one apart": ({"d": 7}, {}),
    "cause and effect": ({"a": 10.0, "b": 20.0}, {"a": to(1.0), "b": to(2.0)}),
    "per sample": ({"a": 10 * SAMPLES}, {"a": to(SAMPLES)}),
    "a tensor per sample": ({"a": torch.as_tensor(10 * SAMPLES)}, {"a": to(SAMPLES)}),
    "soft": ({"a": lambda v: v + 5}, {"a": lambda v: v + 0.5}),
    "soft on what the mechanism gives after another do": ({"b": lambda v: 2 * v, "a": 10.0}, {"a": to(1.0), "b": lambda v: 2 * v}),
    "three at once": ({"c": lambda v: v - 1, "b": lambda v: -v, "a": 3.0}, {"a": to(0.3), "b": lambda v: -v, "c": lambda v: v - 0.1}),
}


@pytest.mark.parametrize("case", CASES)
def test_counterfactuals_are_those_of_the_known_mechanisms(case: str, glass: Glass) -> None:
    do, changes = CASES[case]
    images = picture(factual())
    found = torch.logit(glass.counterfactual(images, do).double())[:, 0, 0]
    values = expect(**changes)
    if case == "one apart":
        values["d"] = np.full(6, 0.7)
    for i, name in enumerate(NAMES):
        assert np.allclose(found[:, i].numpy(), values[name], atol=2e-4), name


def test_no_do_is_the_reconstruction_bit_for_bit(glass: Glass) -> None:
    images = picture(factual())
    assert torch.equal(glass.counterfactual(images, {}), glass.reconstruct(images))


def test_setting_a_variable_to_the_value_it_has_changes_nothing(glass: Glass) -> None:
    images = picture(factual())
    measured = glass.measure(images)
    for i, name in enumerate(NAMES):
        assert torch.allclose(glass.counterfactual(images, {name: measured[:, i]}), glass.reconstruct(images), atol=1e-6)


def test_the_order_of_a_do_does_not_matter(glass: Glass) -> None:
    images = picture(factual())
    do = {"a": 3.0, "b": lambda v: -v, "d": 1.0}
    answers = [glass.counterfactual(images, {name: do[name] for name in order}) for order in permutations(do)]
    assert all(torch.equal(answers[0], other) for other in answers)


def test_a_picture_answers_the_same_alone_as_in_a_batch(glass: Glass) -> None:
    images = picture(factual())
    do = {"a": lambda v: v + 5}
    together = glass.counterfactual(images, do)
    for i in range(len(images)):
        assert torch.allclose(glass.counterfactual(images[i], do), together[i : i + 1], atol=1e-12)


def test_measure_reads_the_values_in_their_own_units(glass: Glass) -> None:
    values = factual()
    found = glass.measure(picture(values)).numpy()
    assert np.allclose(found, 10 * np.stack([values[name] for name in NAMES], 1), atol=2e-3)


def sampled(glass: Glass, n: int, do: Any = None) -> dict[str, np.ndarray]:
    latents = torch.logit(glass.sample(n, do, seed=0).double())[:, 0, 0].numpy()
    return {name: latents[:, i] for i, name in enumerate(NAMES)}


def test_sampling_draws_from_the_observational_distribution(glass: Glass) -> None:
    found = sampled(glass, 4000)
    residual_b, residual_c = found["b"] - found["a"] ** 2, found["c"] - 2 * found["a"] + 3 * found["b"]
    for noise in (found["a"], found["d"], residual_b, residual_c):
        assert abs(noise.mean()) < 0.06
        assert noise.std() == pytest.approx(1, abs=0.05)
    assert abs(np.corrcoef(found["a"], residual_c)[0, 1]) < 0.06


def test_sampling_under_do_cuts_the_variable_from_its_causes_only(glass: Glass) -> None:
    found, free = sampled(glass, 4000, {"b": 20.0}), sampled(glass, 4000)
    assert np.allclose(found["b"], 2.0, atol=1e-5)
    assert np.allclose(found["a"], free["a"])  # the same noises, as the seed is the same
    assert np.allclose(found["d"], free["d"])
    assert found["c"].mean() == pytest.approx(-6, abs=0.15)  # E[2 a - 3 * 2]
    assert found["c"].var() == pytest.approx(5, abs=0.4)  # 4 var(a) + 1
    values = np.linspace(-2, 2, 4000)
    assert np.allclose(sampled(glass, 4000, {"a": 10 * values})["a"], values, atol=1e-5)
    assert np.allclose(sampled(glass, 4000, {"b": lambda v: v + 10})["b"], free["b"] + 1, atol=1e-4)


def test_per_sample_values_must_be_as_many_as_pictures(glass: Glass) -> None:
    with pytest.raises(QueryError, match="3 values for 6 samples"):
        glass.counterfactual(picture(factual()), {"a": [1.0, 2.0, 3.0]})
    with pytest.raises(QueryError, match="3 values for 5 samples"):
        glass.sample(5, {"a": [1.0, 2.0, 3.0]})
