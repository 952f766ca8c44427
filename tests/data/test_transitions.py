"""Transitions: pairs one step apart, draws, splits, and where repeated actions lead."""

from __future__ import annotations

import itertools
import json
import math
import os

import numpy as np
import pytest
import torch

from factor_grids import NAMES, SIZES, SPLITS, grid_data, grid_table, triples
from intervae.data import (
    Neighbours,
    Split,
    TransitionSplit,
    Variable,
    action_factors,
    build_dataset,
    load_data,
    reload,
    with_transitions,
)
from intervae.data.simulators import Pendulum
from intervae.data.transitions import Transitions
from intervae.errors import DataError, UsageError


def compare_all_rows(split, table, cyclic=()):
    """Return (before, after, action) of all rows of a split that are one step apart."""
    ranks = np.stack([np.unique(np.float32(c), return_inverse=True)[1] for c in table.T], axis=1)
    rank_of = {tuple(np.float32(row)): tuple(rank) for row, rank in zip(table, ranks, strict=True)}
    codes = np.array([rank_of[tuple(row)] for row in split.labels.numpy()])
    sizes = ranks.max(0) + 1
    steps = set()
    for i, j in itertools.permutations(range(len(codes)), 2):
        (changed,) = np.nonzero(codes[i] != codes[j])
        if len(changed) == 1:
            f = changed[0]
            difference = codes[j, f] - codes[i, f]
            if f in cyclic:
                difference = (difference + 1) % sizes[f] - 1
            if difference in (1, -1):
                steps.add((i, j, 2 * f + (difference < 0)))
    return steps


# ---- which pairs ---------------------------------------------------------------------------------
@pytest.mark.parametrize("cyclic", [(), ("angle",), ("angle", "shade")])
def test_pairs_equal_those_of_a_comparison_of_all_images(cyclic):
    data = with_transitions(grid_data(), cyclic=cyclic)
    for name in SPLITS:
        pairs, split = getattr(data.transitions, name), getattr(data, name)
        expected = compare_all_rows(split, grid_table(), [NAMES.index(n) for n in cyclic])
        assert triples(pairs) == expected
        assert len(triples(pairs)) == len(pairs)
        assert pairs.before.dtype == pairs.after.dtype == pairs.action.dtype == torch.int64


def test_counts_of_complete_rows_have_a_closed_form():
    n = math.prod(SIZES)
    validation, test = np.zeros(n, bool), np.zeros(n, bool)
    validation[:5], test[-5:] = True, True  # one row of five shades each
    data = grid_data(validation=validation, test=test)
    for cyclic in ((), ("shade",)):
        transitions = with_transitions(data, cyclic=cyclic, factors=("shade",)).transitions
        steps = SIZES[2] if cyclic else SIZES[2] - 1
        assert transitions.train.counts.tolist() == [(n // SIZES[2] - 2) * steps] * 2
        assert transitions.test.counts.tolist() == [steps] * 2


def test_each_factor_has_two_opposite_actions():
    data = with_transitions(grid_data())
    names = ("shape+1", "shape-1", "angle+1", "angle-1", "shade+1", "shade-1")
    assert data.actions == data.spec.actions == names
    pairs = data.transitions.train
    assert pairs.factor_of_action.tolist() == [0, 0, 1, 1, 2, 2]
    assert {(j, i, a ^ 1) for i, j, a in triples(pairs)} == triples(pairs)
    factors, factor_of_action = action_factors(data.actions)
    assert factors == pairs.factor_names == NAMES
    assert factor_of_action.tolist() == pairs.factor_of_action.tolist()
    with pytest.raises(DataError, match="called after their factor"):
        action_factors(["left"])


def test_only_chosen_factors_change():
    data = with_transitions(grid_data(), factors=("shade",))
    assert data.actions == ("shade+1", "shade-1")
    all_pairs = triples(with_transitions(grid_data()).transitions.train)
    expected = {(i, j, a - 4) for i, j, a in all_pairs if a >= 4}
    assert triples(data.transitions.train) == expected


def test_factors_outside_of_variables_stay_equal(monkeypatch):
    from intervae.data import registry

    monkeypatch.setattr(registry, "DATASETS", registry.DATASETS.copy())
    registry.register(
        "grid", "a made grid", "nothing", lambda: lambda *, seed=0: grid_data(seed=seed)
    )
    data = load_data("grid", variables=["shade", "angle"], transitions=True)
    assert data.names == ("shade", "angle")
    assert data.actions == ("shade+1", "shade-1", "angle+1", "angle-1")
    expected = with_transitions(grid_data(), factors=("shade", "angle"))
    assert triples(data.transitions.train) == triples(expected.transitions.train)


def test_factors_of_a_simulator_are_its_noises():
    data = with_transitions(Pendulum().dataset(size=8), splits="random", cyclic=())
    assert data.actions == ("pendulum+1", "pendulum-1", "light+1", "light-1")
    pairs, noises = data.transitions.train, data.train.fields["exogenous"]
    difference = (noises[pairs.after] - noises[pairs.before]).double()
    assert ((difference.abs() > 1e-9).sum(1) == 1).all()
    up = difference[pairs.action == 0, 0]
    torch.testing.assert_close(up, torch.full_like(up, 0.9))
    # every fourth image of the grid is a test image, so no two of them are neighbours
    with pytest.raises(DataError, match=r"the test split has no pair .*splits='random'"):
        with_transitions(Pendulum().dataset(size=8))


def test_pairs_of_equal_images_are_left_out_on_request():
    data = grid_data()
    hidden = data.train.labels[:, 1] > 0.8  # at these angles the shade does not show
    data.train.images[hidden] = data.train.images[hidden].new_zeros(1)
    all_pairs, visible = (
        with_transitions(data, visible=visible).transitions.train for visible in (False, True)
    )
    expected = {(i, j, a) for i, j, a in triples(all_pairs) if not (hidden[i] and hidden[j])}
    assert triples(visible) == expected
    assert 0 < len(visible) < len(all_pairs)


def test_images_with_equal_attributes_are_paired_at_random():
    rng = np.random.default_rng(0)
    table = (rng.random((600, 4)) < [0.5, 0.5, 0.1, 0.9]).astype(float)
    images = np.arange(600).astype("<u4").view(np.uint8).reshape(-1, 1, 2, 2)
    faces = build_dataset("faces", images, table, [Variable(n, "binary") for n in "abcd"])
    data = with_transitions(faces, unique=False)
    for name in SPLITS:
        pairs, labels = getattr(data.transitions, name), getattr(data, name).labels
        difference = labels[pairs.after] - labels[pairs.before]
        expected = torch.zeros_like(difference)
        sign = 1.0 - 2.0 * (pairs.action % 2)
        expected[torch.arange(len(pairs)), pairs.action // 2] = sign
        assert torch.equal(difference, expected)
        assert len(triples(pairs)) == len(pairs)
    counts = data.transitions.train.counts
    assert (counts[::2] == counts[1::2]).all()
    assert int(counts.min()) > 0.5 * len(data.train)  # also of a rare attribute
    again = with_transitions(faces, unique=False)
    assert triples(again.transitions.train) == triples(data.transitions.train)


# ---- how many pairs ------------------------------------------------------------------------------
def test_balanced_actions_have_as_many_pairs_as_the_rarest():
    data = grid_data((3, 6, 12))
    all_pairs = with_transitions(data).transitions
    balanced = with_transitions(data, balanced=True).transitions
    assert len(set(all_pairs.train.counts.tolist())) > 1
    for name in SPLITS:
        chosen, possible = getattr(balanced, name), getattr(all_pairs, name)
        assert chosen.counts.tolist() == [int(possible.counts.min())] * 6
        assert triples(chosen) < triples(possible)
        assert len(triples(chosen)) == len(chosen)


def test_draws_make_a_factor_as_frequent_as_its_number_of_steps():
    """d draws from the m pairs of a step select m (1 - (1 - 1/m)^d) different ones on average."""
    sizes, draws = (2, 4, 20, 30), 8
    data = grid_data(sizes, ("a", "b", "c", "d"))

    def total_counts(**options):
        transitions = with_transitions(data, **options).transitions
        return sum(getattr(transitions, name).counts for name in SPLITS)[::2].numpy()

    counts, candidates = total_counts(draws=draws), math.prod(sizes) / np.array(sizes)
    expected = total_counts() * (1 - (1 - 1 / candidates) ** draws)
    tolerance = 4 * np.sqrt((np.array(sizes) - 1) * draws / 4).max()
    np.testing.assert_allclose(counts, expected, atol=tolerance)
    assert counts[3] > 3 * counts[1] > 3 * counts[0] > 0


def test_training_pairs_may_have_draws_of_their_own():
    data = grid_data((6, 7, 8))
    all_pairs, drawn, mixed = (
        with_transitions(data, **options).transitions
        for options in ({}, {"draws": 9}, {"draws": 9, "train_draws": 0})
    )
    assert triples(mixed.train) == triples(all_pairs.train)
    assert len(mixed.test) < 0.8 * len(all_pairs.test)
    assert len(drawn.train) < 0.8 * len(all_pairs.train)
    assert triples(mixed.test) < triples(all_pairs.test)


def test_draws_depend_on_the_seed():
    first, again, different = (
        with_transitions(grid_data((4, 5, 6)), draws=5, seed=seed).transitions.train
        for seed in (3, 3, 4)
    )
    assert triples(first) == triples(again) != triples(different)


# ---- splits --------------------------------------------------------------------------------------
def test_splits_are_disjoint_and_reload_makes_the_same_pairs(tmp_path):
    table, path = grid_table((6, 7, 8)), tmp_path / "grid.npz"
    images = np.arange(len(table)).astype("<u4").view(np.uint8).reshape(-1, 1, 2, 2)
    np.savez(path, images=images, labels=table, names=NAMES)
    data = load_data(path, transitions={"draws": 20}, seed=1)
    ids = [
        set(getattr(data, name).images.flatten(1).contiguous().view(torch.int32).flatten().tolist())
        for name in SPLITS
    ]
    assert [len(i) for i in ids] == [236, 50, 50]
    assert len(set.union(*ids)) == len(table)
    json.dumps(dict(data.source))
    again = reload(data.source)
    for name in SPLITS:
        assert triples(getattr(again.transitions, name)) == triples(getattr(data.transitions, name))
        assert int(getattr(data.transitions, name).before.max()) < len(getattr(data, name))
    assert load_data(path).transitions is None
    text = load_data(path, transitions="draws=20;seed=1", seed=1)
    assert triples(text.transitions.train) == triples(data.transitions.train)


@pytest.mark.parametrize("splits", ["given", "random"])
@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [
        ({}, [236, 50, 50]),
        ({"validation": 0.1, "test": 0.2}, [242, 27, 67]),  # the defaults without transitions
        ({"test": 0.5}, [138, 30, 168]),
        ({"validation": 0.5}, [143, 143, 50]),
    ],
)
def test_fractions_set_the_sizes_of_splits(fractions, sizes, splits, tmp_path):
    table, path = grid_table((6, 7, 8)), tmp_path / "grid.npz"
    np.savez(path, images=np.zeros((len(table), 2, 2), np.uint8), labels=table, names=NAMES)
    data = load_data(path, transitions={"splits": splits}, **fractions)
    assert [len(getattr(data, name)) for name in SPLITS] == sizes
    again = reload(data.source)
    assert again.source == data.source
    assert torch.equal(again.test.labels, data.test.labels)


def test_random_splits_replace_published_ones():
    data = with_transitions(Pendulum().dataset(size=8), splits="random", test=0.5)
    n = sum(len(getattr(data, name)) for name in SPLITS)
    assert len(data.test) == round(n / 2)
    assert len(data.validation) == round(0.15 / 0.85 * (n - round(n / 2)))


def test_a_batch_of_pairs_holds_both_images_and_the_action():
    data = with_transitions(grid_data())
    pairs = data.transitions.train
    split = TransitionSplit(data.train, pairs)
    rows = torch.tensor([0, 7, 3])
    batch = split.batch(rows)
    assert set(batch) == {"images", "labels", "after_images", "after_labels", "action"}
    assert (len(split), len(split[:5]), split.shape) == (len(pairs), 5, data.train.shape)
    torch.testing.assert_close(batch["after_images"], data.train.images[pairs.after[rows]] / 255)
    assert torch.equal(batch["labels"], data.train.labels[pairs.before[rows]])
    assert torch.equal(split[rows].batch(torch.arange(3))["action"], pairs.action[rows])
    codes = torch.randint(0, 64, (len(data.train), 16))
    cached = TransitionSplit(Split(codes=codes), pairs).batch(rows)
    assert torch.equal(cached["after_codes"], codes[pairs.after[rows]])
    assert torch.equal(cached["codes"], codes[pairs.before[rows]])


def test_pairs_move_to_the_device_of_cached_codes():
    pool = Split(codes=torch.zeros(4, 3, dtype=torch.int16, device="meta"))
    assert pool.device.type == "meta"
    rows = [torch.zeros(2, dtype=torch.int64) for _ in range(4)]
    pairs = Transitions(*rows[:3], ("a+1", "a-1"), rows[3], ("a",))
    assert TransitionSplit(pool, pairs).transitions.before.device.type == "meta"


# ---- repeated actions ----------------------------------------------------------------------------
@pytest.mark.parametrize("cyclic", [(), ("angle",)])
def test_repeated_actions_lead_to_images_as_many_steps_away(cyclic):
    data = with_transitions(grid_data(), cyclic=cyclic)
    neighbours = Neighbours(data)
    table = torch.cat([getattr(data, name).labels for name in SPLITS])
    rows = torch.arange(len(data.test))
    for action in range(6):
        factor, sign = action // 2, 1 - 2 * (action % 2)
        values = torch.unique(table[:, factor])
        numbers = neighbours.after("test", rows, action, 4)
        assert torch.equal(neighbours.after("test", rows, data.actions[action], 4), numbers)
        for row, label in enumerate(data.test.labels):
            start = int(torch.searchsorted(values, label[factor]))
            for times in range(1, 5):
                end = start + sign * times
                end = end % len(values) if NAMES[factor] in cyclic else end
                if not 0 <= end < len(values):
                    assert numbers[row, times - 1] == -1
                    continue
                expected = label.clone()
                expected[factor] = values[end]
                assert torch.equal(table[numbers[row, times - 1]], expected)
    with pytest.raises(UsageError, match=r"unknown action 'angel\+1'; did you mean 'angle\+1'"):
        neighbours.after("test", rows, "angel+1", 1)


def test_images_are_numbered_over_all_splits():
    data = with_transitions(grid_data())
    neighbours = Neighbours(data)
    images = torch.cat([getattr(data, name).images for name in SPLITS])
    some = torch.tensor([3, 59, 0, 17, 40])
    assert torch.equal(neighbours.images(some), images[some])
    numbers = torch.from_numpy(neighbours.numbers("test", torch.arange(len(data.test))))
    assert torch.equal(neighbours.images(numbers), data.test.images)
    with pytest.raises(DataError, match="made has no transitions"):
        Neighbours(grid_data())


# ---- published grids -----------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("INTERVAE_DATA"), reason="INTERVAE_DATA names no folder of published data"
)
def test_dsprites_has_the_majority_of_the_paper():
    """39 of 108 steps change the orientation, in two directions: 0.18."""
    data = load_data("dsprites", transitions={"draws": 1000})
    majority = float(data.transitions.test.counts.max() / len(data.transitions.test))
    assert majority == pytest.approx(39 / 216, abs=0.01)
    transitions = with_transitions(data).transitions
    counts = sum(getattr(transitions, name).counts for name in SPLITS) / (0.7**2 + 2 * 0.15**2)
    expected = [737280 * (size - 1) / size for size in (3, 6, 40, 32, 32) for _ in range(2)]
    np.testing.assert_allclose(counts, expected, rtol=0.01)
