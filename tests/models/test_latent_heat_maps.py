"""Heat maps of latents: of models with known features, through evaluate() and among the pictures of a run; which latent goes with a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cross_modal_helpers import SMALL, make, mixed, with_edges

import intervae as package
from intervae.data.base import Dataset
from intervae.data.simulators.xray import XRay
from intervae.errors import QueryError, UsageError
from intervae.evaluation import evaluate
from intervae.metrics import heat_map_energy
from intervae.models.cmcl import CMCL
from intervae.models.heat_maps import heat_map, link, shown
from intervae.report import write_figures


@pytest.fixture(scope="module")
def chests() -> Dataset:
    return XRay().dataset(size=16, samples=80)


def looking_at_a_corner(data: Dataset) -> Any:
    """A CMCL without module 2 whose latent z1 is large where the top left corner is bright, and z2 = -z1."""
    model = CMCL(data.spec, **{**SMALL, "causal_module": False, "contrast": False, "channels": (2,)})
    layers = model.encoder.convolutions
    with torch.no_grad():
        for layer in (layers[0], layers[2]):  # pass brightness on, channel by channel
            layer.weight.zero_()
            layer.bias.zero_()
        layers[0].weight[0, 0, 1, 1], layers[0].bias[0] = 1.0, 1.0  # 2 x - 1 + 1
        layers[2].weight[0, 0, 1, 1] = 1.0
        rows = model.encoder.dense[1].weight.shape[1] // 2
        side = int(rows**0.5)
        corner = torch.zeros(2, side, side)
        corner[0, : side // 2, : side // 2] = 1.0
        model.encoder.dense[1].weight.zero_()
        model.encoder.dense[1].weight[1], model.encoder.dense[1].weight[2] = corner.flatten(), -corner.flatten()
    return model


def test_the_map_is_hot_where_the_features_of_the_latent_are() -> None:
    data = mixed()
    model = looking_at_a_corner(data)
    images = torch.zeros(2, 1, 8, 8)
    images[0, 0, :2, :2], images[1, 0, :2, 4:] = 1.0, 1.0
    maps = heat_map(model, images, "z1")
    assert maps.shape == (2, 8, 8)
    assert maps[0, :2, :2].min() > 0.5
    assert maps[0, 4:].max() == 0
    assert float(maps[0].min()) == 0
    assert float(maps[0].max()) == 1
    assert torch.equal(heat_map(model, images, "z2", sign=-1), maps)
    assert not heat_map(model, images, "z2").any()  # nothing raises it
    assert torch.equal(package.heat_map(model, images.mul(255).byte(), "z1"), maps)


@pytest.mark.parametrize("network", ["pairs", "conv"])
def test_maps_of_the_same_latent_at_every_block_and_in_any_batch(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = mixed()
    model = make(data, network=network)
    images = data.test.images
    whole = heat_map(model, images, "z0", block=-1)
    monkeypatch.setattr("intervae.models.heat_maps.AT_ONCE", 5)
    assert torch.allclose(heat_map(model, images, "z0"), whole, atol=1e-5)
    assert whole.shape == (len(images), 8, 8)
    assert 0 <= whole.min() <= whole.max() <= 1
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(QueryError, match="blocks of convolutions"):
        heat_map(model, images, "z0", block=-9)


@pytest.mark.parametrize("name", ["vae", "causal-vae", "ivae"])
def test_any_model_with_convolutions_has_them(name: str, make_model: Any, pendulum: Dataset) -> None:
    model = make_model(name, pendulum, network="conv")
    labels = pendulum.test.labels[:3] if model.needs_labels else None
    maps = heat_map(model, pendulum.test.images[:3], model.latent_names[0], labels=labels)
    assert maps.shape == (3, *pendulum.spec.image_shape[1:])


def test_against_a_reference_only_what_is_new_is_hot() -> None:
    """Both pictures are bright at one corner pixel; only one of them has another, which alone is left of its map."""
    data = mixed()
    model = looking_at_a_corner(data)
    usual = torch.zeros(3, 1, 8, 8)
    usual[:, 0, 0, 0] = 1.0
    image = usual[:1].clone()
    image[0, 0, 2, 2] = 1.0
    plain, against = heat_map(model, image, "z1")[0], heat_map(model, image, "z1", reference=usual)[0]
    assert plain[0, 0] > 0.5
    assert against[0, 0] == 0
    assert against[2:4, 2:4].max() == 1
    assert not heat_map(model, usual[:1], "z1", reference=usual).any()
    with pytest.raises(QueryError, match="no pictures"):
        heat_map(model, image, "z1", reference=usual[:0])


def test_what_has_no_heat_map_is_refused() -> None:
    data = mixed()
    with pytest.raises(QueryError, match="no convolutions"):
        heat_map(make(data, network="mlp"), data.test.images, "z0")
    model = make(data)
    with pytest.raises(QueryError, match="z9"):
        heat_map(model, data.test.images, "z9")
    with pytest.raises(QueryError, match="sign"):
        heat_map(model, data.test.images, "z0", sign=0)


def test_a_column_goes_with_its_edge_and_the_sign_of_the_correlation() -> None:
    data = mixed()
    model = with_edges(make(data), ("a", "z2"), ("z1", "b"))
    z = model.encode(data.train.images)[..., 0].numpy()
    cause, effect, none = (link(model, data, column) for column in ("a", "b", "c"))
    assert (cause.latent, cause.edge, cause.words) == ("z2", "column -> latent", "a -> z2")
    assert (effect.latent, effect.edge, effect.words) == ("z1", "latent -> column", "z1 -> b")
    assert cause.sign == np.sign(np.corrcoef(z[:, 2], data.train.labels[:, 0])[0, 1])
    assert effect.sign == np.sign(np.corrcoef(z[:, 1], data.train.labels[:, 1])[0, 1])
    assert (none.edge, none.sign) == ("", 1)
    assert "no edge" in none.words


def test_of_several_edges_the_strongest_association_counts_not_the_weight() -> None:
    """Weights into a binary column are in logits and may be large where there is hardly anything to tell."""
    data = mixed()
    model = with_edges(make(data), ("z1", "b"), ("b", "z3"), ("c", "z0"), ("c", "z2"))
    labels = {picture.numpy().tobytes(): row for picture, row in zip(data.train.images, data.train.labels, strict=True)}

    def encode(images: torch.Tensor, given: Any = None) -> torch.Tensor:
        rows = torch.stack([labels[picture.numpy().tobytes()] for picture in images])
        z = torch.randn(len(images), 4, 1, generator=torch.Generator().manual_seed(0))
        z[:, 3, 0] -= 3 * rows[:, 1]
        z[:, 2, 0] += 4 * (rows[:, 2] == 1)  # not straight in the code of the category
        return z

    model.encode = encode
    model.decode = lambda z: torch.sigmoid(z[:, :, 0].sum(1))[:, None, None, None].expand(-1, 1, 8, 8)
    model.influence[model.node_names.index("z1"), model.node_names.index("b")] = 9.0
    found = link(model, data, "b")
    assert (found.latent, found.edge, found.sign) == ("z3", "column -> latent", -1)
    assert 0.5 < found.association <= 1
    assert link(model, data, "c").latent == "z2"


def test_a_latent_that_no_picture_shows_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    data = mixed()
    model = with_edges(make(data), ("a", "z1"), ("a", "z2"))
    values = {picture.numpy().tobytes(): float(row[0]) for picture, row in zip(data.train.images, data.train.labels, strict=True)}

    def encode(images: torch.Tensor, given: Any = None) -> torch.Tensor:
        z = torch.randn(len(images), 4, 1, generator=torch.Generator().manual_seed(0))
        a = torch.tensor([values[picture.numpy().tobytes()] for picture in images])
        z[:, 1, 0] += a
        z[:, 2, 0] = 1e-3 * a  # follows the column exactly, but is hardly there
        return z

    model.encode = encode
    model.decode = lambda z: torch.sigmoid(z[:, :, 0].sum(1))[:, None, None, None].expand(-1, 1, 8, 8)
    assert shown(model, data.train).tolist() == [True, True, False, True]
    assert link(model, data, "a").latent == "z1"
    monkeypatch.setattr("intervae.models.heat_maps.LEAST_SHOWN", 0.0)
    assert link(model, data, "a").latent == "z2"


def test_evaluate_scores_the_latent_of_the_column_that_tells_of_masks(chests: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intervae.models.heat_maps.LEAST_SHOWN", 0.0)  # an untrained model shows some latents hardly at all
    model = with_edges(make(chests), ("disease", "z3"), ("dose", "z0"))
    energy, overlap = evaluate(model, chests, ["heat_map"])
    assert energy.parameters["column"] == "disease"
    assert energy.parameters["latent"] == "z3"
    masks = chests.test.fields["mask"].numpy()
    maps = heat_map(model, chests.test.images, "z3", sign=energy.parameters["sign"])
    assert energy.value == pytest.approx(heat_map_energy(maps, masks).value, abs=1e-5)
    assert energy.n == overlap.n == int(masks.any((1, 2)).sum())
    assert energy.parameters["by_chance"]["value"] == pytest.approx(masks[masks.any((1, 2))].mean())


def test_without_masks_or_convolutions_evaluate_says_what_it_needs(chests: Dataset) -> None:
    for model, data in ((make(mixed()), mixed()), (make(chests, network="mlp"), chests)):
        with pytest.raises(UsageError, match="data with masks"):
            evaluate(model, data, ["heat_map"])


def test_the_picture_is_among_those_of_a_run(chests: Dataset, tmp_path: Path) -> None:
    written = write_figures(make(chests), chests, tmp_path)
    assert tmp_path / "figures" / "heat_maps.png" in written
    assert all(path.is_file() for path in written)
    assert not any("heat" in path.name for path in write_figures(make(chests, network="mlp"), chests, tmp_path / "mlp"))
