"""Transitions of small tables of one's own: what is noted, and what a refusal advises does work."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from PIL import Image

from intervae.data import Variable, build_dataset, load_data, with_transitions
from intervae.errors import DataError


def test_actions_without_a_test_pair_are_noted_and_a_larger_test_split_has_some(tmp_path):
    """A grid of 10 x 6 pictures in the splits of the paper: the two test pairs are both of y."""
    np.savez(tmp_path / "grid.npz", images=np.full((60, 2, 2), 9, np.uint8), labels=list(itertools.product(range(10), range(6))), names=("x", "y"))
    small = load_data(tmp_path / "grid.npz", transitions=True)
    assert small.transitions.test.counts.tolist() == [0, 0, 1, 1]
    note = (
        "transitions: the test split has no pair for x+1, x-1, so these are never tested; give a larger test= (--data-option test=) or more pictures"
    )
    assert small.notes == ("column 'x': numbers", "column 'y': numbers", note)
    larger = load_data(tmp_path / "grid.npz", transitions=True, test=0.4)
    assert larger.transitions.test.counts.min() > 0
    missing = "transitions: the validation split has no pair for y+1, y-1, so training cannot tell how well it learns these; give a larger "
    assert larger.notes == (*small.notes[:2], missing + "validation= (--data-option validation=) or more pictures")
    assert load_data(tmp_path / "grid.npz", transitions=True, test=0.4, validation=0.4).notes == small.notes[:2]
    assert with_transitions(small, factors="y").notes == small.notes[:2]  # what was said of other pairs is gone
    assert with_transitions(small).notes == small.notes
    with pytest.raises(DataError, match=r"the test split has no pair for the action x\+1"):
        with_transitions(small, balanced=True)


def test_the_note_on_actions_without_a_test_pair_is_cut():
    table = np.array(list(itertools.product(range(3), repeat=5)), float)
    test = np.zeros(len(table), bool)
    test[:2] = True  # they differ in the last factor alone
    variables = [Variable(name) for name in "abcde"]
    (note,) = with_transitions(build_dataset("made", np.zeros((len(table), 1, 2, 2), np.uint8), table, variables, validation=0.3, test=test)).notes
    assert "no pair for a+1, a-1, b+1, b-1, c+1, c-1, ... (8 in all), so" in note


def test_one_factor_that_differs_in_every_picture_has_no_steps_and_what_the_refusal_advises_works():
    grey = np.random.default_rng(0).uniform(size=(60, 1))

    def load(values, **options):
        made = build_dataset("made", np.zeros((60, 1, 2, 2), np.uint8), values, [Variable("grey")], validation=0.2, test=0.2)
        return with_transitions(made, **options)

    advice = r"pass unique=False \(--data-option \"transitions=unique=false\"\), which ct-vae takes with picture_epochs=0"
    with pytest.raises(DataError, match=f"'grey' has 60 different values in 60 pictures and is the only factor, .* round it and {advice}") as refused:
        load(grey)
    assert "ignore=" not in str(refused.value)
    with pytest.raises(DataError, match=rf"the same factors \(grey=[\d.]+\).* to pair pictures .*{advice}"):
        load(grey.round(1))
    assert load(grey.round(1), unique=False).actions == ("grey+1", "grey-1")


def test_a_value_that_hardly_any_picture_has_is_noted():
    """A misprint, 3.01 for 3, is a value of its own, and parts 3 from 4."""
    table = np.array(list(itertools.product(range(5), range(12))), float)
    table[41, 0] = 3.01
    made = build_dataset("made", np.zeros((60, 1, 2, 2), np.uint8), table, [Variable("x"), Variable("y")], validation=0.3, test=0.3)
    seldom = [note for note in with_transitions(made).notes if "the value" in note]
    assert seldom == [
        "transitions: the value x=3.01 has 1 picture only, where the others have 12 on average; if it is misprinted, steps to its neighbours are lost"
    ]
    assert with_transitions(with_transitions(made), factors="y").notes == ()
    table[41, 0] = 3
    assert with_transitions(build_dataset("made", np.zeros((60, 1, 2, 2), np.uint8), table, made.variables, validation=0.3, test=0.3)).notes == ()


# ---- a table with words ---------------------------------------------------------------------------------------------
WORDS = {"x": list("123456"), "size": ["small", "medium", "large"], "seen": ["no", "yes"]}


def write_table(folder, columns, keep=lambda *place: True):
    """A picture for each combination of the columns' values, but for those whose places among the values are not kept."""
    places = [place for place in itertools.product(*(range(len(values)) for values in columns.values())) if keep(*place)]
    rows = [[f"{i}.png", *(values[at] for values, at in zip(columns.values(), place, strict=True))] for i, place in enumerate(places)]
    folder.mkdir(exist_ok=True)
    for i in range(len(rows)):
        Image.new("L", (4, 4), i).save(folder / f"{i}.png")
    (folder / "labels.csv").write_text("\n".join(map(",".join, [["file", *columns], *rows])) + "\n")
    return folder


def test_steps_in_the_order_of_words_are_noted_and_numbers_give_the_order_that_is_meant(tmp_path):
    data = load_data(write_table(tmp_path / "words", WORDS), transitions=True, validation=0.4, test=0.3)
    (note,) = [note for note in data.notes if note.startswith("transitions")]
    order = "go in the order of its words (large, medium, small); numbers in the table instead of words give another order"
    assert note == f"transitions: the steps of 'size' {order}"
    pairs, labels = data.transitions.train, data.train.labels[:, 1]
    up = pairs.action == data.actions.index("size+1")
    assert set(zip(labels[pairs.before[up]].tolist(), labels[pairs.after[up]].tolist(), strict=True)) == {(0, 1), (1, 2)}
    assert data.variables[1].categories == ("large", "medium", "small")
    assert with_transitions(data, factors="x").notes == tuple(note for note in data.notes if not note.startswith("transitions"))
    many = {"x": list("123"), "colour": ["red", "green", "blue", "black", "white"]}
    several = load_data(write_table(tmp_path / "many", many), transitions=True, validation=0.4, test=0.4)
    assert "(black, blue, green, red, ... (5 in all))" in " ".join(several.notes)
    numbers = load_data(write_table(tmp_path / "numbers", {**WORDS, "size": ["1", "2", "3"]}), transitions=True, validation=0.4, test=0.3)
    assert not any(note.startswith("transitions") for note in numbers.notes)


def test_two_pictures_with_the_same_factors_are_told_by_their_words(tmp_path):
    folder = write_table(tmp_path / "words", WORDS)
    with (folder / "labels.csv").open("a") as file:
        file.write("again.png,4,medium,yes\n")
    Image.new("L", (4, 4)).save(folder / "again.png")
    with pytest.raises(DataError, match=r"two pictures have the same factors \(x=4, size=medium, seen=yes\)"):
        load_data(folder, transitions=True)


# ---- what a refusal advises -----------------------------------------------------------------------------------------
def test_a_table_without_any_pair_is_refused_once(tmp_path):
    folder = write_table(tmp_path / "parity", WORDS, keep=lambda *place: sum(place) % 2)
    with pytest.raises(DataError, match="no two pictures differ in one factor alone, by one step, so there is no pair at all"):
        load_data(folder, transitions=True)
    with pytest.raises(DataError, match="no two pictures differ in 'x' or 'seen' alone, by one step, so there is no pair at all"):
        load_data(folder, transitions="factors=x,seen")
    with pytest.raises(DataError, match="no two pictures differ in 'x' alone, by one step, so there is no pair at all"):
        load_data(folder, transitions="factors=x;draws=3")


def test_all_factors_without_a_pair_are_named_at_once_and_so_are_those_to_keep(tmp_path):
    folder = write_table(
        tmp_path / "half", {**WORDS, "x": [str(x) for x in range(14)]}, keep=lambda x, size, seen: (x + size) % 2
    )  # these two never change alone
    advice = r"differ in 'x' or 'size' alone, .* leave it out with factors='seen' \(--data-option \"transitions=factors=seen\"\)"
    with pytest.raises(DataError, match=advice):
        load_data(folder, transitions=True, test=0.3)
    assert load_data(folder, transitions="factors=seen", validation=0.4, test=0.3).actions == ("seen+1", "seen-1")


def test_all_columns_without_steps_are_named_at_once(tmp_path):
    rng = np.random.default_rng(0)
    table = np.column_stack([np.array(list(itertools.product(range(10), range(6)))), rng.normal(size=(60, 2))])
    np.savez(tmp_path / "grid.npz", images=np.zeros((60, 2, 2), np.uint8), labels=table, names=("x", "y", "weight", "age"))
    advice = r"'weight' has 60 .*ignore='weight,age' \(--data-option \"transitions=ignore=weight,age\"\) if the two of a pair may differ in these"
    with pytest.raises(DataError, match=advice):
        load_data(tmp_path / "grid.npz", transitions=True)
    assert load_data(tmp_path / "grid.npz", transitions="ignore=weight,age").actions == ("x+1", "x-1", "y+1", "y-1")
    with pytest.raises(DataError, match="'weight' has 60 different values in 60 pictures and no other factor has few, so there is nothing"):
        load_data(tmp_path / "grid.npz", transitions=True, variables=["weight", "age"])


@pytest.mark.parametrize(
    ("options", "said", "better"),
    [
        (
            {"test": 0.02},
            r"test split has no pair for any action; give a larger test= \(--data-option test=\) or more",
            {"test": 0.3, "validation": 0.3},
        ),
        ({"validation": 0.02}, r"validation split has .* give a larger validation= \(--data-option validation=\)", {"validation": 0.3}),
        ({"test": 0.95}, r"train split has .* give a smaller test= \(--data-option test=\)", {"test": 0.3, "validation": 0.3}),
        (
            {"transitions": "splits=random;test=0.02"},
            r"test split has .* give a larger test= \(--data-option \"transitions=splits=random;test=\"\)",
            {"transitions": "splits=random;test=0.3"},
        ),
        (
            {"transitions": "draws=1", "test": 0.1},
            r"split has no pair for any action; draw more pairs, such as draws=1000 \(--data-option \"transitions=draws=1000\"\), or give a larger",
            {"transitions": "draws=1000", "test": 0.2},
        ),
        (
            {"transitions": "draws=1000;train_draws=1", "test": 0.8},
            r"train split has .*; draw more pairs, such as train_draws=1000 .*, or give a smaller test=(, or leave the factor out.*)?\.$",
            {"transitions": "draws=1000;train_draws=1000", "test": 0.3, "validation": 0.3},
        ),
    ],
)
def test_a_split_without_a_pair_is_cured_by_what_the_refusal_advises(options, said, better, tmp_path):
    table = list(itertools.product(range(10), range(6)))
    np.savez(tmp_path / "grid.npz", images=np.zeros((60, 2, 2), np.uint8), labels=table, names=("x", "y"))
    with pytest.raises(DataError, match=said) as refused:
        load_data(tmp_path / "grid.npz", **{"transitions": True, **options})
    assert "splits='random'" not in str(refused.value)
    assert load_data(tmp_path / "grid.npz", **{"transitions": True, **options, **better}).actions == ("x+1", "x-1", "y+1", "y-1")


def test_splits_that_came_with_the_data_may_be_drawn_anew(tmp_path):
    folder = write_table(tmp_path / "split", {"x": list("123456"), "y": list("12345")})
    header, *rows = (folder / "labels.csv").read_text().splitlines()
    marked = [f"{row},{'test' if i % 7 == 0 else 'train'}" for i, row in enumerate(rows)]
    (folder / "labels.csv").write_text("\n".join([f"{header},split", *marked]))
    with pytest.raises(DataError, match=r"draw other splits with splits='random' \(--data-option \"transitions=splits=random\"\), or give more"):
        load_data(folder, transitions=True, validation=0.3)
    with pytest.raises(DataError, match=r"draws=1000\"\), or other splits with splits='random'"):
        load_data(folder, transitions="draws=5", validation=0.3)
    assert load_data(folder, transitions="splits=random;test=0.3", validation=0.3).actions == ("x+1", "x-1", "y+1", "y-1")
