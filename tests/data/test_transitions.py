"""Transitions: every pair differs in one factor by one step, splits keep both ends together, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
import os

import numpy as np
import pytest
import torch

from intervae.data import Neighbours, Split, TransitionSplit, Variable, action_factors, build_dataset, load_data, reload, with_transitions
from intervae.data.simulators import Pendulum
from intervae.data.transitions import Transitions, transition_options
from intervae.errors import DataError, UsageError

SIZES = (3, 4, 5)
NAMES = ("shape", "angle", "shade")
SPLITS = ("train", "validation", "test")


def grid_table(sizes=SIZES) -> np.ndarray:
    """All combinations, in values that are no whole numbers and not evenly spaced."""
    return np.array(list(itertools.product(*([0.5 + 0.1 * v**2 for v in range(size)] for size in sizes))))


def grid_data(sizes=SIZES, names=NAMES, table=None, **options):
    table = grid_table(sizes) if table is None else table
    images = np.arange(len(table), dtype=np.int64).astype("<u4").view(np.uint8).reshape(-1, 1, 2, 2)  # a picture is its number
    return build_dataset("made", images, table, [Variable(name) for name in names[: table.shape[1]]], **{"validation": 0.4, "test": 0.3, **options})


def steps_by_hand(split, table, cyclic=()):
    """All (before, after, action) of a split by comparing every two rows."""
    ranks = np.stack([np.unique(np.float32(c), return_inverse=True)[1] for c in table.T], axis=1)
    order = {tuple(np.float32(row)): tuple(rank) for row, rank in zip(table, ranks, strict=True)}
    codes = np.array([order[tuple(row)] for row in split.labels.numpy()])
    sizes = ranks.max(0) + 1
    found = set()
    for i, j in itertools.permutations(range(len(codes)), 2):
        (changed,) = np.nonzero(codes[i] != codes[j])
        if len(changed) == 1:
            f = changed[0]
            difference = codes[j, f] - codes[i, f]
            if f in cyclic:
                difference = (difference + 1) % sizes[f] - 1  # a step down is -1, whichever way round
            if difference in (1, -1):
                found.add((i, j, 2 * f + (difference < 0)))
    return found


def triples(pairs) -> set[tuple[int, int, int]]:
    return set(zip(pairs.before.tolist(), pairs.after.tolist(), pairs.action.tolist(), strict=True))


@pytest.mark.parametrize("cyclic", [(), ("angle",), ("angle", "shade")])
def test_the_pairs_are_those_that_a_comparison_of_all_pictures_finds(cyclic):
    data = with_transitions(grid_data(), cyclic=cyclic)
    for name in SPLITS:
        pairs, split = getattr(data.transitions, name), getattr(data, name)
        assert triples(pairs) == steps_by_hand(split, grid_table(), [NAMES.index(n) for n in cyclic])
        assert len(triples(pairs)) == len(pairs)
        assert pairs.before.dtype == pairs.after.dtype == pairs.action.dtype == torch.int64


def test_counts_follow_the_closed_form_where_all_pictures_are_in_one_split():
    n = math.prod(SIZES)
    validation, test = np.zeros(n, bool), np.zeros(n, bool)
    validation[:5], test[-5:] = True, True  # one row of five shades each
    for cyclic in ((), ("shade",)):
        data = with_transitions(grid_data(validation=validation, test=test), cyclic=cyclic, factors=("shade",))
        steps = SIZES[2] if cyclic else SIZES[2] - 1
        assert data.transitions.train.counts.tolist() == [(n // SIZES[2] - 2) * steps] * 2
        assert data.transitions.test.counts.tolist() == [steps] * 2


def test_actions_are_named_and_opposite():
    data = with_transitions(grid_data())
    assert data.actions == data.spec.actions == ("shape+1", "shape-1", "angle+1", "angle-1", "shade+1", "shade-1")
    pairs = data.transitions.train
    assert pairs.factor_of_action.tolist() == [0, 0, 1, 1, 2, 2]
    assert {(j, i, a ^ 1) for i, j, a in triples(pairs)} == triples(pairs)
    names, of_each = action_factors(data.actions)
    assert names == pairs.factor_names == NAMES
    assert of_each.tolist() == pairs.factor_of_action.tolist()
    with pytest.raises(DataError, match="called after their factor"):
        action_factors(["left"])


def test_only_the_chosen_factors_have_actions_and_the_others_are_held():
    data = with_transitions(grid_data(), factors=("shade",))
    assert data.actions == ("shade+1", "shade-1")
    every = with_transitions(grid_data()).transitions.train
    assert triples(data.transitions.train) == {(i, j, a - 4) for i, j, a in triples(every) if a >= 4}


def test_balanced_gives_every_action_as_many_pairs_as_the_rarest_and_only_true_ones():
    data = grid_data((3, 6, 12))
    every, balanced = with_transitions(data).transitions, with_transitions(data, balanced=True).transitions
    assert len(set(every.train.counts.tolist())) > 1
    for name in SPLITS:
        kept, all_of_them = getattr(balanced, name), getattr(every, name)
        assert kept.counts.tolist() == [int(all_of_them.counts.min())] * 6
        assert triples(kept) < triples(all_of_them)
        assert len(triples(kept)) == len(kept)


def test_draws_make_a_factor_as_frequent_as_it_has_steps():
    """With d draws from m pairs of a step, m (1 - (1 - 1/m)^d) different ones are expected."""
    sizes, draws = (2, 4, 20), 8
    data = grid_data((*sizes, 30), ("a", "b", "c", "d"))
    everything = sum(getattr(with_transitions(data, draws=draws).transitions, name).counts for name in SPLITS).double()
    n = math.prod(sizes) * 30
    together = np.array([sum(getattr(with_transitions(data).transitions, name).counts[2 * f] for name in SPLITS) for f in range(4)])
    candidates = np.array([n / size for size in (*sizes, 30)])
    steps = np.array([size - 1 for size in (*sizes, 30)])
    expected = together * (1 - (1 - 1 / candidates) ** draws)
    np.testing.assert_allclose(everything[::2], expected, atol=4 * np.sqrt(steps * draws / 4).max())
    assert everything[6] > 3 * everything[2] > 3 * everything[0] > 0


def test_training_pairs_may_be_all_while_the_others_are_drawn():
    data = grid_data((6, 7, 8))
    every, drawn, mixed = (with_transitions(data, **how).transitions for how in ({}, {"draws": 9}, {"draws": 9, "train_draws": 0}))
    assert triples(mixed.train) == triples(every.train)
    assert len(mixed.test) < 0.8 * len(every.test)
    assert len(drawn.train) < 0.8 * len(every.train)
    assert triples(mixed.test) < triples(every.test)


@pytest.mark.parametrize("cyclic", [(), ("angle",)])
def test_repeated_actions_lead_to_the_pictures_whose_factor_is_so_many_steps_on(cyclic):
    data = with_transitions(grid_data(), cyclic=cyclic)
    near = Neighbours(data)
    table = torch.cat([getattr(data, name).labels for name in SPLITS])
    rows = torch.arange(len(data.test))
    numbers = near.numbers("test", rows)
    for action in range(6):
        factor, sign = action // 2, 1 - 2 * (action % 2)
        values = torch.unique(table[:, factor])
        found = near.after("test", rows, action, 4)
        assert torch.equal(near.after("test", rows, data.actions[action], 4), found)
        for row, label in enumerate(data.test.labels):
            place = int(torch.searchsorted(values, label[factor]))
            for times in range(1, 5):
                to = place + sign * times
                to = to % len(values) if NAMES[factor] in cyclic else to
                expected = label.clone()
                if not 0 <= to < len(values):
                    assert found[row, times - 1] == -1
                    continue
                expected[factor] = values[to]
                assert torch.equal(table[found[row, times - 1]], expected)
    pictures = torch.cat([getattr(data, name).images for name in SPLITS])
    some = torch.tensor([3, 59, 0, 17, 40])
    assert torch.equal(near.images(some), pictures[some])
    assert torch.equal(near.images(torch.from_numpy(numbers)), data.test.images)
    with pytest.raises(UsageError, match=r"unknown action 'angel\+1'; did you mean 'angle\+1'"):
        near.after("test", rows, "angel+1", 1)
    with pytest.raises(DataError, match="made has no transitions"):
        Neighbours(grid_data())


def test_pairs_of_equal_pictures_are_left_out_on_request():
    data = grid_data()
    hidden = data.train.labels[:, 1] > 0.8  # of these angles the shade does not show
    data.train.images[hidden] = data.train.images[hidden].new_zeros(1)
    every, seen = (with_transitions(data, visible=visible).transitions.train for visible in (False, True))
    assert triples(seen) == {(i, j, a) for i, j, a in triples(every) if not (hidden[i] and hidden[j])}
    assert 0 < len(seen) < len(every)


def test_the_same_seed_draws_the_same_pairs_and_another_seed_others():
    first, again, other = (with_transitions(grid_data((4, 5, 6)), draws=5, seed=seed).transitions.train for seed in (3, 3, 4))
    assert triples(first) == triples(again) != triples(other)


def test_splits_by_picture_are_disjoint_and_70_15_15_and_reload_makes_the_same(tmp_path):
    table = grid_table((6, 7, 8))
    images = np.arange(len(table)).astype("<u4").view(np.uint8).reshape(-1, 1, 2, 2)
    np.savez(tmp_path / "grid.npz", images=images, labels=table, names=NAMES)
    data = load_data(tmp_path / "grid.npz", transitions={"draws": 20}, seed=1)
    ids = [set(getattr(data, name).images.flatten(1).contiguous().view(torch.int32).flatten().tolist()) for name in SPLITS]
    assert [len(i) for i in ids] == [236, 50, 50]
    assert len(set.union(*ids)) == len(table)
    json.dumps(dict(data.source))
    again = reload(data.source)
    for name in SPLITS:
        assert triples(getattr(again.transitions, name)) == triples(getattr(data.transitions, name))
        assert int(getattr(data.transitions, name).before.max()) < len(getattr(data, name))
    assert load_data(tmp_path / "grid.npz").transitions is None
    text = load_data(tmp_path / "grid.npz", transitions="draws=20;seed=1", seed=1)
    assert triples(text.transitions.train) == triples(data.transitions.train)


@pytest.mark.parametrize("splits", ["given", "random"])
@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [
        ({}, [236, 50, 50]),
        ({"validation": 0.1, "test": 0.2}, [242, 27, 67]),  # what they are without transitions, but asked for
        ({"test": 0.5}, [138, 30, 168]),
        ({"validation": 0.5}, [143, 143, 50]),
    ],
)
def test_fractions_that_are_given_are_kept(fractions, sizes, splits, tmp_path):
    table = grid_table((6, 7, 8))
    np.savez(tmp_path / "grid.npz", images=np.zeros((len(table), 2, 2), np.uint8), labels=table, names=NAMES)
    data = load_data(tmp_path / "grid.npz", transitions={"splits": splits}, **fractions)
    assert [len(getattr(data, name)) for name in SPLITS] == sizes
    again = reload(data.source)
    assert again.source == data.source
    assert torch.equal(again.test.labels, data.test.labels)


def test_fractions_of_a_published_split_are_told_to_the_new_one():
    data = with_transitions(Pendulum().dataset(size=8), splits="random", test=0.5)
    n = sum(len(getattr(data, name)) for name in SPLITS)
    assert [len(data.test), len(data.validation)] == [round(n / 2), round(0.15 / 0.85 * (n - round(n / 2)))]


def test_a_variable_that_is_left_out_is_still_held(monkeypatch):
    from intervae.data import registry

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    registry.register("grid", "a made grid", "nothing", lambda: lambda *, seed=0: grid_data(seed=seed))
    data = load_data("grid", variables=["shade", "angle"], transitions=True)
    assert data.names == ("shade", "angle")
    assert data.actions == ("shade+1", "shade-1", "angle+1", "angle-1")
    every = with_transitions(grid_data(), factors=("shade", "angle"))
    assert triples(data.transitions.train) == triples(every.transitions.train)


def test_a_simulators_noises_are_its_factors():
    data = with_transitions(Pendulum().dataset(size=8), splits="random", cyclic=())
    assert data.actions == ("pendulum+1", "pendulum-1", "light+1", "light-1")
    pairs, noises = data.transitions.train, data.train.fields["exogenous"]
    difference = (noises[pairs.after] - noises[pairs.before]).double()
    assert ((difference.abs() > 1e-9).sum(1) == 1).all()
    up = difference[pairs.action == 0, 0]
    torch.testing.assert_close(up, torch.full_like(up, 0.9))
    with pytest.raises(DataError, match=r"the test split has no pair .*splits='random'"):
        with_transitions(Pendulum().dataset(size=8))  # every fourth picture of the grid is a test picture, none beside another


# ---- attributes: many pictures with the same labels ---------------------------------------------------------------------
@pytest.fixture(scope="module")
def faces():
    rng = np.random.default_rng(0)
    table = (rng.random((600, 4)) < [0.5, 0.5, 0.1, 0.9]).astype(float)
    images = np.arange(600).astype("<u4").view(np.uint8).reshape(-1, 1, 2, 2)
    return build_dataset("faces", images, table, [Variable(n, "binary") for n in "abcd"])


def test_pictures_with_equal_attributes_are_paired_with_one_that_agrees_in_the_rest(faces):
    data = with_transitions(faces, unique=False)
    for name in SPLITS:
        pairs, labels = getattr(data.transitions, name), getattr(data, name).labels
        difference = labels[pairs.after] - labels[pairs.before]
        sign = 1.0 - 2.0 * (pairs.action % 2)
        expected = torch.zeros_like(difference)
        expected[torch.arange(len(pairs)), pairs.action // 2] = sign
        assert torch.equal(difference, expected)
        assert len(triples(pairs)) == len(pairs)
    counts = data.transitions.train.counts
    assert (counts[::2] == counts[1::2]).all()
    assert int(counts.min()) > 0.5 * len(data.train)  # a rare attribute too
    again = with_transitions(faces, unique=False)
    assert triples(again.transitions.train) == triples(data.transitions.train)


# ---- a split of pairs ---------------------------------------------------------------------------------------------------
def test_a_batch_of_pairs_holds_both_pictures_and_the_action():
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


# ---- what is refused ----------------------------------------------------------------------------------------------------
def test_pairs_over_cached_codes_are_on_the_device_of_the_codes():
    pool = Split(codes=torch.zeros(4, 3, dtype=torch.int16, device="meta"))
    assert pool.device.type == "meta"
    pairs = Transitions(*(torch.zeros(2, dtype=torch.int64) for _ in range(3)), ("a+1", "a-1"), torch.zeros(2, dtype=torch.int64), ("a",))
    assert TransitionSplit(pool, pairs).transitions.before.device.type == "meta"


def test_two_pictures_with_the_same_factors_are_refused():
    table = np.concatenate([grid_table(), grid_table()[7:8]])
    with pytest.raises(DataError, match=r"made: two pictures have the same factors \(shape=0.5, angle=0.6, shade=0.9\).*unique=False"):
        with_transitions(grid_data(table=table))


def with_a_measurement() -> np.ndarray:
    return np.column_stack([grid_table(), np.random.default_rng(0).normal(size=60)])


def test_continuous_labels_are_refused_and_what_the_refusal_names_leaves_them_aside(tmp_path):
    names = (*NAMES, "weight")
    data = grid_data(names=names, table=with_a_measurement())
    advice = r"pass ignore='weight' \(--data-option \"transitions=ignore=weight\"\)"
    with pytest.raises(DataError, match=f"'weight' has 60 different values in 60 pictures, so it has no steps; .*{advice}"):
        with_transitions(data, factors="shade")
    left_aside, without = with_transitions(data, ignore="weight"), with_transitions(grid_data())
    for name in SPLITS:
        assert triples(getattr(left_aside.transitions, name)) == triples(getattr(without.transitions, name))
    assert left_aside.names == names
    assert left_aside.actions == without.actions
    rows = torch.arange(len(data.test))
    assert torch.equal(Neighbours(left_aside).after("test", rows, 2, 3), Neighbours(without).after("test", rows, 2, 3))
    np.savez(tmp_path / "grid.npz", images=np.zeros((60, 2, 2), np.uint8), labels=with_a_measurement(), names=names)
    text = load_data(tmp_path / "grid.npz", transitions="ignore=weight;factors=angle,shade", validation=0.4, test=0.3)
    assert text.actions == ("angle+1", "angle-1", "shade+1", "shade-1")
    assert triples(reload(text.source).transitions.train) == triples(text.transitions.train)


def test_a_chosen_variable_may_be_left_aside(monkeypatch):
    from intervae.data import registry

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    made = grid_data(names=(*NAMES, "weight"), table=with_a_measurement())
    registry.register("weighed", "a made grid", "nothing", lambda: lambda *, seed=0: made)
    data = load_data("weighed", variables=["shade", "weight"], transitions={"ignore": ["weight"]})
    assert data.names == ("shade", "weight")
    assert data.actions == ("shade+1", "shade-1")
    assert len(Neighbours(load_data("weighed", transitions={"ignore": "weight"})).names) == 3


def test_labels_that_follow_from_each_other_are_refused():
    table = np.array(list(itertools.product(range(6), range(6))), float)
    table = np.column_stack([table, table[:, :1]])
    with pytest.raises(DataError, match="no two pictures differ in 'shape' or 'shade' alone"):
        with_transitions(grid_data(table=table))


def test_too_few_pictures_for_an_action_are_refused():
    test = np.zeros(60, bool)
    test[::13] = True
    with pytest.raises(DataError, match=r"the test split has no pair for any action"):
        with_transitions(grid_data(test=test))


def test_data_without_labels_are_refused():
    with pytest.raises(DataError, match="made has no labels"):
        with_transitions(grid_data().select([]))


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
        (
            {"test": 0.3},
            "test= of transitions is for new splits; pass splits='random' too .*transitions=splits=random;test=0.3.*, or give it to load_data itself",
        ),
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
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        with_transitions(grid_data(), **options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("unique=False", {"unique": False}),
        (" unique = false ; draws=20;", {"unique": False, "draws": 20}),
        ("factors=1;cyclic=2,3;balanced=TRUE", {"factors": "1", "cyclic": "2,3", "balanced": True}),  # columns may be called 1, 2, 3
        ("seed=7", {"seed": 7}),
        ("True", {}),
    ],
)
def test_options_as_one_text_mean_what_they_say(text, options):
    assert transition_options(text) == {"seed": 0, **options}
    assert transition_options("False") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cyclic", "transitions='cyclic' must be true, or options as key=value with ; between them"),
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
def test_a_text_that_says_nothing_clear_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        with_transitions(grid_data(), **transition_options(text))


def test_two_values_are_no_circle():
    with pytest.raises(UsageError, match="it has 2 values, and a circle needs 3 or more"):
        with_transitions(grid_data((2, 4, 5)), cyclic="shape")


def test_unknown_options_of_load_data_are_refused(tmp_path):
    np.savez(tmp_path / "grid.npz", images=np.zeros((60, 2, 2), np.uint8), labels=grid_table(), names=NAMES)
    with pytest.raises(UsageError, match="unknown option of transitions 'cycle'; did you mean 'cyclic'"):
        load_data(tmp_path / "grid.npz", transitions={"cycle": "angle"})
    with pytest.raises(UsageError, match="transitions=3 must be true or options"):
        load_data(tmp_path / "grid.npz", transitions=3)


# ---- the published grids ------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("INTERVAE_DATA"), reason="INTERVAE_DATA names no folder of published data")
def test_the_whole_of_dsprites_has_the_papers_majority():
    """108 steps, 39 of them of the orientation: half of 39 / 108 is 0.18."""
    data = load_data("dsprites", transitions={"draws": 1000})
    assert float(data.transitions.test.counts.max() / len(data.transitions.test)) == pytest.approx(39 / 216, abs=0.01)
    every = with_transitions(data)
    counts = sum(getattr(every.transitions, name).counts for name in SPLITS) / (0.7**2 + 2 * 0.15**2)
    expected = [737280 * (size - 1) / size for size in (3, 6, 40, 32, 32) for _ in range(2)]
    np.testing.assert_allclose(counts, expected, rtol=0.01)
