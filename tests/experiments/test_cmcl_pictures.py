"""What the experiments on digits and X-rays measure, of models whose answers are known; and their quick forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset
from intervae.data.simulators.moved_digits import MovedDigits
from intervae.data.simulators.xray import XRay
from intervae.experiments import run_experiment
from intervae.experiments.cmcl_mnist import CMCL_MNIST, draw_digits, edges, margins, movements, rank_correlation
from intervae.experiments.cmcl_xray import CMCL_XRAY, Chests, direction, heat, tells
from intervae.models.cmcl import CMCL
from intervae.models.cmcl_directions import margin
from intervae.models.heat_maps import Link, link

SMALL: dict[str, Any] = {"latents": 4, "embedding": 4, "channels": (4, 4), "hidden": 8, "posterior_widths": (8,), "prior_widths": (8,)}


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """Ten drawings, no digit like another and none like itself when turned or shifted."""
    pictures = np.zeros((10, 1, 28, 28), np.uint8)
    for k in range(10):
        pictures[k, 0, 10:18, 8 : 12 + k], pictures[k, 0, 6:10, 8:12] = 255, 200
    return MovedDigits(pictures, move="shift").dataset(samples=120)


@pytest.fixture(scope="module")
def chests() -> Dataset:
    return XRay().dataset(size=16, samples=160)


def with_graph(data: Dataset, *pairs: tuple[str, str]) -> CMCL:
    model = CMCL(data.spec, **SMALL)
    weights = CausalGraph.from_edges(model.node_names, pairs).weights
    model.influence.copy_(torch.as_tensor(weights.copy()))
    return model


# ---- digits ---------------------------------------------------------------------------------------------------------
def test_an_edge_is_right_only_where_no_latent_causes_the_column(digits: Dataset) -> None:
    found = edges(with_graph(digits, ("offset", "z0"), ("offset", "z2"), ("digit", "z1"), ("z3", "digit")), digits)
    assert found["edge_right|offset"] == 1
    assert found["latents_caused|offset"] == 2
    assert found["edge_right|digit"] == 0
    assert found["latents_causing|digit"] == 1
    assert edges(with_graph(digits, ("z0", "offset")), digits)["edge_right|offset"] == 0
    assert edges(with_graph(digits), digits)["edge_right|digit"] == 0


def test_true_pictures_of_do_score_one_unchanged_ones_zero_and_the_wrong_way_round_minus_one(digits: Dataset) -> None:
    world, part = digits.simulator, digits.test
    assert isinstance(world, MovedDigits)
    model = with_graph(digits)
    exogenous = part.fields["exogenous"].numpy().copy()
    exogenous[:, 0] = 0.0  # f alone, without the noise of the movement

    def answer(sign: float) -> Any:
        return lambda images, do: torch.from_numpy(world.counterfactual(exogenous, {"offset": sign * do["offset"]})[0]).float() / 255

    model.counterfactual = answer(1.0)  # type: ignore[method-assign]
    right = movements(model, digits)
    assert right["do_spearman"] > 0.99
    assert right["do_spearman_per_picture"] > 0.99
    assert right["do_error"] < 0.3 < right["unchanged_error"]
    assert right["do_blank"] == 0
    model.counterfactual = answer(-1.0)  # type: ignore[method-assign]
    assert movements(model, digits)["do_spearman"] < -0.99
    model.counterfactual = lambda images, do: images.float() / 255  # type: ignore[method-assign,assignment,misc]
    assert abs(movements(model, digits)["do_spearman"]) < 1e-9
    model.counterfactual = lambda images, do: torch.zeros(images.shape)  # type: ignore[method-assign,assignment,misc]
    blank = movements(model, digits)
    assert blank["do_blank"] == 1
    assert blank["do_spearman"] == 0


def test_the_margin_of_an_unrelated_latent_is_that_of_the_density_alone(digits: Dataset) -> None:
    """A uniform column looks like a cause of noise: the margin and that of shuffled rows agree where there is no relation."""
    model = with_graph(digits, ("offset", "z0"))
    model.encode = lambda images, labels=None: torch.randn(len(images), 4, 1, generator=torch.Generator().manual_seed(3))  # type: ignore[method-assign,assignment,misc]
    found = margins(model, digits, 0)
    assert found["direction_margin"] == pytest.approx(found["direction_margin_shuffled"], abs=8)
    values = {p.numpy().tobytes(): float(z[0]) for p, z in zip(digits.train.images, digits.train.fields["latents"], strict=True)}

    def encode(images: torch.Tensor, labels: Any = None) -> torch.Tensor:
        moved = torch.tensor([values.get(p.numpy().tobytes(), 0.0) for p in images])
        return moved[:, None, None].expand(-1, 4, 1).clone()

    model.encode = encode  # type: ignore[method-assign,assignment]
    assert margins(model, digits, 0)["direction_margin"] == pytest.approx(
        margin(digits.train.labels[:, 0].double().numpy(), digits.train.fields["latents"][:, 0].double().numpy()), abs=0.5
    )


def test_a_constant_has_no_rank_correlation() -> None:
    assert rank_correlation(np.arange(5.0), np.ones(5)) == 0
    assert rank_correlation(np.arange(5.0), np.arange(5.0) ** 3) == pytest.approx(1)


def test_the_picture_of_ten_digits_is_drawn(digits: Dataset, tmp_path: Path) -> None:
    draw_digits(with_graph(digits, ("offset", "z0")), digits, tmp_path / "do.png")
    assert (tmp_path / "do.png").stat().st_size > 1000


# ---- X-rays ---------------------------------------------------------------------------------------------------------
def knowing(data: Dataset) -> CMCL:
    """A model whose z1 is the true opacity, and whose others are noise."""
    model = with_graph(data, ("disease", "z1"))
    known = {
        picture.numpy().tobytes(): float(latents[0])
        for split in (data.train, data.validation, data.test)
        for picture, latents in zip(split.images, split.fields["latents"], strict=True)
    }

    def encode(images: torch.Tensor, labels: Any = None) -> torch.Tensor:
        z = torch.randn(len(images), 4, 1, generator=torch.Generator().manual_seed(len(images)))
        z[:, 1, 0] = torch.tensor([-known[picture.numpy().tobytes()] for picture in images])
        return z

    model.encode = encode  # type: ignore[method-assign,assignment]
    return model


def test_a_latent_that_is_the_opacity_tells_the_disease_of_held_out_pictures(chests: Dataset) -> None:
    model = knowing(chests)
    found = link(model, chests, "disease")
    assert (found.latent, found.sign) == ("z1", -1)
    told = tells(model, chests, found)
    assert told["link_accuracy"] > 0.95
    assert told["link_balanced_accuracy"] > 0.95
    assert told["link_auc"] > 0.98
    labels = chests.test.labels[:, 0].numpy()
    assert told["majority_accuracy"] in (pytest.approx(labels.mean()), pytest.approx(1 - labels.mean()))
    noise = tells(model, chests, Link("disease", "z0", "", 0.0, 1))
    assert 0.2 < noise["link_auc"] < 0.8


def test_directions() -> None:
    assert direction(Link("covid", "z0", "column -> latent", 1.0, 1)) == {"column_causes": 1.0, "latent_causes": 0.0}
    assert direction(Link("covid", "z0", "latent -> column", 1.0, 1)) == {"column_causes": 0.0, "latent_causes": 1.0}
    assert sum(direction(Link("covid", "z0", "", 1.0, 1)).values()) == 0


def test_heat_is_scored_for_every_kind_of_map_and_blocks_are_chosen_on_validation(chests: Dataset) -> None:
    model = with_graph(chests, ("disease", "z1"))
    numbers, blocks = heat(model, chests, link(model, chests, "disease"))
    assert set(blocks) == {"last block", "best block", "reference"}
    assert blocks["last block"] == -1
    masks = chests.test.fields["mask"]
    assert numbers["mask_share"] == pytest.approx(float(masks[masks.flatten(1).any(1)].float().mean()))
    assert all(0 <= numbers[f"heat_map_energy|{kind}"] <= 1 for kind in blocks)


def test_the_quick_form_on_drawings_leaves_numbers_page_and_picture(tmp_path: Path) -> None:
    document = run_experiment(CMCL_XRAY, quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path)
    metrics = {row["metric"] for row in document["rows"]}
    assert {"heat_map_energy", "mask_share", "link_accuracy", "majority_accuracy", "column_causes"} <= metrics
    assert (tmp_path / "cmcl-xray-quick-causal.png").is_file()
    assert "heat_map_energy" in (tmp_path / "cmcl-xray-quick.md").read_text(encoding="utf-8")


def test_no_picture_of_a_patient_leaves_the_runs(tmp_path: Path) -> None:
    assert CMCL_XRAY.gather is not None
    folders = {job.variant: tmp_path / job.variant for job in CMCL_XRAY.jobs}
    for folder in folders.values():
        (folder / "figures").mkdir(parents=True)
        (folder / "figures" / "ill.png").write_bytes(b"a picture")
    CMCL_XRAY.gather(folders, tmp_path / "cmcl-xray")
    assert {path.name for path in tmp_path.glob("*.png")} == {"cmcl-xray-causal.png", "cmcl-xray-anti-causal.png"}


def test_every_seed_has_pictures_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Dataset] = []

    def train(job: Chests, data: Dataset, *rest: Any) -> Any:
        seen.append(data)
        raise RuntimeError("enough")

    monkeypatch.setattr(Chests, "train", train)
    for seed in (0, 1):
        with pytest.raises(RuntimeError, match="enough"):
            CMCL_XRAY.quick[0].run(seed, "cpu", tmp_path)
    assert not torch.equal(seen[0].test.images, seen[1].test.images)
    assert [job.column for job in CMCL_XRAY.jobs if isinstance(job, Chests) and job.data == "covid-cxr"] == ["covid"]
    assert CMCL_XRAY.seeds == CMCL_MNIST.seeds == 5
