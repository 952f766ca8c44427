"""Parsing of labels.csv: separators, encodings, the split column, and broken tables."""

from __future__ import annotations

import pytest
from image_folders import N, change_cell, images_by_number, read_rows, write_rows
from note_texts import note_texts

from intervae.data import load_data
from intervae.errors import DataError


# ---- tables that are read --------------------------------------------------------------------
def test_the_file_column_is_recognised_by_name_or_is_the_first(folder):
    rows = read_rows(folder)
    write_rows(folder, [["number", "Filename"]] + [[row[1], row[0]] for row in rows[1:]])
    assert load_data(folder).names == ("number",)
    write_rows(folder, [["", "number"]] + [[row[0], row[1]] for row in rows[1:]])
    assert load_data(folder).names == ("number",)
    write_rows(
        folder, [["", "number", "image"]] + [[i, row[1], row[0]] for i, row in enumerate(rows[1:])]
    )
    data = load_data(folder)
    assert data.names == ("number",)
    assert "labels: column 1 has no name and was left out" in note_texts(data)


@pytest.mark.parametrize(
    ("separator", "encoding", "newline"),
    [(",", "utf-8-sig", "\r\n"), (";", "utf-8", "\n"), ("\t", "utf-8", "\n")],
)
def test_separators_and_encodings_of_spreadsheets(folder, separator, encoding, newline):
    lines = [separator.join((row[1], row[0])) for row in read_rows(folder)]
    (folder / "labels.csv").write_bytes(
        (newline.join([lines[0], "", *lines[1:]]) + newline).encode(encoding)
    )
    data = load_data(folder)
    assert data.names == ("number",)  # without the byte order mark
    assert len(images_by_number(data)) == N


# ---- the column split ------------------------------------------------------------------------
def test_a_split_column_decides_the_splits(folder):
    words = ["train"] * 10 + ["val"] * 4 + ["Test"] * 6
    rows = read_rows(folder)
    write_rows(
        folder,
        [[*rows[0], "split"]] + [[*row, word] for row, word in zip(rows[1:], words, strict=True)],
    )
    data = load_data(folder, variables=["number"])
    assert "split" not in load_data(folder).names
    assert [sorted(split.labels[:, 0].int().tolist()) for split in data.splits.values()] == [
        list(range(10)),
        list(range(10, 14)),
        list(range(14, 20)),
    ]
    assert "splits: given by the column 'split'" in note_texts(data)


def test_a_split_column_without_validation_draws_it_from_train(folder):
    rows = read_rows(folder)
    write_rows(
        folder,
        [[*rows[0], "split"]]
        + [[*row, "test" if i >= 14 else "train"] for i, row in enumerate(rows[1:])],
    )
    data = load_data(folder, variables=["number"], validation=0.3)
    assert sorted(data.test.labels[:, 0].int().tolist()) == list(range(14, 20))
    assert (len(data.train), len(data.validation)) == (10, 4)
    assert any("names no validation rows" in text for text in note_texts(data))


def test_wrong_split_columns_are_an_error(folder):
    rows = read_rows(folder)
    write_rows(
        folder,
        [[*rows[0], "split"]]
        + [[*row, "left" if i == 2 else "train"] for i, row in enumerate(rows[1:])],
    )
    with pytest.raises(
        DataError, match=r"labels.csv, line 4: 'split' is 'left'; write train, validation or test"
    ):
        load_data(folder)
    write_rows(folder, [[*rows[0], "split"]] + [[*row, "train"] for row in rows[1:]])
    with pytest.raises(DataError, match="the column 'split' names no test rows"):
        load_data(folder)
    write_rows(
        folder,
        [[*rows[0], "split"]]
        + [[*row, "test" if i == 1 else "train"] for i, row in enumerate(rows[1:])],
    )
    with pytest.raises(
        DataError,
        match=r"line 3: patient 'p0' is in test here but in train on line 2; keep it in one split",
    ):
        load_data(folder, group="patient")


# ---- broken tables ---------------------------------------------------------------------------
def test_an_empty_table_or_a_broken_link_is_an_error(folder):
    (folder / "labels.csv").write_text("")
    with pytest.raises(
        DataError, match=r"labels.csv has nothing in it; write one row per image below a header"
    ):
        load_data(folder)
    (folder / "labels.csv").write_text("file,number\n\n")
    with pytest.raises(DataError, match="has a header but no rows"):
        load_data(folder)
    (folder / "labels.csv").unlink()
    (folder / "labels.csv").symlink_to(folder / "elsewhere.csv")
    with pytest.raises(
        DataError, match=r"there is no labels.csv in .*; write one with a row per image"
    ):
        load_data(folder)


def test_a_table_that_is_not_utf8_or_not_csv_is_an_error(folder):
    (folder / "labels.csv").write_bytes("file,größe\n0.png,1\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r"labels.csv is not UTF-8 text; save it again as CSV UTF-8"
    ):
        load_data(folder)
    (folder / "labels.csv").write_text('file,number\n0.png,"1" 2\n')
    with pytest.raises(DataError, match=r"labels.csv, line 2: this is not valid CSV"):
        load_data(folder)


def test_a_duplicate_column_is_an_error(folder):
    rows = read_rows(folder)
    write_rows(folder, [[*rows[0], " number"]] + [[*row, "1"] for row in rows[1:]])
    with pytest.raises(
        DataError,
        match=r"labels.csv: the column 'number' appears twice in the header; rename or remove one",
    ):
        load_data(folder)


def test_a_row_with_too_many_cells_is_named(folder):
    rows = read_rows(folder)
    rows[6] = [*rows[6], "more"]
    write_rows(folder, rows)
    with pytest.raises(DataError, match=r"labels.csv, line 7: 5 cells for 4 columns"):
        load_data(folder)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("inf", "is inf; every label must be a finite number"),
        ("many", "is 'many', which is not a number"),
    ],
)
def test_a_bad_label_names_its_line_and_column(folder, value, message):
    change_cell(folder, 9, 1, value)
    with pytest.raises(DataError, match=rf"labels.csv, line 9: 'number' {message}"):
        load_data(folder)
    assert load_data(folder, variables=["sex"]).names == ("sex",)


def test_columns_constant_in_all_or_in_training_rows_are_an_error(folder):
    rows = read_rows(folder)
    write_rows(folder, [["file", "x"]] + [[row[0], "5"] for row in rows[1:]])
    with pytest.raises(DataError, match="column 'x' is '5' in every row"):
        load_data(folder)
    write_rows(
        folder,
        [["file", "x", "split"]]
        + [[row[0], i >= 15, "test" if i >= 15 else "train"] for i, row in enumerate(rows[1:])],
    )
    with pytest.raises(DataError, match=r"variable 'x' is constant .* in the training split"):
        load_data(folder)
