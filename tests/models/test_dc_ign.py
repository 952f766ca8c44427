"""DC-IGN: groups that share the other labels, latents clamped exactly, gradients as the paper says, factors in their reserved latents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from intervae.data.base import Dataset, Split, Variable, build_dataset
from intervae.data.factors import FactorGroups, GroupedSplit, Groups, find_factors, label_codes
from intervae.data.simulators import Flow, Pendulum
from intervae.errors import DataError, UsageError
from intervae.models import DCIGN, VAE
from intervae.models.dc_ign import clamp_latents

SMALL = {"latents": 5, "channels": (8, 8), "batch_size": 24, "group_size": 6, "epochs": 2}


def grid(*counts: int) -> np.ndarray:
    """Every combination of so many values of each variable."""
    return np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, len(counts)).astype(float)


def squares(positions: int = 8, sizes: int = 6, side: int = 8) -> Dataset:
    """A bright square at every place in every size."""
    table = grid(positions, positions, sizes)
    x, y, size = (table / (np.array([positions, positions, sizes]) - 1)).T
    half, pixel = side * (0.06 + 0.22 * size), np.arange(side) + 0.5

    def cover(centre: np.ndarray) -> np.ndarray:
        return np.clip(half[:, None] + 0.5 - np.abs(pixel - side * (0.25 + 0.5 * centre)[:, None]), 0, 1)

    images = (255 * cover(y)[:, :, None] * cover(x)[:, None, :]).astype(np.uint8)[:, None]
    return build_dataset("squares", images, table, [Variable("x"), Variable("y"), Variable("size")])


@pytest.fixture(scope="module")
def data() -> Dataset:
    return squares(5, 4)


def members(groups: Groups) -> list[Tensor]:
    return [groups.rows[start : start + size] for start, size in zip(groups.start.tolist(), groups.size.tolist(), strict=True)]


def varying(table: Tensor) -> list[int]:
    return torch.nonzero((table != table[:1]).any(0))[:, 0].tolist()


def find(table: np.ndarray, **options: Any) -> FactorGroups:
    return find_factors(torch.tensor(table), [Variable(f"v{i}") for i in range(table.shape[1])], **options)


# ---- groups ---------------------------------------------------------------------------------------------------------
def test_in_a_group_exactly_one_factor_varies(data: Dataset) -> None:
    labels = data.train.labels
    found = find_factors(labels, data.variables)
    assert list(found.factors) == [0, 1, 2]
    assert not found.bound
    assert not len(found.rest)  # the labels say everything
    for column, groups in found.factors.items():
        assert len(groups) > 10
        for rows in members(groups):
            assert varying(labels[rows]) == [column]
        others = labels[:, [i for i in range(3) if i != column]]
        held = [tuple(others[rows[0]].tolist()) for rows in members(groups)]
        assert len(set(held)) == len(held)  # one group for each combination, and all of its rows
        assert sum(map(len, members(groups))) == len(labels) - sum(1 for row in others if (others == row).all(1).sum() == 1)


def test_intrinsic_variables_are_held_with_the_factors_and_vary_in_the_rest() -> None:
    table = grid(3, 4, 5)
    found = find(table, intrinsic=[0])
    assert list(found.factors) == [1, 2]
    labels = torch.tensor(table)
    assert all(varying(labels[rows]) == [column] for column, groups in found.factors.items() for rows in members(groups))
    assert len(found.rest) == 20
    assert all(varying(labels[rows]) == [0] for rows in members(found.rest))


def test_what_the_labels_do_not_say_varies_in_the_rest() -> None:
    found = find(np.repeat(grid(3, 4), 5, axis=0))  # five pictures of each combination
    assert list(found.factors) == [0, 1]
    assert found.rest.size.tolist() == [5] * 12


def test_values_of_many_are_cut_into_bins_of_equal_counts_and_few_are_kept() -> None:
    rng = np.random.default_rng(0)
    table = torch.tensor(np.stack([rng.exponential(size=1000), rng.integers(0, 30, 1000), rng.normal(size=1000)], axis=1))
    kinds = [Variable("a"), Variable("b"), Variable("c", "categorical")]
    codes = label_codes(table, kinds, 8)
    assert torch.bincount(codes[:, 0]).tolist() == [125] * 8
    assert (codes[table[:, 0].argsort(), 0].diff() >= 0).all()
    assert torch.equal(codes[:, 1].double(), table[:, 1])
    assert len(codes[:, 2].unique()) == 1000


@pytest.mark.parametrize("simulator", [Pendulum(), Flow()], ids=["pendulum", "flow"])
def test_variables_that_follow_from_others_get_no_groups(simulator: Any) -> None:
    made = simulator.dataset(size=8, samples=1500)
    found = find_factors(made.train.labels, made.variables)
    expected = {"pendulum": ["shadow_length", "shadow_position"], "flow": ["flow"]}[made.name]
    assert [made.names[i] for i in found.bound] == expected
    for column, groups in found.factors.items():  # others agree within a bin, the factor moves over its range
        inside = torch.cat([made.train.labels[rows] - made.train.labels[rows].mean(0) for rows in members(groups)])
        spread = inside.std(0) / made.train.labels.std(0)
        assert spread[column] > 0.7
        assert all(spread[i] < 0.45 for i in found.factors if i != column)


def test_columns_beyond_what_a_number_holds_are_still_told_apart() -> None:
    rng = np.random.default_rng(0)
    held = np.stack([rng.permutation(256) % 128 for _ in range(12)], axis=1)  # 128^12 combinations: the first columns would be shifted out
    moved = held + (np.arange(12) == 0)
    table = np.concatenate([np.insert(part, 0, value, axis=1) for part in (held, moved % 128) for value in (0, 1)]).astype(float)
    groups = find_factors(
        torch.tensor(table), [Variable(f"v{i}", "binary" if i == 0 else "categorical") for i in range(13)], intrinsic=range(1, 13)
    ).factors[0]
    assert groups.size.tolist() == [2] * 512
    assert all(varying(torch.tensor(table)[rows]) == [0] for rows in members(groups))


# ---- batches --------------------------------------------------------------------------------------------------------
def grouped(model: DCIGN, data: Dataset) -> GroupedSplit:
    split = model.group_images(data, 0).train
    assert isinstance(split, GroupedSplit)
    return split


def test_a_batch_is_groups_of_which_one_factor_varies_and_its_latent_is_active(data: Dataset) -> None:
    model = DCIGN(data.spec, **SMALL)
    split = grouped(model, data)
    assert len(split) == len(data.train) // 6
    seen = set()
    for rows in torch.randperm(len(split), generator=torch.Generator().manual_seed(0)).split(4)[:-1]:
        batch = split.batch(rows)
        assert batch["images"].shape == (24, 1, 8, 8)
        assert batch["images"].max() <= 1
        for labels, active in zip(batch["labels"].split(6), batch["active"].split(6), strict=True):
            assert (active == active[0]).all()
            column = int(active[0].nonzero())
            assert varying(labels) in ([column], [])  # six draws may all be one image
            seen.add(column)
    assert seen == {0, 1, 2}


def test_a_batch_depends_on_its_rows_alone_and_every_image_comes_up(data: Dataset) -> None:
    split = grouped(DCIGN(data.spec, **SMALL), data)
    rows = torch.arange(4)
    assert torch.equal(split.batch(rows)["images"], split.to("cpu").batch(rows)["images"])
    assert not torch.equal(split.batch(rows)["labels"], split.batch(torch.tensor([0, 1, 2, 5]))["labels"])
    assert torch.equal(split[[7, 3]].batch(torch.tensor([0]))["active"], split.batch(torch.tensor([7]))["active"])
    numbered = Split(images=data.train.images, labels=data.train.labels, number=torch.arange(len(data.train)))
    split = grouped(DCIGN(data.spec, **SMALL), replace(data, train=numbered))
    counts, generator = torch.zeros(len(numbered)), torch.Generator().manual_seed(0)
    for _ in range(200):
        for rows in torch.randperm(len(split), generator=generator).split(4)[:-1]:
            counts += torch.bincount(split.batch(rows)["number"], minlength=len(counts))
    expected = counts.mean()
    assert counts.min() > 0.4 * expected  # an image alone in its group for one factor comes up less often
    assert counts.max() < 1.5 * expected


# ---- the loss -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("clamp", ["first", "mean"])
def test_clamping_is_exact_and_leaves_what_is_active(clamp: Any) -> None:
    values = torch.randn(12, 5, 2, generator=torch.Generator().manual_seed(0))
    active = (torch.arange(5) == torch.tensor([1, 3, 0]).repeat_interleave(4)[:, None])[..., None]  # three groups of four
    clamped, invariance = clamp_latents(values, active, 4, clamp)
    distance = 0.0
    for group, column in enumerate((1, 3, 0)):
        part = values[4 * group : 4 * group + 4]
        taken = part[0] if clamp == "first" else part.mean(0)
        for i in range(5):
            after = clamped[4 * group : 4 * group + 4, i]
            assert torch.equal(after, part[:, i]) if i == column else torch.allclose(after, taken[i].expand(4, 2), atol=1e-7)
            distance += 0.0 if i == column else 0.5 * float((part[:, i] - part[:, i].mean(0)).square().sum())
    assert invariance.item() == pytest.approx(distance / 12, rel=1e-5)


@pytest.mark.parametrize("clamp", ["first", "mean"])
def test_gradients_are_those_of_the_paper(clamp: Any, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Active: as if the clamped latents were constants. Clamped: invariance_strength * (z_i - batch mean), nothing else."""
    model = DCIGN(data.spec, **SMALL, clamp=clamp, invariance_strength=0.3)
    batch = grouped(model, data).batch(torch.arange(4))
    n, noise = len(batch["images"]), torch.Generator()
    generator = torch.Generator().manual_seed(1)
    posterior = [torch.randn(n, 5, 1, generator=generator).requires_grad_() for _ in range(2)]
    monkeypatch.setattr(model, "posterior", lambda images: tuple(posterior))
    terms = model.loss(batch, noise.manual_seed(2))
    found = torch.autograd.grad(terms["loss"], posterior)
    assert terms["loss"].item() == pytest.approx((terms["reconstruction"] + terms["kl"] + 0.3 * terms["invariance"]).item(), rel=1e-5)

    active = batch["active"][..., None]
    constants = [clamp_latents(part.detach(), active, 6, clamp)[0].requires_grad_() for part in posterior]
    draws = torch.randn(n, 5, 1, generator=noise.manual_seed(2)).unflatten(0, (-1, 6))
    draws = torch.where(active, draws.flatten(0, 1), draws[:, :1].expand_as(draws).flatten(0, 1))  # that of the group's first image
    reconstruction = model.misfit(constants[0] + torch.exp(0.5 * constants[1]) * draws, batch["images"]).mean()
    kl = kl_divergence(Normal(constants[0], torch.exp(0.5 * constants[1])), Normal(0.0, 1.0)).sum((1, 2)).mean()
    assert terms["reconstruction"].item() == pytest.approx(reconstruction.item(), rel=1e-6)
    assert terms["kl"].item() == pytest.approx(kl.item(), rel=1e-6)
    for part, gradient, expected in zip(posterior, found, torch.autograd.grad(reconstruction + kl, constants), strict=True):
        groups = part.detach().unflatten(0, (-1, 6))
        pull = 0.3 * (groups - groups.mean(1, keepdim=True)).flatten(0, 1) / n  # the loss is a mean over the batch
        assert torch.allclose(gradient, torch.where(active, expected, pull), rtol=1e-4, atol=1e-7)
        assert gradient[active.expand_as(gradient)].abs().max() > 1e-4


@pytest.mark.parametrize("clamp", ["first", "mean"])
def test_a_clamped_latent_is_one_number_in_its_group_noise_and_all(clamp: Any, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = DCIGN(data.spec, **SMALL, clamp=clamp)
    batch = grouped(model, data).batch(torch.arange(4))
    decoded: list[Tensor] = []
    honest = model.misfit
    monkeypatch.setattr(model, "misfit", lambda z, images: (decoded.append(z.detach()), honest(z, images))[1])
    model.loss(batch, torch.Generator().manual_seed(0))
    groups = decoded[0][..., 0].unflatten(0, (-1, 6))  # (4, 6, 5)
    active = batch["active"].unflatten(0, (-1, 6))[:, 0]
    spread = groups.std(1)
    assert (spread[~active] == 0).all()
    assert (spread[active] > 0.1).all()
    for values in groups[:, 0].T:
        assert len(values.unique()) == 4  # another group has another noise


def test_without_groups_the_loss_is_that_of_a_vae(data: Dataset) -> None:
    model = DCIGN(data.spec, **SMALL)
    batch = data.train.batch(torch.arange(10))
    mine, theirs = model.loss(batch, torch.Generator().manual_seed(0)), VAE.loss(model, batch, torch.Generator().manual_seed(0))
    assert {k: v.item() for k, v in mine.items()} == pytest.approx({k: v.item() for k, v in theirs.items()})


# ---- the model ------------------------------------------------------------------------------------------------------
def test_each_factor_is_learned_by_the_latent_reserved_for_it() -> None:
    made = squares()
    settings = {"latents": 4, "channels": (16, 8), "batch_size": 32, "group_size": 8, "learning_rate": 6e-3, "epochs": 100}
    model = DCIGN(made.spec, **settings)
    model.fit(made, seed=0)
    latents = model.encode(made.test.images)[..., 0]
    table = np.corrcoef(torch.cat([latents, made.test.labels], dim=1).T.numpy())[:4, 4:]
    assert np.abs(table.diagonal()).min() > 0.9, table.round(2)
    assert np.abs(table - np.eye(4, 3) * table).max() < 0.3, table.round(2)


def test_a_variable_that_never_varies_alone_has_no_reserved_latent_and_the_log_says_so(tmp_path: Any) -> None:
    made = Pendulum().dataset(size=8, samples=600)
    model = DCIGN(made.spec, **SMALL)
    assert model.latent_names == (*made.names, "intrinsic4")
    history = model.fit(made, out=tmp_path / "run").history
    assert history[-1]["reserved"] == ["pendulum", "light"]
    assert model.latent_names == ("pendulum", "light", "intrinsic2", "intrinsic3", "intrinsic4")
    split = grouped(model, made)
    rest = split.tables["active"][-1].tolist()
    assert rest == [False, False, True, True, True]


def test_intrinsic_variables_share_the_other_latents() -> None:
    table = grid(3, 6, 6)
    images = np.zeros((len(table), 1, 8, 8), np.uint8)
    for image, (shape, x, y) in zip(images[:, 0], table.astype(int), strict=True):
        image[y : y + 3, x : x + 3] = 255 * np.array([np.ones((3, 3)), np.eye(3), np.eye(3)[::-1]])[shape]
    made = build_dataset("shapes", images, table, [Variable("shape", "categorical"), Variable("x"), Variable("y")])
    model = DCIGN(made.spec, **SMALL, intrinsic=("shape",))
    assert model.latent_names == ("x", "y", "intrinsic2", "intrinsic3", "intrinsic4")
    split = grouped(model, made)
    assert split.tables["active"].int().tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 1]]
    for rows in torch.arange(len(split)).split(1):
        batch = split.batch(rows)
        column = {0: [1], 1: [2], 2: [0]}[int(batch["active"][0].int().argmax())]
        assert varying(batch["labels"]) in (column, [])
    model.fit(made)
    without = DCIGN(made.spec, **SMALL, intrinsic=("shape",), intrinsic_ratio=0.0)
    assert len(grouped(without, made).tables["active"]) == 2


def test_what_cannot_be_trained_is_refused_in_a_sentence(data: Dataset) -> None:
    with pytest.raises(DataError, match="dc-ign needs labels"):
        DCIGN(data.select([]).spec)
    with pytest.raises(UsageError, match=r"latents=2 .*3 factors \(x, y, size\)"):
        DCIGN(data.spec, latents=2)
    with pytest.raises(UsageError, match=r"latents=2 with intrinsic=x .*2 factors \(y, size\) and one for the rest"):
        DCIGN(data.spec, latents=2, intrinsic=("x",))
    with pytest.raises(DataError, match="unknown variable 'shape'"):
        DCIGN(data.spec, intrinsic=("shape",))
    with pytest.raises(UsageError, match="batch_size=10 must be a multiple of group_size=4"):
        DCIGN(data.spec, batch_size=10, group_size=4)
    with pytest.raises(UsageError, match="bins=0"):
        DCIGN(data.spec, bins=0)
    with pytest.raises(DataError, match="fewer than one batch of 320"):
        DCIGN(data.spec).fit(data)
    alike = build_dataset("alike", data.train.images, np.repeat(np.arange(len(data.train))[:, None] % 7, 2, axis=1), [Variable("a"), Variable("b")])
    with pytest.raises(DataError, match=r"no training images of alike agree in all of a, b but one"):
        DCIGN(alike.spec, **{**SMALL, "intrinsic": ("b",)}).fit(alike)
