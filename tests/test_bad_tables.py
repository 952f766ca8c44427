"""Tables that cannot be used, through `intervae train cmcl --data folder/`: one sentence each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command import cell, few, intervae, refused, succeeded
from intervae.data import load_data
from intervae.errors import DataError
from intervae.models import create, load
from table_changes import (
    TINY,
    TRAIN_CMCL,
    Change,
    add_column,
    add_double,
    add_total,
    random_number,
    read_lines,
    write_lines,
    write_streets,
)


def remove_images(folder: Path) -> None:
    for path in folder.glob("*.png"):
        path.unlink()


def remove_columns(folder: Path) -> None:
    write_lines(folder, [line.partition(",")[0] for line in read_lines(folder)])


def write_image(content: bytes) -> Change:
    """Return a function that overwrites the file of the eighth image."""
    return lambda folder: (folder / "07.png").write_bytes(content)


def truncate_image(folder: Path) -> None:
    write_image((folder / "07.png").read_bytes()[:60])(folder)


def shrink_image(folder: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "07.png")


def add_three_columns(folder: Path) -> None:
    for k in range(1, 4):
        add_column(f"more{k}", lambda i, k=k: random_number(100 * k + i))(folder)


def three_equal_rows(folder: Path) -> None:
    add_column("site", lambda i: "A")(folder)
    few(3)(folder)


def dose(row: int, text: str) -> Change:
    """Return a function that adds a column of numbers with a text in one row."""
    return add_column("dose", lambda i: text if i == row else random_number(i))


MIN_ROWS_ERROR = "at least 4 rows are needed"
NO_LABELS = "cmcl learns from labels, but this data has none"
REFUSED: dict[str, tuple[Change, tuple[str, ...]]] = {  # change, words of the error
    "a row without its image": (
        lambda folder: (folder / "07.png").unlink(),
        ("labels.csv, line 9", "'07.png' is not in the folder", "remove the row"),
    ),
    "no row has an image": (
        remove_images,
        ("labels.csv, line 2", "'00.png' is not in the folder"),
    ),
    "names without their suffix": (
        cell(5, 0, "03"),
        ("labels.csv, line 5", "did you mean '03.png'?"),
    ),
    "a row without a name": (cell(5, 0, ""), ("labels.csv, line 5", "no file name")),
    "two rows for one image": (
        cell(5, 0, "00.png"),
        ("labels.csv, line 5", "already stands on line 2"),
    ),
    "an empty file": (
        lambda folder: (folder / "labels.csv").write_bytes(b""),
        ("nothing in it",),
    ),
    "a header alone": (few(0), ("a header but no rows",)),
    "a single row": (
        few(1),
        (
            "labels.csv has a single row with an image and 79 images without a row",
            MIN_ROWS_ERROR,
            "hundreds",
        ),
    ),
    "three rows": (
        few(3),
        (
            "labels.csv has 3 rows with an image each and 77 images without a row",
            MIN_ROWS_ERROR,
            "add rows",
        ),
    ),
    "three rows, all equal": (three_equal_rows, ("labels.csv has 3 rows", MIN_ROWS_ERROR)),
    "a single row to train on": (
        add_column("split", lambda i: "train" if i == 0 else "validation" if i < 9 else "test"),
        ("80 samples leave a single one for the training split",),
    ),
    "fewer rows than a batch": (few(9), ("fewer than one batch of 8", "batch_size=")),
    "no table": (lambda folder: (folder / "labels.csv").unlink(), (NO_LABELS,)),
    "names alone": (remove_columns, (NO_LABELS,)),
    "a constant column": (
        add_column("site", lambda i: "A"),
        ("column 'site' is 'A' in every row", "variables= (--variables)"),
    ),
    "a constant number": (
        add_column("dose", lambda i: "1" if i % 2 else "1.0"),
        ("column 'dose' is '1", "in every row"),
    ),
    "a column without any value": (
        add_column("dose", lambda i: ""),
        ("column 'dose' has no value in any row", "variables= (--variables)"),
    ),
    "a column of NaN": (
        add_column("dose", lambda i: "NaN"),
        ("column 'dose' has no value in any row",),
    ),
    "some cells missing": (
        add_column("dose", lambda i: "" if i % 10 == 3 else random_number(i)),
        ("labels.csv, line 5", "'dose' has no value (8 of 80 rows)"),
    ),
    "some words missing": (
        add_column("site", lambda i: "n/a" if i == 6 else "ab"[i % 2]),
        ("labels.csv, line 8", "'site' has no value", "fill it in"),
    ),
    "an infinite number": (dose(4, "inf"), ("labels.csv, line 6", "'dose' is inf", "finite")),
    "a number too large": (dose(4, "1e999"), ("labels.csv, line 6", "'dose'", "finite")),
    "a word among numbers": (
        dose(4, "high"),
        ("line 6", "'dose' is 'high', which is not a number"),
    ),
    "numbers with a comma": (
        add_column("dose", lambda i: f'"{i},5"'),
        ("line 2", "'dose' is '0,5', a number with a decimal comma", "'0.5'"),
    ),
    "1000 categories": (
        lambda folder: write_streets(folder, 1000, 2000),
        ("column 'street' has 1000 categories, more than 50", "leave it out"),
    ),
    "51 categories": (
        lambda folder: write_streets(folder, 51, 204),
        ("column 'street' has 51 categories",),
    ),
    "two columns of one name": (
        add_column("width", random_number),
        ("'width' appears twice in the header",),
    ),
    "a multiple of another column": (
        add_double,
        ("column 'double' is a linear combination of 'width'; leave it out",),
    ),
    "a sum of two others": (
        add_total,
        ("column 'total' is a linear combination of 'level', 'width'",),
    ),
    "more columns than latents": (
        add_three_columns,
        (
            "the table has 5 columns, more than latents=4",
            "set latents=5 or more",
            "pairing=full one_edge_per_node=false",
        ),
    ),
    "a column called like a latent": (
        add_column("z1", random_number),
        ("the column 'z1' has the name of a latent; rename it",),
    ),
    "a corrupt image": (truncate_image, ("image '07.png' cannot be read",)),
    "a file that is not an image": (write_image(b"hello"), ("'07.png'",)),
    "an empty image": (write_image(b""), ("'07.png'", "empty")),
    "images of two sizes": (shrink_image, ("images differ in size", "size= (--size)")),
    "a row with a cell too many": (
        cell(5, 2, "1,2"),
        ("labels.csv, line 5", "4 cells for 3 columns"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_table_is_an_error_of_one_sentence(case: str, folder: Path, tmp_path: Path) -> None:
    change, words = REFUSED[case]
    change(folder)
    refused(intervae(*TRAIN_CMCL, "--data", folder, "--out", tmp_path / "run"), 1, *words)
    assert not (tmp_path / "run").exists()


def test_a_column_constant_in_training_is_an_error(folder: Path, tmp_path: Path) -> None:
    header, *lines = read_lines(folder)
    rows = [
        f"{line},{'test' if i >= 60 else 'validation' if i >= 50 else 'train'},{0 if i < 60 else i}"
        for i, line in enumerate(lines)
    ]
    write_lines(folder, [f"{header},split,late", *rows])
    refused(
        intervae(*TRAIN_CMCL, "--data", folder, "--out", tmp_path / "run"),
        1,
        "'late' is constant",
        "in the training split",
        "leave it out",
    )


@pytest.mark.parametrize(
    ("rows", "message"), [(3, MIN_ROWS_ERROR), (6, "column 'site' is 'A' in every row")]
)
def test_the_note_on_ignored_images_precedes_the_error(
    rows: int, message: str, folder: Path, tmp_path: Path
) -> None:
    few(rows)(folder)
    if rows > 3:
        add_column("site", lambda i: "A")(folder)
    output = intervae(*TRAIN_CMCL, "--data", folder, "--out", tmp_path / "run")
    refused(output, 1, message)
    note = f"images: {80 - rows} not in labels.csv and ignored, such as '0{rows}.png'"
    assert output.out.splitlines()[-1] == f"note: {note}"


def test_a_thousand_categories_are_abbreviated(folder: Path, tmp_path: Path) -> None:
    write_streets(folder, 1000, 2000)
    output = intervae(*TRAIN_CMCL, "--data", folder, "--out", tmp_path / "run")
    refused(output, 1, "1000 categories")
    assert "... (1000 in all)" in output.out
    assert len(output.out.splitlines()) < 16  # the table of variables wraps the first names
    assert max(map(len, output.out.splitlines())) < 300


def test_bad_columns_can_be_left_out(folder: Path, tmp_path: Path) -> None:
    for change in (
        add_double,
        add_column("z1", random_number),
        add_column("site", lambda i: "A"),
        add_column("dose", lambda i: ""),
    ):
        change(folder)
    options = ["--data", folder, "--variables", "level,width", "--out", tmp_path / "run"]
    succeeded(intervae(*TRAIN_CMCL, *options))
    assert load(tmp_path / "run").spec.names == ("level", "width")


def test_python_raises_the_same_errors(folder: Path) -> None:
    add_column("dose", lambda i: "")(folder)
    with pytest.raises(
        DataError, match=r"column 'dose' has no value in any row.*variables= \(--variables\)"
    ):
        load_data(folder)
    data = load_data(folder, variables=["level", "width"])
    model = create("cmcl", data, **TINY)
    data.train.labels[:, 1] = 2 * data.train.labels[:, 0]
    with pytest.raises(DataError, match="linear combination of 'level'"):
        model.fit(data)
