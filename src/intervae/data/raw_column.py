"""RawColumn: the distinct texts and numbers of a table column, before its kind is decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intervae.errors import DataError

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "<na>"})  # in lower case
TRUTH_WORDS = (
    frozenset({"no", "yes"}),
    frozenset({"false", "true"}),
    frozenset({"n", "y"}),
    frozenset({"f", "t"}),
)
LARGEST = float(np.finfo(np.float32).max)  # labels are stored as 32-bit floats


@dataclass(frozen=True)
class RawColumn:
    """A column of N rows, P of which have one of d distinct values; the others are missing.

    Arguments:
        texts: (d,) the distinct values as text.
        numbers: (d,) the same as floats, NaN where a text is not a number.
        rows: (P,) index into `texts`.
        present: (N,) mask of the rows that have a value.
        where: row number -> how an error names that row.
    """

    name: str
    texts: np.ndarray
    numbers: np.ndarray
    rows: np.ndarray
    present: np.ndarray
    where: Callable[[int], str]

    @classmethod
    def read(cls, name: str, values: np.ndarray, where: Callable[[int], str]) -> RawColumn:
        """Read (N,) numbers or texts; no value at all, or an infinite one, is an error."""
        if values.dtype.kind in "biuf":
            floats = values.astype(np.float64)
            present = ~np.isnan(floats)
            numbers, rows = np.unique(floats[present], return_inverse=True)
            texts = np.array([number_text(x) for x in numbers], dtype=object)
        else:
            stripped = np.array([str(value).strip() for value in values], dtype=object)
            present = np.array([text.lower() not in MISSING for text in stripped], dtype=bool)
            texts, rows = _merge_truth_words(*np.unique(stripped[present], return_inverse=True))
            numbers = np.array([parse_number(text) for text in texts])
        column = cls(name, texts, numbers, rows.reshape(-1), present, where)
        column._check_finite()
        return column

    def _check_finite(self) -> None:
        if len(self.present) and not self.present.any():
            raise DataError(
                f"column {self.name!r} has no value in any row; fill it in, "
                "or leave it out with variables= (--variables)."
            )
        is_infinite = np.abs(self.numbers) > LARGEST
        if is_infinite.any():
            raise DataError(
                f"{self.place(is_infinite)}: {self.name!r} is {self.text(is_infinite)}; "
                "every label must be a finite number."
            )

    def first_row(self, mask: np.ndarray) -> int:
        """Return the first row whose value is in `mask` (d,)."""
        return int(np.flatnonzero(self.present)[np.flatnonzero(mask[self.rows])[0]])

    def place(self, mask: np.ndarray) -> str:
        """Return how an error names the first row whose value is in `mask` (d,)."""
        return self.where(self.first_row(mask))

    def text(self, mask: np.ndarray) -> str:
        """Return the text of the first row whose value is in `mask` (d,)."""
        return str(self.texts[self.rows[np.flatnonzero(mask[self.rows])[0]]])

    def describe_missing(self) -> str:
        """Return where the first value is missing, and how many are; "" if none is."""
        rows = np.flatnonzero(~self.present)
        if not len(rows):
            return ""
        total = f" ({len(rows)} of {len(self.present)} rows)" if len(rows) > 1 else ""
        return f"{self.where(int(rows[0]))}: {self.name!r} has no value{total}"

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return numbers (N,) from one number for each distinct value (d,); NaN if missing."""
        numbers = np.full(len(self.present), np.nan)
        numbers[self.present] = values[self.rows]
        return numbers

    @property
    def is_number(self) -> np.ndarray:
        return ~np.isnan(self.numbers)

    @property
    def distinct(self) -> int:
        """The number of distinct values; 1 and 1.0 are the same number."""
        return len(np.unique(self.numbers)) if self.is_number.all() else len(self.texts)

    def require_numbers(self) -> None:
        """Raise an error if some value is not a number."""
        if not self.is_number.all():
            is_text = ~self.is_number
            raise DataError(
                f"{self.place(is_text)}: {self.name!r} is {self.text(is_text)!r}, which is not a "
                f'number; correct it, pass kinds={{"{self.name}": "categorical"}} (--kind) if it '
                "is meant as text, or leave the column out with variables= (--variables)."
            )


def _merge_truth_words(texts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge Yes, yes and YES in a column of nothing but yes and no (true and false, ...)."""
    lowered = np.array([text.lower() for text in texts], dtype=object)
    if not any(set(lowered) <= words for words in TRUTH_WORDS):
        return texts, rows
    merged, index = np.unique(lowered, return_inverse=True)
    return merged, index[rows]


def parse_number(text: str) -> float:
    """Return the number a text stands for, NaN if it is none; 1_000 is none."""
    try:
        return float("nan") if "_" in text else float(text)
    except ValueError:
        return float("nan")


def number_text(value: float) -> str:
    """Return 3 for 3.0, and the shortest exact decimal otherwise."""
    is_short = float(value).is_integer() and abs(value) < 1e15
    return str(int(value)) if is_short else repr(float(value))
