"""Scores of the experiments on digits and X-rays, for models with known answers; quick forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset
from intervae.data.simulators.moved_digits import MovedDigits
from intervae.data.simulators.xray import XRay
from intervae.discovery.edge_directions import direction_margin
from intervae.experiments import run_experiment
from intervae.experiments.base import MetricKey
from intervae.experiments.cmcl_mnist import (
    CMCL_MNIST,
    draw_digits,
    edge_numbers,
    margin_numbers,
    movement_numbers,
    rank_correlation,
)
from intervae.experiments.cmcl_xray import (
    CMCL_XRAY,
    TrainOnXRays,
    direction_numbers,
    heat_map_numbers,
    prediction_numbers,
)
from intervae.models.cmcl.model import CMCL
from intervae.models.heat_maps import Link, link_column

SMALL: dict[str, Any] = {
    "latents": 4,
    "embedding": 4,
    "channels": (4, 4),
    "hidden": 8,
    "posterior_widths": (8,),
    "prior_widths": (8,),
}


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """Ten drawings; no digit is equal to another or to itself when moved."""
    images = np.zeros((10, 1, 28, 28), np.uint8)
    for k in range(10):
        images[k, 0, 10:18, 8 : 12 + k], images[k, 0, 6:10, 8:12] = 255, 200
    return MovedDigits(images, move="shift").dataset(samples=120)


@pytest.fixture(scope="module")
def chests() -> Dataset:
    return XRay().dataset(size=16, samples=160)


def with_graph(data: Dataset, *pairs: tuple[str, str]) -> CMCL:
    model = CMCL(data.spec, **SMALL)
    weights = CausalGraph.from_edges(model.node_names, pairs).weights
    model.influence.copy_(torch.as_tensor(weights.copy()))
    return model


# ---- digits --------------------------------------------------------------------------------------
def test_an_edge_is_right_only_if_no_latent_causes_the_column(digits: Dataset) -> None:
    pairs = (("offset", "z0"), ("offset", "z2"), ("digit", "z1"), ("z3", "digit"))
    numbers = edge_numbers(with_graph(digits, *pairs), digits)
    assert numbers[MetricKey("edge_right", "offset")] == 1
    assert numbers[MetricKey("latents_caused", "offset")] == 2
    assert numbers[MetricKey("edge_right", "digit")] == 0
    assert numbers[MetricKey("latents_causing", "digit")] == 1
    reverse = edge_numbers(with_graph(digits, ("z0", "offset")), digits)
    assert reverse[MetricKey("edge_right", "offset")] == 0
    empty = edge_numbers(with_graph(digits), digits)
    assert empty[MetricKey("edge_right", "digit")] == 0


def test_movement_scores_of_true_reversed_unchanged_and_blank_images(
    digits: Dataset,
) -> None:
    simulator = digits.simulator
    assert isinstance(simulator, MovedDigits)
    model = with_graph(digits)
    exogenous = digits.test.fields["exogenous"].numpy().copy()
    exogenous[:, 0] = 0.0  # no noise of the movement

    def true_images(sign: float) -> Any:
        def counterfactual(images: torch.Tensor, do: dict[str, float]) -> torch.Tensor:
            true, _ = simulator.counterfactual(exogenous, {"offset": sign * do["offset"]})
            return torch.from_numpy(true).float() / 255

        return counterfactual

    model.counterfactual = true_images(1.0)  # type: ignore[method-assign]
    right = movement_numbers(model, digits)
    assert right["do_spearman"] > 0.99
    assert right["do_spearman_per_picture"] > 0.99
    assert right["do_error"] < 0.3 < right["unchanged_error"]
    assert right["do_blank"] == 0
    model.counterfactual = true_images(-1.0)  # type: ignore[method-assign]
    assert movement_numbers(model, digits)["do_spearman"] < -0.99
    model.counterfactual = lambda images, do: images.float() / 255
    assert abs(movement_numbers(model, digits)["do_spearman"]) < 1e-9
    model.counterfactual = lambda images, do: torch.zeros(images.shape)
    blank = movement_numbers(model, digits)
    assert blank["do_blank"] == 1
    assert blank["do_spearman"] == 0


def test_the_margin_of_an_unrelated_latent_is_that_of_shuffled_rows(digits: Dataset) -> None:
    """Without a relation the margin is that of shuffled rows, which is not 0 if u is uniform."""
    model = with_graph(digits, ("offset", "z0"))
    model.encode = lambda images, labels=None: torch.randn(
        len(images), 4, 1, generator=torch.Generator().manual_seed(3)
    )
    numbers = margin_numbers(model, digits, 0)
    shuffled = numbers["direction_margin_shuffled"]
    assert numbers["direction_margin"] == pytest.approx(shuffled, abs=8)
    values = {
        p.numpy().tobytes(): float(z[0])
        for p, z in zip(digits.train.images, digits.train.fields["latents"], strict=True)
    }

    def encode(images: torch.Tensor, labels: Any = None) -> torch.Tensor:
        moved = torch.tensor([values.get(p.numpy().tobytes(), 0.0) for p in images])
        return moved[:, None, None].expand(-1, 4, 1).clone()

    model.encode = encode  # type: ignore[method-assign,assignment]
    assert margin_numbers(model, digits, 0)["direction_margin"] == pytest.approx(
        direction_margin(
            digits.train.labels[:, 0].double().numpy(),
            digits.train.fields["latents"][:, 0].double().numpy(),
        ),
        abs=0.5,
    )


def test_a_constant_has_no_rank_correlation() -> None:
    assert rank_correlation(np.arange(5.0), np.ones(5)) == 0
    assert rank_correlation(np.arange(5.0), np.arange(5.0) ** 3) == pytest.approx(1)


def test_the_figure_of_ten_digits_is_drawn(digits: Dataset, tmp_path: Path) -> None:
    draw_digits(with_graph(digits, ("offset", "z0")), digits, tmp_path / "do.png")
    assert (tmp_path / "do.png").stat().st_size > 1000


# ---- X-rays --------------------------------------------------------------------------------------
def opacity_model(data: Dataset) -> CMCL:
    """A model whose z1 is minus the true opacity and whose other latents are noise."""
    model = with_graph(data, ("disease", "z1"))
    opacities = {
        image.numpy().tobytes(): float(latents[0])
        for split in (data.train, data.validation, data.test)
        for image, latents in zip(split.images, split.fields["latents"], strict=True)
    }

    def encode(images: torch.Tensor, labels: Any = None) -> torch.Tensor:
        z = torch.randn(len(images), 4, 1, generator=torch.Generator().manual_seed(len(images)))
        z[:, 1, 0] = torch.tensor([-opacities[image.numpy().tobytes()] for image in images])
        return z

    model.encode = encode  # type: ignore[method-assign,assignment]
    return model


def test_a_latent_equal_to_the_opacity_predicts_the_disease(
    chests: Dataset,
) -> None:
    model = opacity_model(chests)
    edge = link_column(model, chests, "disease")
    assert (edge.latent, edge.sign) == ("z1", -1)
    numbers = prediction_numbers(model, chests, edge)
    assert numbers["link_accuracy"] > 0.95
    assert numbers["link_balanced_accuracy"] > 0.95
    assert numbers["link_auc"] > 0.98
    labels = chests.test.labels[:, 0].numpy()
    assert numbers["majority_accuracy"] in (
        pytest.approx(labels.mean()),
        pytest.approx(1 - labels.mean()),
    )
    noise = prediction_numbers(model, chests, Link("disease", "z0", "", 0.0, 1))
    assert 0.2 < noise["link_auc"] < 0.8


def test_direction_numbers_of_a_link() -> None:
    assert direction_numbers(Link("covid", "z0", "column -> latent", 1.0, 1)) == {
        "column_causes": 1.0,
        "latent_causes": 0.0,
    }
    assert direction_numbers(Link("covid", "z0", "latent -> column", 1.0, 1)) == {
        "column_causes": 0.0,
        "latent_causes": 1.0,
    }
    assert sum(direction_numbers(Link("covid", "z0", "", 1.0, 1)).values()) == 0


def test_heat_maps_of_every_kind_are_scored(
    chests: Dataset,
) -> None:
    model = with_graph(chests, ("disease", "z1"))
    numbers, blocks = heat_map_numbers(model, chests, link_column(model, chests, "disease"))
    assert set(blocks) == {"last block", "best block", "reference"}
    assert blocks["last block"] == -1
    masks = chests.test.fields["mask"]
    assert numbers["mask_share"] == pytest.approx(
        float(masks[masks.flatten(1).any(1)].float().mean())
    )
    assert all(0 <= numbers[MetricKey("heat_map_energy", kind)] <= 1 for kind in blocks)


def test_the_quick_form_writes_numbers_page_and_figure(tmp_path: Path) -> None:
    document = run_experiment(
        CMCL_XRAY, quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path
    )
    metrics = {row["metric"] for row in document["rows"]}
    assert {
        "heat_map_energy",
        "mask_share",
        "link_accuracy",
        "majority_accuracy",
        "column_causes",
    } <= metrics
    assert (tmp_path / "cmcl-xray-quick-causal.png").is_file()
    assert "heat_map_energy" in (tmp_path / "cmcl-xray-quick.md").read_text(encoding="utf-8")


def test_images_of_patients_stay_in_the_runs(tmp_path: Path) -> None:
    assert CMCL_XRAY.gather is not None
    folders = {job.variant: tmp_path / job.variant for job in CMCL_XRAY.jobs}
    for folder in folders.values():
        (folder / "figures").mkdir(parents=True)
        (folder / "figures" / "ill.png").write_bytes(b"an image")
    CMCL_XRAY.gather(folders, tmp_path / "cmcl-xray")
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "cmcl-xray-causal.png",
        "cmcl-xray-anti-causal.png",
    }


def test_every_seed_has_its_own_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets: list[Dataset] = []

    def train(job: TrainOnXRays, data: Dataset, *rest: Any) -> Any:
        datasets.append(data)
        raise RuntimeError("enough")

    monkeypatch.setattr(TrainOnXRays, "train", train)
    for seed in (0, 1):
        with pytest.raises(RuntimeError, match="enough"):
            CMCL_XRAY.quick[0].run(seed, "cpu", tmp_path)
    assert not torch.equal(datasets[0].test.images, datasets[1].test.images)
    assert [
        job.column
        for job in CMCL_XRAY.jobs
        if isinstance(job, TrainOnXRays) and job.data == "covid-cxr"
    ] == ["covid"]
    assert CMCL_XRAY.seeds == CMCL_MNIST.seeds == 5
