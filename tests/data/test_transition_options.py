"""Options of transitions: their texts, and errors for unsuitable labels and wrong options."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from factor_grids import NAMES, SPLITS, grid_data, grid_table, triples
from intervae.data import Neighbours, load_data, reload, with_transitions
from intervae.data.transition_options import transition_options
from intervae.errors import DataError, UsageError

MEASURED = (*NAMES, "weight")


def table_with_measurement() -> np.ndarray:
    """Return a grid with a column that has a different value for every image."""
    return np.column_stack([grid_table(), np.random.default_rng(0).normal(size=60)])


# ---- unsuitable labels ---------------------------------------------------------------------------
def test_equal_factors_of_two_images_raise():
    table = np.concatenate([grid_table(), grid_table()[7:8]])
    values = r"shape=0.5, angle=0.6, shade=0.9"
    words = rf"made: two images have the same factors \({values}\).*unique=False"
    with pytest.raises(DataError, match=words):
        with_transitions(grid_data(table=table))


def test_a_continuous_factor_raises_and_may_be_ignored():
    data = grid_data(names=MEASURED, table=table_with_measurement())
    advice = r"pass ignore='weight' \(--data-option \"transitions=ignore=weight\"\)"
    words = f"'weight' has 60 different values in 60 images, so it has no steps; .*{advice}"
    with pytest.raises(DataError, match=words):
        with_transitions(data, factors="shade")
    ignoring, without = with_transitions(data, ignore="weight"), with_transitions(grid_data())
    for name in SPLITS:
        expected = triples(getattr(without.transitions, name))
        assert triples(getattr(ignoring.transitions, name)) == expected
    assert ignoring.names == MEASURED
    assert ignoring.actions == without.actions
    rows = torch.arange(len(data.test))
    expected = Neighbours(without).after("test", rows, 2, 3)
    assert torch.equal(Neighbours(ignoring).after("test", rows, 2, 3), expected)


def test_ignored_columns_may_be_given_as_text(tmp_path):
    path, images = tmp_path / "grid.npz", np.zeros((60, 2, 2), np.uint8)
    np.savez(path, images=images, labels=table_with_measurement(), names=MEASURED)
    options = "ignore=weight;factors=angle,shade"
    data = load_data(path, transitions=options, validation=0.4, test=0.3)
    assert data.actions == ("angle+1", "angle-1", "shade+1", "shade-1")
    assert triples(reload(data.source).transitions.train) == triples(data.transitions.train)


def test_a_chosen_variable_may_be_ignored(monkeypatch):
    from intervae.data import registry

    monkeypatch.setattr(registry, "DATASETS", registry.DATASETS.copy())
    grid = grid_data(names=MEASURED, table=table_with_measurement())
    registry.register("weighed", "a made grid", "nothing", lambda: lambda *, seed=0: grid)
    data = load_data("weighed", variables=["shade", "weight"], transitions={"ignore": ["weight"]})
    assert data.names == ("shade", "weight")
    assert data.actions == ("shade+1", "shade-1")
    assert len(Neighbours(load_data("weighed", transitions={"ignore": "weight"})).names) == 3


def test_factors_that_never_change_alone_raise():
    table = np.array(list(itertools.product(range(6), range(6))), float)
    table = np.column_stack([table, table[:, :1]])
    with pytest.raises(DataError, match="no two images differ in 'shape' or 'shade' alone"):
        with_transitions(grid_data(table=table))


def test_a_split_without_pairs_raises():
    test = np.zeros(60, bool)
    test[::13] = True
    with pytest.raises(DataError, match=r"the test split has no pair for any action"):
        with_transitions(grid_data(test=test))


def test_data_without_labels_raises():
    with pytest.raises(DataError, match="made has no labels"):
        with_transitions(grid_data().select([]))


# ---- wrong options -------------------------------------------------------------------------------
NEW_SPLITS = "test= of transitions is for new splits; pass splits='random' too "
NEW_SPLITS += ".*transitions=splits=random;test=0.3.*, or give it to load_data itself"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cyclic": ("tint",)}, "unknown factor in cyclic 'tint'"),
        ({"factors": "shades"}, "unknown factor in factors 'shades'; did you mean 'shade'"),
        ({"cyclic": "angle", "factors": "shade"}, "unknown factor in cyclic 'angle'"),
        ({"draws": 0}, "draws=0 must be a whole number, 1 or more"),
        ({"train_draws": -1}, "train_draws=-1 must be a whole number, 0 or more"),
        ({"splits": "new"}, "unknown splits of transitions 'new'"),
        ({"ignore": "weight"}, "unknown factor in ignore 'weight'"),
        ({"ignore": "shade", "factors": "shade"}, "unknown factor in factors 'shade'"),
        ({"ignore": NAMES}, "made: ignore= leaves no factor"),
        ({"test": 0.3}, NEW_SPLITS),
        ({"test": 2, "splits": "random"}, "test=2 must be a fraction between 0 and 1"),
        ({"balanced": "no"}, "balanced='no' must be true or false"),
        ({"unique": 0}, "unique=0 must be true or false"),
        ({"factors": ""}, "made: factors='' names no factor"),
        ({"factors": []}, r"made: factors=\[\] names no factor"),
        ({"cyclic": 3}, "cyclic=3 must be names"),
        ({"seed": "x"}, "seed='x' must be a whole number, 0 or more"),
        ({"seed": None}, "seed=None must be a whole number, 0 or more"),
        ({"seed": -1}, "seed=-1 must be a whole number, 0 or more"),
    ],
)
def test_wrong_options_raise(options, message):
    with pytest.raises(UsageError, match=message):
        with_transitions(grid_data(), **options)


def test_a_cycle_needs_three_values():
    with pytest.raises(UsageError, match="it has 2 values; a cycle needs 3 or more"):
        with_transitions(grid_data((2, 4, 5)), cyclic="shape")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("unique=False", {"unique": False}),
        (" unique = false ; draws=20;", {"unique": False, "draws": 20}),
        # columns may be called 1, 2, 3
        (
            "factors=1;cyclic=2,3;balanced=TRUE",
            {"factors": "1", "cyclic": "2,3", "balanced": True},
        ),
        ("seed=7", {"seed": 7}),
        ("True", {}),
    ],
)
def test_options_may_be_one_text(text, options):
    assert transition_options(text) == {"seed": 0, **options}
    assert transition_options("False") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cyclic", "transitions='cyclic' must be true, or options as key=value with ; between"),
        ("yes", "transitions='yes' must be true, or options as key=value"),
        ("draws=1;yes", "transitions='draws=1;yes' must be true, or options"),
        ("=1", "transitions: '=1' is not of the form key=value"),
        ("draws=1;draws=2", "transitions: 'draws=1;draws=2' gives an option twice"),
        ("", "transitions='' must be true or options"),
        ("balanced=no", "balanced='no' must be true or false"),
        ("draws=2.5", "draws=2.5 must be a whole number"),
        ("seed=x", "seed='x' must be a whole number"),
    ],
)
def test_wrong_texts_raise(text, message):
    with pytest.raises(UsageError, match=message):
        with_transitions(grid_data(), **transition_options(text))


def test_unknown_options_of_load_data_raise(tmp_path):
    path = tmp_path / "grid.npz"
    np.savez(path, images=np.zeros((60, 2, 2), np.uint8), labels=grid_table(), names=NAMES)
    words = "unknown option of transitions 'cycle'; did you mean 'cyclic'"
    with pytest.raises(UsageError, match=words):
        load_data(path, transitions={"cycle": "angle"})
    with pytest.raises(UsageError, match="transitions=3 must be true or options"):
        load_data(path, transitions=3)
