"""Transitions of small tables of one's own: notes, and errors whose advice works."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from note_texts import note_texts
from PIL import Image

from intervae.data import Variable, build_dataset, load_data, with_transitions
from intervae.errors import DataError
from intervae.notes import Note

XY_ACTIONS = ("x+1", "x-1", "y+1", "y-1")


def write_grid(path):
    """Write a grid of 10 x 6 images."""
    np.savez(
        path,
        images=np.full((60, 2, 2), 9, np.uint8),
        labels=list(itertools.product(range(10), range(6))),
        names=("x", "y"),
    )
    return path


def dark_images(table, **splits):
    """Return black images with these factors, named x, y, ..."""
    variables = [Variable(name) for name in "xyabc"[: table.shape[1]]]
    return build_dataset(
        "made", np.zeros((len(table), 1, 2, 2), np.uint8), table, variables, **splits
    )


# ---- notes ---------------------------------------------------------------------------------------
def test_note_on_actions_without_test_pairs(tmp_path):
    """In the default splits both test pairs are steps of y."""
    path = write_grid(tmp_path / "grid.npz")
    small = load_data(path, transitions=True)
    assert small.transitions.test.counts.tolist() == [0, 0, 1, 1]
    *columns, note = small.notes
    assert {column.kind for column in columns} == {"column-kind", "few-whole-numbers"}
    assert note == Note(
        "actions-without-pairs",
        "test",
        "transitions: the test split has no pair for x+1, x-1, so these are never tested; give a "
        "larger test= (--data-option test=) or more images",
    )
    assert with_transitions(small).notes == small.notes
    assert list(with_transitions(small, factors="y").notes) == columns  # notes are replaced
    with pytest.raises(DataError, match=r"the test split has no pair for the action x\+1"):
        with_transitions(small, balanced=True)


def test_larger_splits_have_pairs_of_all_actions(tmp_path):
    path = write_grid(tmp_path / "grid.npz")
    larger = load_data(path, transitions=True, test=0.4)
    assert larger.transitions.test.counts.min() > 0
    assert larger.notes[4:] == (
        Note(
            "actions-without-pairs",
            "validation",
            "transitions: the validation split has no pair for y+1, y-1, so validation does not "
            "measure these; give a larger validation= (--data-option validation=) or more images",
        ),
    )
    largest = load_data(path, transitions=True, test=0.4, validation=0.4)
    assert largest.notes == larger.notes[:4]


def test_note_on_missing_actions_is_abbreviated():
    table = np.array(list(itertools.product(range(3), repeat=5)), float)
    test = np.zeros(len(table), bool)
    test[:2] = True  # they differ in the last factor alone
    (note,) = with_transitions(dark_images(table, validation=0.3, test=test)).notes
    assert "no pair for x+1, x-1, y+1, y-1, a+1, a-1, ... (8 in all), so" in note.text


def test_note_on_a_rare_value():
    """A typo, 3.01 for 3, is a value of its own and separates 3 from 4."""
    table = np.array(list(itertools.product(range(5), range(12))), float)
    splits = {"validation": 0.3, "test": 0.3}
    assert with_transitions(dark_images(table, **splits)).notes == ()
    table[41, 0] = 3.01
    data = with_transitions(dark_images(table, **splits))
    text = (
        "transitions: x=3.01 occurs 1 time, the other values 12 times on average; if it is a "
        "typo, steps to its neighbours are lost"
    )
    assert [note for note in data.notes if note.kind == "rare-value"] == [
        Note("rare-value", "x", text)
    ]
    assert with_transitions(data, factors="y").notes == ()


# ---- factors in words ----------------------------------------------------------------------------
WORDS = {"x": list("123456"), "size": ["small", "medium", "large"], "seen": ["no", "yes"]}


def write_table(folder, columns, keep=lambda *indices: True):
    """Write an image for each combination of values whose indices satisfy `keep`."""
    combinations = itertools.product(*(range(len(values)) for values in columns.values()))
    rows = [
        [values[index] for values, index in zip(columns.values(), indices, strict=True)]
        for indices in combinations
        if keep(*indices)
    ]
    folder.mkdir(exist_ok=True)
    lines = [",".join(["file", *columns])]
    for i, row in enumerate(rows):
        Image.new("L", (4, 4), i).save(folder / f"{i}.png")
        lines.append(",".join([f"{i}.png", *row]))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_note_on_alphabetical_steps(tmp_path):
    folder = write_table(tmp_path / "words", WORDS)
    data = load_data(folder, transitions=True, validation=0.4, test=0.3)
    text = (
        "transitions: the steps of 'size' are in alphabetical order (large, medium, small); give "
        "another one with kinds= (--kind)"
    )
    (note,) = [note for note in data.notes if note.text.startswith("transitions")]
    assert note == Note("alphabetical-order", "size", text)
    pairs, labels = data.transitions.train, data.train.labels[:, 1]
    up = pairs.action == data.actions.index("size+1")
    before, after = labels[pairs.before[up]].tolist(), labels[pairs.after[up]].tolist()
    assert set(zip(before, after, strict=True)) == {(0, 1), (1, 2)}
    assert data.variables[1].categories == ("large", "medium", "small")
    others = tuple(note for note in data.notes if note.kind != "alphabetical-order")
    assert with_transitions(data, factors="x").notes == others


def test_steps_follow_the_order_of_ordered_categories(tmp_path):
    folder = write_table(tmp_path / "ordered", WORDS)
    kinds = {"size": "small < medium < large"}
    data = load_data(folder, transitions=True, validation=0.4, test=0.3, kinds=kinds)
    assert not any(text.startswith("transitions") for text in note_texts(data))
    assert data.variables[1].categories == ("small", "medium", "large")
    assert {"size+1", "size-1"} <= set(data.actions)


def test_note_on_alphabetical_steps_is_abbreviated(tmp_path):
    columns = {"x": list("123"), "colour": ["red", "green", "blue", "black", "white"]}
    folder = write_table(tmp_path / "many", columns)
    data = load_data(folder, transitions=True, validation=0.4, test=0.4)
    assert "(black, blue, green, red, ... (5 in all))" in " ".join(note_texts(data))


def test_no_note_on_steps_in_numbers(tmp_path):
    folder = write_table(tmp_path / "numbers", {**WORDS, "size": ["1", "2", "3"]})
    data = load_data(folder, transitions=True, validation=0.4, test=0.3)
    assert not any(text.startswith("transitions") for text in note_texts(data))


def test_error_for_equal_factors_names_their_words(tmp_path):
    folder = write_table(tmp_path / "words", WORDS)
    with (folder / "labels.csv").open("a") as file:
        file.write("again.png,4,medium,yes\n")
    Image.new("L", (4, 4)).save(folder / "again.png")
    words = r"two images have the same factors \(x=4, size=medium, seen=yes\)"
    with pytest.raises(DataError, match=words):
        load_data(folder, transitions=True)


# ---- errors whose advice works -------------------------------------------------------------------
def test_a_single_continuous_factor_may_be_rounded():
    grey = np.random.default_rng(0).uniform(size=(60, 1))
    splits = {"validation": 0.2, "test": 0.2}
    continuous, rounded = (dark_images(table, **splits) for table in (grey, grey.round(1)))
    advice = r"pass unique=False \(--data-option \"transitions=unique=false\"\), for ct-vae with "
    advice += "--set decoder_epochs=0"
    words = "'x' has 60 different values in 60 images and is the only factor, .* round it and "
    with pytest.raises(DataError, match=words + advice) as raised:
        with_transitions(continuous)
    assert "ignore=" not in str(raised.value)
    words = rf"the same factors \(x=[\d.]+\).* to pair images .*{advice}"
    with pytest.raises(DataError, match=words):
        with_transitions(rounded)
    assert with_transitions(rounded, unique=False).actions == ("x+1", "x-1")


@pytest.mark.parametrize(
    ("options", "which"),
    [(True, "one factor"), ("factors=x,seen", "'x' or 'seen'"), ("factors=x;draws=3", "'x'")],
)
def test_a_table_without_pairs_raises(options, which, tmp_path):
    folder = write_table(tmp_path / "parity", WORDS, keep=lambda *indices: sum(indices) % 2)
    words = f"no two images differ in {which} alone, by one step, so there is no pair at all"
    with pytest.raises(DataError, match=words):
        load_data(folder, transitions=options)


def test_error_names_all_factors_without_steps(tmp_path):
    columns = {**WORDS, "x": [str(x) for x in range(14)]}
    folder = write_table(tmp_path / "half", columns, keep=lambda x, size, _: (x + size) % 2)
    option = r"factors='seen' \(--data-option \"transitions=factors=seen\"\)"
    words = f"differ in 'x' or 'size' alone, .* leave it out with {option}"
    with pytest.raises(DataError, match=words):
        load_data(folder, transitions=True, test=0.3)
    data = load_data(folder, transitions="factors=seen", validation=0.4, test=0.3)
    assert data.actions == ("seen+1", "seen-1")


def test_error_names_all_continuous_columns(tmp_path):
    measured = np.random.default_rng(0).normal(size=(60, 2))
    table = np.column_stack([list(itertools.product(range(10), range(6))), measured])
    path, names = tmp_path / "grid.npz", ("x", "y", "weight", "age")
    np.savez(path, images=np.zeros((60, 2, 2), np.uint8), labels=table, names=names)
    option = r"ignore='weight,age' \(--data-option \"transitions=ignore=weight,age\"\)"
    words = f"'weight' has 60 .*{option} if the images of a pair may differ in these"
    with pytest.raises(DataError, match=words):
        load_data(path, transitions=True)
    assert load_data(path, transitions="ignore=weight,age").actions == XY_ACTIONS
    words = "'weight' has 60 different values in 60 images and no other factor has few values"
    with pytest.raises(DataError, match=words):
        load_data(path, transitions=True, variables=["weight", "age"])


@pytest.mark.parametrize(
    ("options", "words", "better"),
    [
        (
            {"test": 0.02},
            r"test split has no pair for any action; "
            r"give a larger test= \(--data-option test=\) or more",
            {"test": 0.3, "validation": 0.3},
        ),
        (
            {"validation": 0.02},
            r"validation split has .* give a larger validation= \(--data-option validation=\)",
            {"validation": 0.3},
        ),
        (
            {"test": 0.95},
            r"train split has .* give a smaller test= \(--data-option test=\)",
            {"test": 0.3, "validation": 0.3},
        ),
        (
            {"transitions": "splits=random;test=0.02"},
            r"test split has .* give a larger test= "
            r"\(--data-option \"transitions=splits=random;test=\"\)",
            {"transitions": "splits=random;test=0.3"},
        ),
        (
            {"transitions": "draws=1", "test": 0.1},
            r"split has no pair for any action; draw more pairs, such as draws=1000 "
            r"\(--data-option \"transitions=draws=1000\"\), or give a larger",
            {"transitions": "draws=1000", "test": 0.2},
        ),
        (
            {"transitions": "draws=1000;train_draws=1", "test": 0.8},
            r"train split has .*; draw more pairs, such as train_draws=1000 .*, "
            r"or give a smaller test=(, or leave the factor out.*)?\.$",
            {"transitions": "draws=1000;train_draws=1000", "test": 0.3, "validation": 0.3},
        ),
    ],
)
def test_advice_for_a_split_without_pairs_works(options, words, better, tmp_path):
    path = write_grid(tmp_path / "grid.npz")
    with pytest.raises(DataError, match=words) as raised:
        load_data(path, **{"transitions": True, **options})
    assert "splits='random'" not in str(raised.value)
    data = load_data(path, **{"transitions": True, **options, **better})
    assert data.actions == XY_ACTIONS


def test_advice_for_predefined_splits_works(tmp_path):
    folder = write_table(tmp_path / "split", {"x": list("123456"), "y": list("12345")})
    header, *rows = (folder / "labels.csv").read_text().splitlines()
    marked = [f"{row},{'test' if i % 7 == 0 else 'train'}" for i, row in enumerate(rows)]
    (folder / "labels.csv").write_text("\n".join([f"{header},split", *marked]))
    option = r"\(--data-option \"transitions=splits=random\"\)"
    words = f"draw other splits with splits='random' {option}, or give more"
    with pytest.raises(DataError, match=words):
        load_data(folder, transitions=True, validation=0.3)
    with pytest.raises(DataError, match=r"draws=1000\"\), or other splits with splits='random'"):
        load_data(folder, transitions="draws=5", validation=0.3)
    data = load_data(folder, transitions="splits=random;test=0.3", validation=0.3)
    assert data.actions == XY_ACTIONS
