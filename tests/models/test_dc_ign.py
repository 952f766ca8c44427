"""DC-IGN: batches of groups, clamped latents and their gradients, reserved latents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from intervae.data import Dataset, Split, Variable, build_dataset
from intervae.data.factor_groups import (
    GroupedSplit,
)
from intervae.data.simulators import Pendulum
from intervae.errors import DataError, UsageError
from intervae.models import DCIGN, VAE
from intervae.models.dc_ign import clamp_latents
from label_grids import grid, squares, varying

SMALL = {"latents": 5, "channels": (8, 8), "batch_size": 24, "group_size": 6, "epochs": 2}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return squares(5, 4)


# ---- batches -------------------------------------------------------------------------------
def grouped(model: DCIGN, data: Dataset) -> GroupedSplit:
    split = model.group_images(data, 0).train
    assert isinstance(split, GroupedSplit)
    return split


def test_in_a_group_one_factor_varies_and_its_latent_is_active(
    data: Dataset,
) -> None:
    model = DCIGN(data.spec, **SMALL)
    split = grouped(model, data)
    assert len(split) == len(data.train) // 6
    columns = set()
    for rows in torch.randperm(len(split), generator=torch.Generator().manual_seed(0)).split(4)[
        :-1
    ]:
        batch = split.batch(rows)
        assert batch["images"].shape == (24, 1, 8, 8)
        assert batch["images"].max() <= 1
        for labels, active in zip(batch["labels"].split(6), batch["active"].split(6), strict=True):
            assert (active == active[0]).all()
            column = int(active[0].nonzero())
            assert varying(labels) in ([column], [])  # six samples may be one image
            columns.add(column)
    assert columns == {0, 1, 2}


def test_a_batch_depends_on_its_rows_only_and_covers_all_images(data: Dataset) -> None:
    split = grouped(DCIGN(data.spec, **SMALL), data)
    rows = torch.arange(4)
    assert torch.equal(split.batch(rows)["images"], split.to("cpu").batch(rows)["images"])
    assert not torch.equal(
        split.batch(rows)["labels"], split.batch(torch.tensor([0, 1, 2, 5]))["labels"]
    )
    assert torch.equal(
        split[[7, 3]].batch(torch.tensor([0]))["active"], split.batch(torch.tensor([7]))["active"]
    )
    numbered = Split(
        images=data.train.images, labels=data.train.labels, number=torch.arange(len(data.train))
    )
    split = grouped(DCIGN(data.spec, **SMALL), replace(data, train=numbered))
    counts, generator = torch.zeros(len(numbered)), torch.Generator().manual_seed(0)
    for _ in range(200):
        for rows in torch.randperm(len(split), generator=generator).split(4)[:-1]:
            counts += torch.bincount(split.batch(rows)["number"], minlength=len(counts))
    expected = counts.mean()
    assert counts.min() > 0.4 * expected  # images in groups of one are rarer
    assert counts.max() < 1.5 * expected


# ---- loss ----------------------------------------------------------------------------------
@pytest.mark.parametrize("clamp", ["first", "mean"])
def test_clamping_is_exact_and_keeps_active_latents(clamp: Any) -> None:
    values = torch.randn(12, 5, 2, generator=torch.Generator().manual_seed(0))
    active = (torch.arange(5) == torch.tensor([1, 3, 0]).repeat_interleave(4)[:, None])[
        ..., None
    ]  # three groups of four
    clamped, invariance = clamp_latents(values, active, 4, clamp)
    distance = 0.0
    for group, column in enumerate((1, 3, 0)):
        part = values[4 * group : 4 * group + 4]
        fixed = part[0] if clamp == "first" else part.mean(0)
        for i in range(5):
            after = clamped[4 * group : 4 * group + 4, i]
            assert (
                torch.equal(after, part[:, i])
                if i == column
                else torch.allclose(after, fixed[i].expand(4, 2), atol=1e-7)
            )
            distance += (
                0.0
                if i == column
                else 0.5 * float((part[:, i] - part[:, i].mean(0)).square().sum())
            )
    assert invariance.item() == pytest.approx(distance / 12, rel=1e-5)


@pytest.mark.parametrize("clamp", ["first", "mean"])
def test_gradients_match_the_paper(
    clamp: Any, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Active: clamped latents are constants. Clamped: invariance_strength * (z_i - mean)."""
    model = DCIGN(data.spec, **SMALL, clamp=clamp, invariance_strength=0.3)
    batch = grouped(model, data).batch(torch.arange(4))
    n, noise = len(batch["images"]), torch.Generator()
    generator = torch.Generator().manual_seed(1)
    posterior = [torch.randn(n, 5, 1, generator=generator).requires_grad_() for _ in range(2)]
    monkeypatch.setattr(model, "posterior", lambda images: tuple(posterior))
    terms = model.loss(batch, noise.manual_seed(2))
    gradients = torch.autograd.grad(terms["loss"], posterior)
    assert terms["loss"].item() == pytest.approx(
        (terms["reconstruction"] + terms["kl"] + 0.3 * terms["invariance"]).item(), rel=1e-5
    )

    active = batch["active"][..., None]
    constants = [
        clamp_latents(part.detach(), active, 6, clamp)[0].requires_grad_() for part in posterior
    ]
    draws = torch.randn(n, 5, 1, generator=noise.manual_seed(2)).unflatten(0, (-1, 6))
    draws = torch.where(
        active, draws.flatten(0, 1), draws[:, :1].expand_as(draws).flatten(0, 1)
    )  # noise of the first image
    reconstruction = model.reconstruction_loss(
        constants[0] + torch.exp(0.5 * constants[1]) * draws, batch["images"]
    ).mean()
    kl = (
        kl_divergence(Normal(constants[0], torch.exp(0.5 * constants[1])), Normal(0.0, 1.0))
        .sum((1, 2))
        .mean()
    )
    assert terms["reconstruction"].item() == pytest.approx(reconstruction.item(), rel=1e-6)
    assert terms["kl"].item() == pytest.approx(kl.item(), rel=1e-6)
    for part, gradient, expected in zip(
        posterior, gradients, torch.autograd.grad(reconstruction + kl, constants), strict=True
    ):
        groups = part.detach().unflatten(0, (-1, 6))
        pull = (
            0.3 * (groups - groups.mean(1, keepdim=True)).flatten(0, 1) / n
        )  # mean over the batch
        assert torch.allclose(gradient, torch.where(active, expected, pull), rtol=1e-4, atol=1e-7)
        assert gradient[active.expand_as(gradient)].abs().max() > 1e-4


@pytest.mark.parametrize("clamp", ["first", "mean"])
def test_a_clamped_latent_is_constant_in_its_group(
    clamp: Any, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DCIGN(data.spec, **SMALL, clamp=clamp)
    batch = grouped(model, data).batch(torch.arange(4))
    decoded: list[Tensor] = []
    original = model.reconstruction_loss
    monkeypatch.setattr(
        model,
        "reconstruction_loss",
        lambda z, images: (decoded.append(z.detach()), original(z, images))[1],
    )
    model.loss(batch, torch.Generator().manual_seed(0))
    groups = decoded[0][..., 0].unflatten(0, (-1, 6))  # (4, 6, 5)
    active = batch["active"].unflatten(0, (-1, 6))[:, 0]
    spread = groups.std(1)
    assert (spread[~active] == 0).all()
    assert (spread[active] > 0.1).all()
    for values in groups[:, 0].T:
        assert len(values.unique()) == 4  # different noise per group


def test_without_groups_the_loss_equals_the_vae(data: Dataset) -> None:
    model = DCIGN(data.spec, **SMALL)
    batch = data.train.batch(torch.arange(10))
    own, vae = (
        model.loss(batch, torch.Generator().manual_seed(0)),
        VAE.loss(model, batch, torch.Generator().manual_seed(0)),
    )
    assert {k: v.item() for k, v in own.items()} == pytest.approx(
        {k: v.item() for k, v in vae.items()}
    )


# ---- model ---------------------------------------------------------------------------------
def test_each_factor_is_learned_by_the_latent_reserved_for_it() -> None:
    dataset = squares()
    settings = {
        "latents": 4,
        "channels": (16, 8),
        "batch_size": 32,
        "group_size": 8,
        "learning_rate": 6e-3,
        "epochs": 100,
    }
    model = DCIGN(dataset.spec, **settings)
    model.fit(dataset, seed=0)
    latents = model.encode(dataset.test.images)[..., 0]
    table = np.corrcoef(torch.cat([latents, dataset.test.labels], dim=1).T.numpy())[:4, 4:]
    assert np.abs(table.diagonal()).min() > 0.9, table.round(2)
    assert np.abs(table - np.eye(4, 3) * table).max() < 0.3, table.round(2)


def test_a_dependent_variable_has_no_reserved_latent(
    tmp_path: Any,
) -> None:
    dataset = Pendulum().dataset(size=8, samples=600)
    model = DCIGN(dataset.spec, **SMALL)
    assert model.latent_names == (*dataset.names, "intrinsic4")
    history = model.fit(dataset, out=tmp_path / "run").history
    assert history[-1]["reserved"] == ["pendulum", "light"]
    assert model.latent_names == ("pendulum", "light", "intrinsic2", "intrinsic3", "intrinsic4")
    split = grouped(model, dataset)
    rest = split.tables["active"][-1].tolist()
    assert rest == [False, False, True, True, True]


def test_intrinsic_variables_share_the_other_latents() -> None:
    table = grid(3, 6, 6)
    images = np.zeros((len(table), 1, 8, 8), np.uint8)
    for image, (shape, x, y) in zip(images[:, 0], table.astype(int), strict=True):
        image[y : y + 3, x : x + 3] = (
            255 * np.array([np.ones((3, 3)), np.eye(3), np.eye(3)[::-1]])[shape]
        )
    dataset = build_dataset(
        "shapes", images, table, [Variable("shape", "categorical"), Variable("x"), Variable("y")]
    )
    model = DCIGN(dataset.spec, **SMALL, intrinsic=("shape",))
    assert model.latent_names == ("x", "y", "intrinsic2", "intrinsic3", "intrinsic4")
    split = grouped(model, dataset)
    assert split.tables["active"].int().tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 1, 1],
    ]
    for rows in torch.arange(len(split)).split(1):
        batch = split.batch(rows)
        column = {0: [1], 1: [2], 2: [0]}[int(batch["active"][0].int().argmax())]
        assert varying(batch["labels"]) in (column, [])
    model.fit(dataset)
    without = DCIGN(dataset.spec, **SMALL, intrinsic=("shape",), intrinsic_ratio=0.0)
    assert len(grouped(without, dataset).tables["active"]) == 2


def test_wrong_data_and_settings_are_refused(data: Dataset) -> None:
    with pytest.raises(DataError, match="dc-ign needs labels"):
        DCIGN(data.select([]).spec)
    with pytest.raises(UsageError, match=r"latents=2 .*3 factors \(x, y, size\)"):
        DCIGN(data.spec, latents=2)
    with pytest.raises(
        UsageError, match=r"latents=2 with intrinsic=x .*2 factors \(y, size\) and one for the rest"
    ):
        DCIGN(data.spec, latents=2, intrinsic=("x",))
    with pytest.raises(DataError, match="unknown variable 'shape'"):
        DCIGN(data.spec, intrinsic=("shape",))
    with pytest.raises(UsageError, match="batch_size=10 must be a multiple of group_size=4"):
        DCIGN(data.spec, batch_size=10, group_size=4)
    with pytest.raises(UsageError, match="bins=0"):
        DCIGN(data.spec, bins=0)
    with pytest.raises(DataError, match="fewer than one batch of 320"):
        DCIGN(data.spec).fit(data)
    alike = build_dataset(
        "alike",
        data.train.images,
        np.repeat(np.arange(len(data.train))[:, None] % 7, 2, axis=1),
        [Variable("a"), Variable("b")],
    )
    with pytest.raises(
        DataError, match=r"no training images of alike agree in all of a, b but one"
    ):
        DCIGN(alike.spec, **{**SMALL, "intrinsic": ("b",)}).fit(alike)
