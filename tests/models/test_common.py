"""The common checks (intervae.testing) over every registered model, and those of a GPU.

A new model is covered by registering it; quick_settings.py has settings that make it small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intervae.data import Batch
from intervae.errors import QueryError
from intervae.models import MODELS, Model
from intervae.models.checks import QUERIES
from intervae.models.ct_vae.mcq_vae import MCQVAE
from intervae.models.phases import Phase
from intervae.testing import CHECKS, ModelCase, check_model
from intervae.testing.case import first_batch, no_noise, without_seconds
from quick_settings import QUICK

BATCH_TERMS: dict[str, set[str]] = {  # loss terms that are no means over samples
    "beta-tcvae": {"loss", "mutual_information", "total_correlation", "dimension_kl"},
    "dip-vae": {"loss", "diagonal", "off_diagonal"},
}


@pytest.fixture(params=list(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def case(name: str) -> ModelCase:
    """The model class with settings that make it small."""
    settings = QUICK.get(name, lambda data: {})
    return ModelCase(MODELS[name], settings, frozenset(BATCH_TERMS.get(name, ())))


@pytest.mark.parametrize("check", list(CHECKS))
def test_every_model_passes_the_common_checks(check: str, case: ModelCase) -> None:
    CHECKS[check](case)


def epochs_of(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in history if "train" in line]


# ---- the checks themselves ----------------------------------------------------------------------
@dataclass(frozen=True)
class _NoSettings:
    pass


class _Mute(Model):
    """Answers nothing that a model need not answer."""

    name, title, Settings = "mute", "A model without queries", _NoSettings
    latent_names = ("z",)

    def build(self) -> None:
        self.weight = nn.Parameter(torch.zeros(1))

    def phases(self) -> list[Phase]:
        return []

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {"loss": self.weight.sum()}

    def encode(self, images: Any, labels: Any = None) -> Tensor:
        return self.as_images(images).mean((1, 2, 3))[:, None, None]

    def decode(self, latents: Tensor) -> Tensor:
        return latents[..., None].expand(-1, *self.spec.image_shape)

    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        return self.decode(torch.zeros(n, 1, 1))


def test_a_model_that_answers_nothing_points_to_the_others(make_data: Any) -> None:
    model = _Mute(make_data().spec)
    with pytest.raises(
        QueryError, match=r"mute cannot answer counterfactual\(\); models that can: .*causal-vae"
    ):
        model.counterfactual(torch.zeros(1, 1, 16, 16), {"a": 1.0})
    with pytest.raises(
        QueryError, match=r"mute cannot answer graph\(\); models that can: .*causal-vae"
    ):
        _ = model.graph
    required = {"encode", "decode", "sample"}
    assert {query for query in QUERIES if hasattr(model, query)} == required


class _Forgetful(_Mute):
    """Draws other samples for the same seed."""

    name = "forgetful"

    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        self.sampling_generator(n, seed)
        return self.decode(torch.rand(n, 1, 1))


class _Broken(_Mute):
    """Has a graph whose computation fails."""

    name = "broken"

    @property
    def graph(self) -> Any:
        return self.no_such_attribute


def test_an_error_inside_a_query_is_not_taken_for_a_missing_query(make_data: Any) -> None:
    with pytest.raises(AttributeError, match="no_such_attribute"):
        _ = _Broken(make_data().spec).graph


def test_check_model_names_the_check_that_fails() -> None:
    with pytest.raises(AssertionError, match="_Forgetful fails the check 'seed of sampling' at"):
        check_model(_Forgetful, only=["many images", "seed of sampling"])
    assert check_model(_Forgetful, only=["many images", "units"]) == ["many images"]


# ---- GPU ----------------------------------------------------------------------------------------
# Models whose small training amplifies rounding: name -> settings without that.
STABLE: dict[str, dict[str, Any]] = {
    "ladder-vae": {"batch_norm": False},
    "causal-prior-vae": {"curriculum": False},
}


@pytest.fixture
def without_noise() -> Iterator[None]:
    with no_noise():
        yield


@pytest.mark.gpu
def test_cpu_and_gpu_agree(case: ModelCase, without_noise: None, exact_gpu: None) -> None:
    data, name = case.simulated(), case.cls.name
    models = {device: case.model(data).to(device) for device in ("cpu", "cuda")}
    losses = {}
    for device, model in models.items():
        batch = first_batch(replace(data, train=data.train.to(device)))
        losses[device] = model.train().loss(batch)
    for key, value in losses["cpu"].items():
        assert losses["cuda"][key].item() == pytest.approx(value.item(), rel=1e-3, abs=1e-3), key
    if not any(phase.players for phase in models["cpu"].phases()):
        pytest.skip(f"{name} does not learn step by step")
    histories = []
    for device in ("cpu", "cuda"):
        models[device] = case.model(data, **STABLE.get(name, {}))
        result = models[device].fit(data, seed=0, device=device, cuda_graph=False)
        histories.append(result.history)
    # adversarial training and codes that are reinitialised amplify rounding
    adversarial = any(len(phase.players) > 1 for phase in models["cpu"].phases())
    unstable = adversarial or isinstance(models["cpu"], MCQVAE)
    tolerance = 0.4 if unstable else 0.01
    for on_cpu, on_gpu in zip(*map(epochs_of, histories), strict=True):
        for split in ("train", "validation"):
            assert on_gpu[split] == pytest.approx(on_cpu[split], rel=tolerance, abs=tolerance)
    images = data.test.images
    encoded = [models[device].encode(images).cpu() for device in ("cpu", "cuda")]
    assert unstable or torch.allclose(*encoded, atol=5e-2)
    moved = models["cuda"].to("cpu")
    latents = models["cpu"].encode(images)
    models["cpu"].load_state_dict(moved.state_dict())
    on_gpu = models["cpu"].to("cuda")
    assert torch.allclose(moved.encode(images), on_gpu.encode(images).cpu(), atol=1e-4)
    assert torch.allclose(moved.decode(latents), on_gpu.decode(latents).cpu(), atol=1e-4)
    assert torch.allclose(moved.sample(4, seed=0), on_gpu.sample(4, seed=0).cpu(), atol=1e-4)


@pytest.mark.gpu
def test_a_captured_training_step_equals_an_eager_one(case: ModelCase, exact_gpu: None) -> None:
    data = case.simulated()
    eager, captured = (
        case.model(data).fit(data, seed=0, device="cuda", cuda_graph=graph).history
        for graph in (False, True)
    )
    for first, second in zip(epochs_of(eager), epochs_of(captured), strict=True):
        assert second["train"] == pytest.approx(first["train"], rel=0.05, abs=0.05), first["phase"]


@pytest.mark.gpu
def test_the_generators_of_the_gpu_are_left_alone(case: ModelCase) -> None:
    data, before = case.simulated(), torch.cuda.get_rng_state()
    case.model(data).fit(data, device="cuda")
    assert torch.equal(before, torch.cuda.get_rng_state())


@pytest.mark.gpu
def test_a_seed_gives_the_same_run_twice_on_a_gpu(case: ModelCase) -> None:
    data = case.simulated()
    histories = [
        without_seconds(case.model(data).fit(data, seed=0, device="cuda").history) for _ in range(2)
    ]
    for first, second in zip(*map(epochs_of, histories), strict=True):
        assert first["train"] == pytest.approx(second["train"], rel=1e-3, abs=1e-3)
