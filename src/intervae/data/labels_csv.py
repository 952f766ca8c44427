"""Parser of `labels.csv`, the table beside a folder of images: one row per image."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intervae.data.raw_column import MISSING
from intervae.errors import DataError
from intervae.files import read_text
from intervae.notes import Note

FILE_COLUMNS = ("file", "filename", "image", "path")
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class LabelTable:
    """`labels.csv` as text.

    Arguments:
        files: the image of each row, as written.
        lines: the line of the file on which each row stands.
        columns: name -> (N,) texts, without the column of files.
    """

    path: Path
    files: list[str]
    lines: list[int]
    columns: dict[str, np.ndarray]
    notes: list[Note]

    def __len__(self) -> int:
        return len(self.files)

    def where(self, row: int) -> str:
        """Return how an error names a row."""
        return f"{self.path.name}, line {self.lines[row]}"

    def require_complete(self, name: str) -> np.ndarray:
        """Return a column (N,) of texts; raise an error if a value is missing."""
        for row, value in enumerate(self.columns[name]):
            if value.lower() in MISSING:
                raise DataError(
                    f"{self.where(row)}: {name!r} has no value; fill it in or remove the row."
                )
        return self.columns[name]


def read_labels_csv(path: Path) -> LabelTable:
    """Read a table of texts, separated by commas, or semicolons or tabs if the header has none."""
    text = _read_utf8(path)
    header = text.lstrip("\r\n").partition("\n")[0]
    separator = next((mark for mark in ",;\t" if mark in header), ",")
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        numbered = [
            (reader.line_num, [cell.strip() for cell in row])
            for row in reader
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise DataError(
            f"{path.name}, line {reader.line_num}: this is not valid CSV ({error}); "
            "correct the quotes there."
        ) from None
    if len(numbered) < 2:
        content = "a header but no rows" if numbered else "nothing in it"
        raise DataError(f"{path} has {content}; write one row per image below a header.")
    return _label_table(path, numbered[0][1], numbered[1:])


def _read_utf8(path: Path) -> str:
    try:
        return read_text(path, "utf-8-sig")
    except FileNotFoundError:
        raise DataError(
            f"there is no {path.name} in {path.parent}; write one with a row per image: "
            "its file name, then its variables."
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it again as CSV UTF-8.") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); check what it is and its permissions."
        ) from None


def _label_table(
    path: Path, header: list[str], numbered: list[tuple[int, list[str]]]
) -> LabelTable:
    """Check the header and the rows (line number, cells), and sort them into columns."""
    for name, count in Counter(header).items():
        if name and count > 1:
            raise DataError(
                f"{path.name}: the column {name!r} appears twice in the header; "
                "rename or remove one."
            )
    for line, row in numbered:
        if len(row) != len(header):
            raise DataError(
                f"{path.name}, line {line}: {len(row)} cells for {len(header)} columns; "
                "add or remove cells, or quote a text that holds a separator."
            )
    lowered = [name.lower() for name in header]
    file_at = next((lowered.index(name) for name in FILE_COLUMNS if name in lowered), 0)
    cells = list(zip(*(row for _, row in numbered), strict=True))
    notes = [
        Note("column-left-out", "", f"labels: column {at + 1} has no name and was left out")
        for at, name in enumerate(header)
        if not name and at != file_at
    ]
    columns = {
        name: np.array(cells[at], dtype=object)
        for at, name in enumerate(header)
        if name and at != file_at
    }
    return LabelTable(path, list(cells[file_at]), [line for line, _ in numbered], columns, notes)


def split_masks(table: LabelTable, group: str | None) -> dict[str, np.ndarray] | None:
    """Return the masks (N,) of the column `split`; None without such a column.

    There is always a mask of "test", and one of "validation" if the column names it. With
    `group`, a group in two splits is an error.
    """
    if "split" not in table.columns:
        return None
    words = table.require_complete("split")
    for row, word in enumerate(words):
        if word.lower() not in SPLIT_WORDS:
            raise DataError(
                f"{table.where(row)}: 'split' is {word!r}; write train, validation or test, "
                "or rename the column if it means something else."
            )
    split = np.array([SPLIT_WORDS[word.lower()] for word in words])
    for name in ("train", "test"):
        if not (split == name).any():
            raise DataError(
                f"{table.path.name}: the column 'split' names no {name} rows; mark some, "
                "or remove the column to split at random."
            )
    if group is not None:
        _check_groups(table, group, split)
    return {name: split == name for name in ("validation", "test") if (split == name).any()}


def _check_groups(table: LabelTable, group: str, split: np.ndarray) -> None:
    """Raise an error if a group has rows in two splits."""
    first_rows: dict[str, int] = {}
    for row, member in enumerate(table.require_complete(group)):
        first = first_rows.setdefault(member, row)
        if split[first] != split[row]:
            raise DataError(
                f"{table.where(row)}: {group} {member!r} is in {split[row]} here but "
                f"in {split[first]} on line {table.lines[first]}; keep it in one split."
            )
