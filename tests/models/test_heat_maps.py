"""Heat maps of latents with known features, in evaluate() and in figures; links to columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae as package
from cross_modal_helpers import SMALL, make, mixed, with_edges
from intervae.data import Dataset
from intervae.data.simulators.xray import XRay
from intervae.errors import QueryError, UsageError
from intervae.evaluation import evaluate
from intervae.metrics import heat_map_energy
from intervae.models.cmcl.model import CMCL
from intervae.models.heat_maps import heat_map, link_column, visible_latents
from intervae.report import write_figures


@pytest.fixture(scope="module")
def chests() -> Dataset:
    return XRay().dataset(size=16, samples=80)


def corner_model(data: Dataset) -> Any:
    """A CMCL without module 2: z1 is the brightness of the top left corner, z2 = -z1."""
    model = CMCL(
        data.spec, **{**SMALL, "causal_module": False, "contrast": False, "channels": (2,)}
    )
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
        model.encoder.dense[1].weight[1], model.encoder.dense[1].weight[2] = (
            corner.flatten(),
            -corner.flatten(),
        )
    return model


def test_the_map_is_large_where_the_features_of_the_latent_are() -> None:
    data = mixed()
    model = corner_model(data)
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
def test_maps_do_not_depend_on_the_size_of_chunks(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = mixed()
    model = make(data, network=network)
    images = data.test.images
    maps = heat_map(model, images, "z0", block=-1)
    monkeypatch.setattr("intervae.models.heat_maps.CHUNK", 5)
    assert torch.allclose(heat_map(model, images, "z0"), maps, atol=1e-5)
    assert maps.shape == (len(images), 8, 8)
    assert 0 <= maps.min() <= maps.max() <= 1
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(QueryError, match="blocks of convolutions"):
        heat_map(model, images, "z0", block=-9)


@pytest.mark.parametrize("name", ["vae", "causal-vae", "ivae"])
def test_any_model_with_convolutions_has_heat_maps(
    name: str, make_model: Any, pendulum: Dataset
) -> None:
    model = make_model(name, pendulum, network="conv")
    labels = pendulum.test.labels[:3] if model.needs_labels else None
    maps = heat_map(model, pendulum.test.images[:3], model.latent_names[0], labels=labels)
    assert maps.shape == (3, *pendulum.spec.image_shape[1:])


def test_features_that_the_reference_shares_are_left_out() -> None:
    """All images have one bright pixel; the map shows only the second one of the image."""
    data = mixed()
    model = corner_model(data)
    reference = torch.zeros(3, 1, 8, 8)
    reference[:, 0, 0, 0] = 1.0
    image = reference[:1].clone()
    image[0, 0, 2, 2] = 1.0
    plain = heat_map(model, image, "z1")[0]
    difference = heat_map(model, image, "z1", reference=reference)[0]
    assert plain[0, 0] > 0.5
    assert difference[0, 0] == 0
    assert difference[2:4, 2:4].max() == 1
    assert not heat_map(model, reference[:1], "z1", reference=reference).any()
    with pytest.raises(QueryError, match="no images"):
        heat_map(model, image, "z1", reference=reference[:0])
    with pytest.raises(QueryError, match="takes no labels"):
        heat_map(model, image, "z1", reference=reference, labels=data.test.labels[:1])


def test_a_heat_map_that_does_not_exist_is_refused() -> None:
    data = mixed()
    with pytest.raises(QueryError, match="no convolutions"):
        heat_map(make(data, network="mlp"), data.test.images, "z0")
    model = make(data)
    with pytest.raises(QueryError, match="z9"):
        heat_map(model, data.test.images, "z9")
    with pytest.raises(QueryError, match="sign"):
        heat_map(model, data.test.images, "z0", sign=0)


def test_a_link_has_the_edge_and_the_sign_of_the_correlation() -> None:
    data = mixed()
    model = with_edges(make(data), ("a", "z2"), ("z1", "b"))
    z = model.encode(data.train.images)[..., 0].numpy()
    cause, effect, none = (link_column(model, data, column) for column in ("a", "b", "c"))
    assert (cause.latent, cause.edge, cause.text) == ("z2", "column -> latent", "a -> z2")
    assert (effect.latent, effect.edge, effect.text) == ("z1", "latent -> column", "z1 -> b")
    assert cause.sign == np.sign(np.corrcoef(z[:, 2], data.train.labels[:, 0])[0, 1])
    assert effect.sign == np.sign(np.corrcoef(z[:, 1], data.train.labels[:, 1])[0, 1])
    assert (none.edge, none.sign) == ("", 1)
    assert "no edge" in none.text


def test_of_several_edges_the_strongest_association_is_linked() -> None:
    """Not the largest weight: weights into a binary column are logits."""
    data = mixed()
    model = with_edges(make(data), ("z1", "b"), ("b", "z3"), ("c", "z0"), ("c", "z2"))
    rows_by_image = {
        picture.numpy().tobytes(): row
        for picture, row in zip(data.train.images, data.train.labels, strict=True)
    }

    def encode(images: torch.Tensor, labels: Any = None) -> torch.Tensor:
        rows = torch.stack([rows_by_image[picture.numpy().tobytes()] for picture in images])
        z = torch.randn(len(images), 4, 1, generator=torch.Generator().manual_seed(0))
        z[:, 3, 0] -= 3 * rows[:, 1]
        z[:, 2, 0] += 4 * (rows[:, 2] == 1)  # not linear in the code of the category
        return z

    model.encode = encode
    model.decode = lambda z: torch.sigmoid(z[:, :, 0].sum(1))[:, None, None, None].expand(
        -1, 1, 8, 8
    )
    model.influence[model.node_names.index("z1"), model.node_names.index("b")] = 9.0
    result = link_column(model, data, "b")
    assert (result.latent, result.edge, result.sign) == ("z3", "column -> latent", -1)
    assert 0.5 < result.association <= 1
    assert link_column(model, data, "c").latent == "z2"


def test_an_invisible_latent_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = mixed()
    model = with_edges(make(data), ("a", "z1"), ("a", "z2"))
    values = {
        picture.numpy().tobytes(): float(row[0])
        for picture, row in zip(data.train.images, data.train.labels, strict=True)
    }

    def encode(images: torch.Tensor, labels: Any = None) -> torch.Tensor:
        z = torch.randn(len(images), 4, 1, generator=torch.Generator().manual_seed(0))
        a = torch.tensor([values[picture.numpy().tobytes()] for picture in images])
        z[:, 1, 0] += a
        z[:, 2, 0] = 1e-3 * a  # follows the column exactly, but is hardly visible
        return z

    model.encode = encode
    model.decode = lambda z: torch.sigmoid(z[:, :, 0].sum(1))[:, None, None, None].expand(
        -1, 1, 8, 8
    )
    assert visible_latents(model, data.train).tolist() == [True, True, False, True]
    assert link_column(model, data, "a").latent == "z1"
    monkeypatch.setattr("intervae.models.heat_maps.MIN_VISIBLE_FRACTION", 0.0)
    assert link_column(model, data, "a").latent == "z2"


def test_evaluate_scores_the_latent_of_the_masked_column(
    chests: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # some latents of an untrained model are hardly visible
    monkeypatch.setattr("intervae.models.heat_maps.MIN_VISIBLE_FRACTION", 0.0)
    model = with_edges(make(chests), ("disease", "z3"), ("dose", "z0"))
    energy, overlap = evaluate(model, chests, ["heat_map"])
    assert energy.parameters["column"] == "disease"
    assert energy.parameters["latent"] == "z3"
    masks = chests.test.fields["mask"].numpy()
    maps = heat_map(model, chests.test.images, "z3", sign=energy.parameters["sign"])
    assert energy.value == pytest.approx(heat_map_energy(maps, masks).value, abs=1e-5)
    assert energy.n == overlap.n == int(masks.any((1, 2)).sum())
    assert energy.parameters["by_chance"]["value"] == pytest.approx(masks[masks.any((1, 2))].mean())


def test_evaluate_says_what_heat_maps_need(chests: Dataset) -> None:
    for model, data in ((make(mixed()), mixed()), (make(chests, network="mlp"), chests)):
        with pytest.raises(UsageError, match="data with masks"):
            evaluate(model, data, ["heat_map"])


def test_heat_maps_are_among_the_figures_of_a_run(chests: Dataset, tmp_path: Path) -> None:
    written = write_figures(make(chests), chests, tmp_path)
    assert tmp_path / "figures" / "heat_maps.png" in written
    assert all(path.is_file() for path in written)
    assert not any(
        "heat" in path.name
        for path in write_figures(make(chests, network="mlp"), chests, tmp_path / "mlp")
    )
