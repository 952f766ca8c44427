"""Chest X-rays with and without COVID-19 (Cohen et al. 2020; CMCL, Mao et al. 2022, sec. 4.3): grey pictures and the patients' table.

Splits are by patient. A row that lacks a value of a chosen column is left out unless `missing="fill"` says otherwise.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intervae.data.base import Dataset, Kind, Variable, build_dataset, split_rows
from intervae.data.columns import MISSING
from intervae.data.images import as_size, resize_images
from intervae.data.readers.files import Home, choose_rows, open_npz, read_array, read_text
from intervae.errors import DataError, UsageError, unknown

HOME = Home("the COVID-19 X-rays", "covid_cxr", "ieee8023/covid-chestxray-dataset on GitHub, packed as docs/datasets.md says")
ARRAYS, TABLE = "covid_cxr_224.npz", "covid_cxr_metadata.csv"
SIDE = 128  # pixels, as the paper has them; the file has 224
LATERAL = "L"


@dataclass(frozen=True)
class Column:
    """A usable column: its kind, its unit, and for codes the words of the file for 0, 1, ... with how they are called here."""

    kind: Kind
    unit: str = ""
    words: tuple[tuple[str, str], ...] = ()  # (in the file, here)

    def code(self, cell: str) -> float:
        """The number of a cell, nan where it is missing; ValueError where it is none of the known."""
        if cell.strip().lower() in MISSING:
            return float("nan")
        if not self.words:
            return float(cell)
        here = dict(self.words).get(cell.strip(), "")
        return float(self.categories.index(here))

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(here for _, here in self.words))


_YES = (("N", "no"), ("Y", "yes"))
COLUMNS = {
    "covid": Column("binary", words=(("0", "no"), ("1", "yes"))),
    "sex": Column("binary", words=(("F", "female"), ("M", "male"))),
    "age": Column("continuous", "years"),
    "offset": Column("continuous", "days"),  # since the symptoms began, or since the patient came
    "view": Column("categorical", words=(("PA", "PA"), ("AP", "AP"), ("AP Erect", "AP"), ("AP Supine", "AP supine"), (LATERAL, "lateral"))),
    "hannover": Column("binary", words=(("False", "no"), ("True", "yes"))),  # from the hospital that sent most of the COVID pictures
    **{name: Column("binary", words=_YES) for name in ("survival", "intubated", "intubation_present", "went_icu", "in_icu")},
    "temperature": Column("continuous", "degrees C"),
    "neutrophil_count": Column("continuous", "10^9/L"),
    "lymphocyte_count": Column("continuous", "10^9/L"),
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
    """Read the X-rays and the chosen columns of their table.

    Arguments:
        columns: of the table, in this order; also as one text with commas.
        views: "frontal" leaves out the pictures from the side, "all" keeps them.
        missing: "drop" leaves out the pictures that lack a value of a chosen column; "fill" puts the median (continuous) or the most frequent
            value (others) of the training patients there.
        size: resize to this many pixels, square or (height, width).
        samples: keep only this many pictures, drawn at random.
        validation, test, seed: random splits of the patients: all pictures of one are in the same split.
    """
    chosen = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else list(columns)
    for name in chosen:
        if name not in COLUMNS:
            raise unknown("column", name, COLUMNS)
    if not chosen or len(set(chosen)) != len(chosen):
        raise UsageError(f"columns={columns!r} must name different columns, such as covid,sex,age.")
    for option, value, known in (("views", views, ("frontal", "all")), ("missing", missing, ("drop", "fill"))):
        if value not in known:
            raise unknown(option, value, known)
    wanted = as_size(size) or (SIDE, SIDE)
    images, rows = _read()
    labels = np.array([_codes(rows, name) for name in chosen]).T  # (N, n), nan where missing
    kept = np.array([row["view"] != LATERAL for row in rows]) | (views == "all")
    notes = [f"{(~kept).sum()} pictures from the side were left out"] if not kept.all() else []
    lacking = np.isnan(labels[kept]).sum(0)
    if missing == "drop":
        kept &= ~np.isnan(labels).any(1)
    for name, count in zip(chosen, lacking, strict=True):
        if count:
            fill = "median" if COLUMNS[name].kind == "continuous" else "most frequent value"
            done = "were left out" if missing == "drop" else f"were given the {fill} of the training split"
            notes.append(f"column {name!r}: {count} of the pictures have no value and {done}")
    numbers = np.flatnonzero(kept)
    if len(numbers) == 0:
        raise DataError(f"no X-ray has a value in all of {', '.join(chosen)}; choose fewer columns, or missing=fill.")
    numbers = numbers[choose_rows(len(numbers), samples, seed)]
    patients = np.unique([rows[number]["patientid"] for number in numbers], return_inverse=True)[1]
    parts = split_rows(len(numbers), validation=validation, test=test, seed=seed, groups=patients)
    in_validation, in_test = (np.isin(np.arange(len(numbers)), part) for part in parts[1:])
    dataset = build_dataset(
        "covid-cxr",
        resize_images(images[numbers][:, None], wanted),
        _filled(labels[numbers], chosen, parts[0]),
        [_variable(name, views) for name in chosen],
        validation=in_validation,
        test=in_test,
        seed=seed,
        fields={"patient": patients, "row": numbers},
    )
    return replace(dataset, notes=(*notes, f"splits: by patient, {len(np.unique(patients))} of them"))


def _variable(name: str, views: str) -> Variable:
    column = COLUMNS[name]
    categories = column.categories[:-1] if name == "view" and views == "frontal" else column.categories  # "lateral" is the last
    return Variable(name, column.kind, column.unit, categories)


def _filled(labels: np.ndarray, names: Sequence[str], training: np.ndarray) -> np.ndarray:
    """(N, n) with what is missing replaced by the training rows' median or most frequent value."""
    out = labels.copy()
    for i, name in enumerate(names):
        empty = np.isnan(labels[:, i])
        if not empty.any():
            continue
        known = labels[training, i][~np.isnan(labels[training, i])]
        if len(known) == 0:
            raise DataError(f"column {name!r} has no value in the training split; leave it out.")
        values, counts = np.unique(known, return_counts=True)
        out[empty, i] = np.median(known) if COLUMNS[name].kind == "continuous" else values[counts.argmax()]
    return out


def _codes(rows: Sequence[dict[str, str]], name: str) -> list[float]:
    path = Path(TABLE)
    if name not in rows[0]:
        HOME.broken(path, f"has no column {name!r}")
    codes = []
    for number, row in enumerate(rows):
        try:
            codes.append(COLUMNS[name].code(row[name] or ""))
        except ValueError:
            HOME.broken(path, f"has on line {number + 2} {row[name]!r} as {name!r}, which is none of its values")
    return codes


def _read() -> tuple[np.ndarray, list[dict[str, str]]]:
    """The pictures (N, 224, 224) uint8 and as many rows of the table."""
    at, table_at = HOME.need(ARRAYS), HOME.need(TABLE)
    with open_npz(HOME, at) as arrays:
        images, covid = read_array(arrays("images")), read_array(arrays("covid"))
    if images.ndim != 3 or images.dtype != np.uint8:
        HOME.broken(at, f"has images of {images.dtype} {images.shape} where uint8 (N, H, W) are expected")
    with HOME.reading(table_at):
        rows = list(csv.DictReader(io.StringIO(read_text(HOME, table_at, TABLE), newline="")))
    if len(rows) != len(images):
        HOME.broken(table_at, f"has {len(rows)} rows for the {len(images)} pictures of {at.name}")
    for column in ("patientid", "view", "covid"):
        if rows and column not in rows[0]:
            HOME.broken(table_at, f"has no column {column!r}")
    if [row["covid"] for row in rows] != [str(int(code)) for code in covid]:
        HOME.broken(table_at, f"does not have its rows in the order of {at.name}: the column 'covid' differs")
    return images, rows
