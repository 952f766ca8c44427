"""Chest X-rays with and without COVID-19 (Cohen et al. 2020; CMCL, Mao et al. 2022, sec. 4.3).

Grey images and the patients' table. Splits are by patient.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intervae.data.build import build_dataset, split_rows
from intervae.data.dataset import Dataset
from intervae.data.options import read_names
from intervae.data.pixel_arrays import as_size, resize_images
from intervae.data.raw_column import MISSING
from intervae.data.readers.archives import open_npz, read_text
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.variables import Kind, Variable
from intervae.errors import DataError, UsageError, unknown
from intervae.notes import Note

SOURCE = FileSource(
    "the COVID-19 X-rays",
    "covid_cxr",
    "ieee8023/covid-chestxray-dataset on GitHub, packed as docs/datasets.md says",
)
ARRAYS, TABLE = "covid_cxr_224.npz", "covid_cxr_metadata.csv"
SIDE = 128  # pixels, as in the paper; the file has 224
LATERAL = "L"


@dataclass(frozen=True)
class PatientColumn:
    """A usable column of the table.

    Arguments:
        words: (word in the file, category here) for the codes 0, 1, ...
    """

    kind: Kind
    unit: str = ""
    words: tuple[tuple[str, str], ...] = ()

    def encode(self, cell: str) -> float:
        """Return the number of a cell, nan if missing; ValueError for an unknown word."""
        if cell.strip().lower() in MISSING:
            return float("nan")
        if not self.words:
            return float(cell)
        category = dict(self.words).get(cell.strip(), "")
        return float(self.categories.index(category))

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(category for _, category in self.words))


_YES_NO = (("N", "no"), ("Y", "yes"))
COLUMNS = {
    "covid": PatientColumn("binary", words=(("0", "no"), ("1", "yes"))),
    "sex": PatientColumn("binary", words=(("F", "female"), ("M", "male"))),
    "age": PatientColumn("continuous", "years"),
    "offset": PatientColumn("continuous", "days"),  # since symptoms or admission
    "view": PatientColumn(
        "categorical",
        words=(
            ("PA", "PA"),
            ("AP", "AP"),
            ("AP Erect", "AP"),
            ("AP Supine", "AP supine"),
            (LATERAL, "lateral"),  # the last category, absent from frontal views
        ),
    ),
    # from the hospital that sent most of the COVID images
    "hannover": PatientColumn("binary", words=(("False", "no"), ("True", "yes"))),
    "survival": PatientColumn("binary", words=_YES_NO),
    "intubated": PatientColumn("binary", words=_YES_NO),
    "intubation_present": PatientColumn("binary", words=_YES_NO),
    "went_icu": PatientColumn("binary", words=_YES_NO),
    "in_icu": PatientColumn("binary", words=_YES_NO),
    "temperature": PatientColumn("continuous", "degrees C"),
    "neutrophil_count": PatientColumn("continuous", "10^9/L"),
    "lymphocyte_count": PatientColumn("continuous", "10^9/L"),
}


def covid_cxr(
    *,
    columns: Sequence[str] = ("covid",),
    views: str = "frontal",
    missing: str = "drop",
    size: int | Sequence[int] = SIDE,
    samples: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Read the X-rays and columns of their table.

    Arguments:
        columns: columns of the table, in this order; also as one text with commas.
        views: "frontal" drops the lateral images, "all" includes them.
        missing: "drop" drops images without a value in one of the columns; "fill" uses the median
            (continuous) or the most frequent value (others) of the training patients.
        size: resize to this many pixels, square or (height, width).
        samples: number of images, drawn at random; default all.
        validation, test, seed: random splits of the patients.
    """
    names = _check_options(columns, views, missing)
    target = as_size(size) or (SIDE, SIDE)
    images, rows = _read()
    labels = np.array([_encode(rows, name) for name in names]).T  # (N, n), nan if missing
    selected = np.array([row["view"] != LATERAL for row in rows]) | (views == "all")
    notes = []
    if not selected.all():
        text = f"{(~selected).sum()} pictures from the side were left out"
        notes.append(Note("rows-left-out", "view", text))
    notes += _missing_notes(names, np.isnan(labels[selected]).sum(0), missing)
    if missing == "drop":
        selected &= ~np.isnan(labels).any(1)
    numbers = np.flatnonzero(selected)
    if len(numbers) == 0:
        raise DataError(
            f"no X-ray has a value in all of {', '.join(names)}; "
            "choose fewer columns, or missing=fill."
        )
    numbers = numbers[choose_rows(len(numbers), samples, seed)]
    patients = np.unique([rows[number]["patientid"] for number in numbers], return_inverse=True)[1]
    train_rows, validation_rows, test_rows = split_rows(
        len(numbers), validation=validation, test=test, seed=seed, groups=patients
    )
    dataset = build_dataset(
        "covid-cxr",
        resize_images(images[numbers][:, None], target),
        _fill_missing(labels[numbers], names, train_rows),
        [_variable(name, views) for name in names],
        validation=np.isin(np.arange(len(numbers)), validation_rows),
        test=np.isin(np.arange(len(numbers)), test_rows),
        seed=seed,
        fields={"patient": patients, "row": numbers},
    )
    text = f"splits: by patient, {len(np.unique(patients))} of them"
    return replace(dataset, notes=(*notes, Note("grouped-splits", "patient", text)))


def _check_options(columns: Sequence[str], views: str, missing: str) -> list[str]:
    """Return the names of the columns; raise an error for an unknown option."""
    names = read_names(columns, "columns")
    for name in names:
        if name not in COLUMNS:
            raise unknown("column", name, COLUMNS)
    if not names or len(set(names)) != len(names):
        raise UsageError(f"columns={columns!r} must name different columns, such as covid,sex,age.")
    if views not in ("frontal", "all"):
        raise unknown("views", views, ("frontal", "all"))
    if missing not in ("drop", "fill"):
        raise unknown("missing", missing, ("drop", "fill"))
    return names


def _missing_notes(names: Sequence[str], counts: np.ndarray, missing: str) -> list[Note]:
    """Return a note on each column with missing values."""
    notes = []
    for name, count in zip(names, counts, strict=True):
        if count:
            fill = "median" if COLUMNS[name].kind == "continuous" else "most frequent value"
            treatment = (
                "were left out"
                if missing == "drop"
                else f"were given the {fill} of the training split"
            )
            text = f"column {name!r}: {count} of the pictures have no value and {treatment}"
            notes.append(Note("missing-values", name, text))
    return notes


def _variable(name: str, views: str) -> Variable:
    column = COLUMNS[name]
    without_lateral = name == "view" and views == "frontal"
    categories = column.categories[:-1] if without_lateral else column.categories
    return Variable(name, column.kind, column.unit, categories)


def _fill_missing(labels: np.ndarray, names: Sequence[str], training: np.ndarray) -> np.ndarray:
    """Replace nan in (N, n) by the median or most frequent value of the training rows."""
    filled = labels.copy()
    for i, name in enumerate(names):
        is_missing = np.isnan(labels[:, i])
        if not is_missing.any():
            continue
        present = labels[training, i][~np.isnan(labels[training, i])]
        if len(present) == 0:
            raise DataError(f"column {name!r} has no value in the training split; leave it out.")
        values, counts = np.unique(present, return_counts=True)
        is_continuous = COLUMNS[name].kind == "continuous"
        filled[is_missing, i] = np.median(present) if is_continuous else values[counts.argmax()]
    return filled


def _encode(rows: Sequence[dict[str, str]], name: str) -> list[float]:
    """Return a column as numbers, nan if missing."""
    path = Path(TABLE)
    if name not in rows[0]:
        SOURCE.raise_broken(path, f"has no column {name!r}")
    codes = []
    for number, row in enumerate(rows):
        try:
            codes.append(COLUMNS[name].encode(row[name] or ""))
        except ValueError:
            SOURCE.raise_broken(
                path,
                f"has on line {number + 2} {row[name]!r} as {name!r}, which is none of its values",
            )
    return codes


def _read() -> tuple[np.ndarray, list[dict[str, str]]]:
    """Return the images (N, 224, 224) uint8 and the N rows of the table."""
    arrays_path, table_path = SOURCE.require(ARRAYS), SOURCE.require(TABLE)
    with open_npz(SOURCE, arrays_path) as open_array:
        images, covid = open_array("images").read(), open_array("covid").read()
    if images.ndim != 3 or images.dtype != np.uint8:
        SOURCE.raise_broken(
            arrays_path,
            f"has images of {images.dtype} {images.shape} where uint8 (N, H, W) are expected",
        )
    with SOURCE.reading(table_path):
        text = read_text(SOURCE, table_path, TABLE)
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    if len(rows) != len(images):
        SOURCE.raise_broken(
            table_path, f"has {len(rows)} rows for the {len(images)} pictures of {arrays_path.name}"
        )
    for column in ("patientid", "view", "covid"):
        if rows and column not in rows[0]:
            SOURCE.raise_broken(table_path, f"has no column {column!r}")
    if [row["covid"] for row in rows] != [str(int(code)) for code in covid]:
        SOURCE.raise_broken(
            table_path,
            f"does not have its rows in the order of {arrays_path.name}: "
            "the column 'covid' differs",
        )
    return images, rows
