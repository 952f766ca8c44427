"""do() on a model with known encoder, decoder and mechanisms, against closed forms."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intervae
from intervae.causal.graph import CausalGraph
from intervae.data import Batch, Spec, Variable
from intervae.errors import QueryError
from intervae.models.causal import CausalModel
from intervae.models.phases import Phase

NAMES = ("c", "a", "b", "d")  # not in causal order: a -> b -> c, a -> c, and d alone


@dataclass(frozen=True)
class _Nothing:
    pass


class Glass(CausalModel):
    """Images of four pixels, the sigmoids of the latents; units are 10 times the latent.

    b = a^2 + noise, c = 2 a - 3 b + noise.
    """

    name, title, Settings = "glass", "A model with known parts", _Nothing
    latent_names = NAMES
    graph = CausalGraph.from_edges(NAMES, [("a", "b"), ("b", "c", -3.0), ("a", "c", 2.0)])

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
        return {
            "a": zero,
            "d": zero,
            "b": value["a"].square(),
            "c": 2 * value["a"] - 3 * value["b"],
        }[NAMES[index]]

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
    return torch.sigmoid(torch.as_tensor(np.stack([values[name] for name in NAMES], 1)))[
        :, None, None, :
    ]


def expect(**changes: Any) -> dict[str, np.ndarray]:
    """Return the counterfactual by hand, with the noises of `factual`.

    Arguments:
        changes: name -> function of the latent, which replaces its mechanism.
    """
    before = factual()
    noise_b, noise_c = (
        before["b"] - before["a"] ** 2,
        before["c"] - 2 * before["a"] + 3 * before["b"],
    )
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
    "soft on what the mechanism gives after another do": (
        {"b": lambda v: 2 * v, "a": 10.0},
        {"a": to(1.0), "b": lambda v: 2 * v},
    ),
    "three at once": (
        {"c": lambda v: v - 1, "b": lambda v: -v, "a": 3.0},
        {"a": to(0.3), "b": lambda v: -v, "c": lambda v: v - 0.1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_counterfactuals_equal_the_closed_form(case: str, glass: Glass) -> None:
    do, changes = CASES[case]
    images = picture(factual())
    latents = torch.logit(glass.counterfactual(images, do).double())[:, 0, 0]
    values = expect(**changes)
    if case == "one apart":
        values["d"] = np.full(6, 0.7)
    for i, name in enumerate(NAMES):
        assert np.allclose(latents[:, i].numpy(), values[name], atol=2e-4), name


def test_a_counterfactual_takes_the_three_steps_in_order(glass: Glass) -> None:
    steps = ("encode", "abduct", "act", "predict", "decode")
    called = []

    def record(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name in steps:
            called.append(frame.f_code.co_name)

    sys.setprofile(record)
    try:
        glass.counterfactual(picture(factual()), {"a": 3.0})
    finally:
        sys.setprofile(None)
    assert called == list(steps)


def test_the_path_in_the_architecture_page_is_the_one_taken(pendulum: Any, make_model: Any) -> None:
    """The functions of the table, in its order; a repeated visit does not count."""
    page = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| \d+ \| `([\w.]+)`.*\| `([\w/]+\.py)` \|$", page, re.MULTILINE)
    assert 5 < len(table) <= 12
    package = f"{Path(intervae.__file__).parent}/"
    model = make_model("causal-vae", pendulum)
    visited: list[tuple[str, str]] = []

    def record(frame: Any, event: str, argument: Any) -> None:
        step = (frame.f_code.co_qualname, frame.f_code.co_filename.removeprefix(package))
        if event == "call" and step[1] != frame.f_code.co_filename and step not in visited:
            visited.append(step)

    sys.setprofile(record)
    try:
        model.counterfactual(pendulum.test.images, {"light": 100.0})
    finally:
        sys.setprofile(None)
    order = [visited.index(step) for step in table]
    assert order == sorted(order)
    assert len([name for name, _ in visited if "<" not in name]) < 70


def test_no_do_is_the_reconstruction_bit_for_bit(glass: Glass) -> None:
    images = picture(factual())
    assert torch.equal(glass.counterfactual(images, {}), glass.reconstruct(images))


def test_setting_a_variable_to_its_own_value_changes_nothing(glass: Glass) -> None:
    images = picture(factual())
    measured = glass.measure(images)
    for i, name in enumerate(NAMES):
        assert torch.allclose(
            glass.counterfactual(images, {name: measured[:, i]}),
            glass.reconstruct(images),
            atol=1e-6,
        )


def test_the_order_of_a_do_does_not_matter(glass: Glass) -> None:
    images = picture(factual())
    do = {"a": 3.0, "b": lambda v: -v, "d": 1.0}
    answers = [
        glass.counterfactual(images, {name: do[name] for name in order})
        for order in permutations(do)
    ]
    assert all(torch.equal(answers[0], other) for other in answers)


def test_an_image_alone_gives_the_answer_of_a_batch(glass: Glass) -> None:
    images = picture(factual())
    do = {"a": lambda v: v + 5}
    together = glass.counterfactual(images, do)
    for i in range(len(images)):
        assert torch.allclose(glass.counterfactual(images[i], do), together[i : i + 1], atol=1e-12)


def test_measure_reads_the_values_in_their_own_units(glass: Glass) -> None:
    values = factual()
    measured = glass.measure(picture(values)).numpy()
    assert np.allclose(measured, 10 * np.stack([values[name] for name in NAMES], 1), atol=2e-3)


def sampled(glass: Glass, n: int, do: Any = None) -> dict[str, np.ndarray]:
    latents = torch.logit(glass.sample(n, do, seed=0).double())[:, 0, 0].numpy()
    return {name: latents[:, i] for i, name in enumerate(NAMES)}


def test_sampling_draws_from_the_observational_distribution(glass: Glass) -> None:
    values = sampled(glass, 4000)
    residual_b = values["b"] - values["a"] ** 2
    residual_c = values["c"] - 2 * values["a"] + 3 * values["b"]
    for noise in (values["a"], values["d"], residual_b, residual_c):
        assert abs(noise.mean()) < 0.06
        assert noise.std() == pytest.approx(1, abs=0.05)
    assert abs(np.corrcoef(values["a"], residual_c)[0, 1]) < 0.06


def test_sampling_under_do_cuts_a_variable_from_its_causes(glass: Glass) -> None:
    under_do, free = sampled(glass, 4000, {"b": 20.0}), sampled(glass, 4000)
    assert np.allclose(under_do["b"], 2.0, atol=1e-5)
    assert np.allclose(under_do["a"], free["a"])  # the same noises, as the seed is the same
    assert np.allclose(under_do["d"], free["d"])
    assert under_do["c"].mean() == pytest.approx(-6, abs=0.15)  # E[2 a - 3 * 2]
    assert under_do["c"].var() == pytest.approx(5, abs=0.4)  # 4 var(a) + 1
    values = np.linspace(-2, 2, 4000)
    assert np.allclose(sampled(glass, 4000, {"a": 10 * values})["a"], values, atol=1e-5)
    assert np.allclose(sampled(glass, 4000, {"b": lambda v: v + 10})["b"], free["b"] + 1, atol=1e-4)


def test_there_must_be_as_many_values_as_images(glass: Glass) -> None:
    with pytest.raises(QueryError, match="3 values for 6 samples"):
        glass.counterfactual(picture(factual()), {"a": [1.0, 2.0, 3.0]})
    with pytest.raises(QueryError, match="3 values for 5 samples"):
        glass.sample(5, {"a": [1.0, 2.0, 3.0]})


class Unitless(Glass):
    """The same model without units of its own, so with those of `CausalModel`."""

    to_units, from_units = CausalModel.to_units, CausalModel.from_units


LIGHT = Variable("a", unit="degrees", low=0.0, high=200.0, mean=100.0, std=20.0)


def test_a_model_without_units_takes_those_of_the_labels() -> None:
    """do={"a": 120} is one standard deviation above the mean of the label, not a latent of 120."""
    model = Unitless(Spec((1, 1, 4), (LIGHT, Variable("d", "binary"))))
    images = picture(factual())
    after = model.intervene(model.encode(images), {"a": 120.0, "d": 1.0, "c": 0.5})
    assert torch.allclose(after[:, NAMES.index("a")], torch.tensor(1.0, dtype=after.dtype))
    assert torch.allclose(after[:, NAMES.index("d")], torch.tensor(1.0, dtype=after.dtype))
    assert torch.allclose(after[:, NAMES.index("c")], torch.tensor(0.5, dtype=after.dtype))
    measured = model.measure(model.decode(after))
    assert np.allclose(measured[:, NAMES.index("a")], 120.0, atol=1e-2)
    assert np.allclose(measured[:, NAMES.index("d")], 1.0, atol=1e-2)
    assert np.allclose(measured[:, NAMES.index("c")], 0.5, atol=1e-2)
    assert np.allclose(
        model.measure(images)[:, NAMES.index("a")], 100 + 20 * factual()["a"], atol=1e-2
    )


def test_generic_latent_names_have_no_units() -> None:
    model = type("Anonymous", (Unitless,), {"anonymous_latents": True})(Spec((1, 1, 4), (LIGHT,)))
    after = model.intervene(model.encode(picture(factual())), {"a": 1.5})
    assert torch.allclose(after[:, NAMES.index("a")], torch.tensor(1.5, dtype=after.dtype))


def test_a_soft_do_is_in_units_too() -> None:
    model = Unitless(Spec((1, 1, 4), (LIGHT,)))
    latents = model.encode(picture(factual()))
    after = model.intervene(latents, {"a": lambda v: v + 10})
    a = NAMES.index("a")
    assert torch.allclose(after[:, a], latents[:, a] + 0.5)
