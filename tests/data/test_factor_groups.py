"""Groups of images in which one factor varies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from intervae.data import Dataset, Variable
from intervae.data.factor_groups import (
    FactorGroups,
    RowGroups,
    find_factors,
    label_codes,
)
from intervae.data.simulators import Flow, Pendulum
from label_grids import grid, squares, varying


@pytest.fixture(scope="module")
def data() -> Dataset:
    return squares(5, 4)


def members(groups: RowGroups) -> list[Tensor]:
    return [
        groups.rows[start : start + size]
        for start, size in zip(groups.start.tolist(), groups.size.tolist(), strict=True)
    ]


def find(table: np.ndarray, **options: Any) -> FactorGroups:
    return find_factors(
        torch.tensor(table), [Variable(f"v{i}") for i in range(table.shape[1])], **options
    )


def test_in_a_group_exactly_one_factor_varies(data: Dataset) -> None:
    labels = data.train.labels
    factor_groups = find_factors(labels, data.variables)
    assert list(factor_groups.factors) == [0, 1, 2]
    assert not factor_groups.bound
    assert not len(factor_groups.rest)  # the labels determine the images
    for column, groups in factor_groups.factors.items():
        assert len(groups) > 10
        for rows in members(groups):
            assert varying(labels[rows]) == [column]
        others = labels[:, [i for i in range(3) if i != column]]
        held = [tuple(others[rows[0]].tolist()) for rows in members(groups)]
        assert len(set(held)) == len(held)  # one group per combination
        assert sum(map(len, members(groups))) == len(labels) - sum(
            1 for row in others if (others == row).all(1).sum() == 1
        )


def test_intrinsic_variables_vary_in_the_rest_only() -> None:
    table = grid(3, 4, 5)
    factor_groups = find(table, intrinsic=[0])
    assert list(factor_groups.factors) == [1, 2]
    labels = torch.tensor(table)
    assert all(
        varying(labels[rows]) == [column]
        for column, groups in factor_groups.factors.items()
        for rows in members(groups)
    )
    assert len(factor_groups.rest) == 20
    assert all(varying(labels[rows]) == [0] for rows in members(factor_groups.rest))


def test_unlabelled_variation_is_in_the_rest() -> None:
    factor_groups = find(np.repeat(grid(3, 4), 5, axis=0))  # five images per combination
    assert list(factor_groups.factors) == [0, 1]
    assert factor_groups.rest.size.tolist() == [5] * 12


def test_many_values_are_binned_by_quantiles_and_few_are_not() -> None:
    rng = np.random.default_rng(0)
    table = torch.tensor(
        np.stack(
            [rng.exponential(size=1000), rng.integers(0, 30, 1000), rng.normal(size=1000)], axis=1
        )
    )
    kinds = [Variable("a"), Variable("b"), Variable("c", "categorical")]
    codes = label_codes(table, kinds, 8)
    assert torch.bincount(codes[:, 0]).tolist() == [125] * 8
    assert (codes[table[:, 0].argsort(), 0].diff() >= 0).all()
    assert torch.equal(codes[:, 1].double(), table[:, 1])
    assert len(codes[:, 2].unique()) == 1000


@pytest.mark.parametrize("simulator", [Pendulum(), Flow()], ids=["pendulum", "flow"])
def test_variables_determined_by_others_have_no_groups(simulator: Any) -> None:
    dataset = simulator.dataset(size=8, samples=1500)
    factor_groups = find_factors(dataset.train.labels, dataset.variables)
    expected = {"pendulum": ["shadow_length", "shadow_position"], "flow": ["flow"]}[dataset.name]
    assert [dataset.names[i] for i in factor_groups.bound] == expected
    for (
        column,
        groups,
    ) in factor_groups.factors.items():  # others agree within a bin
        inside = torch.cat(
            [
                dataset.train.labels[rows] - dataset.train.labels[rows].mean(0)
                for rows in members(groups)
            ]
        )
        spread = inside.std(0) / dataset.train.labels.std(0)
        assert spread[column] > 0.7
        assert all(spread[i] < 0.45 for i in factor_groups.factors if i != column)


def test_many_columns_do_not_overflow_the_group_code() -> None:
    rng = np.random.default_rng(0)
    held = np.stack(
        [rng.permutation(256) % 128 for _ in range(12)], axis=1
    )  # 128^12 combinations exceed 64 bits
    moved = held + (np.arange(12) == 0)
    table = np.concatenate(
        [np.insert(part, 0, value, axis=1) for part in (held, moved % 128) for value in (0, 1)]
    ).astype(float)
    groups = find_factors(
        torch.tensor(table),
        [Variable(f"v{i}", "binary" if i == 0 else "categorical") for i in range(13)],
        intrinsic=range(1, 13),
    ).factors[0]
    assert groups.size.tolist() == [2] * 512
    assert all(varying(torch.tensor(table)[rows]) == [0] for rows in members(groups))
