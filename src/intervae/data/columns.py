"""Which column of a table is continuous, binary or categorical: inferred by a short rule, shown, and overridable.

The rule, in this order, for every column that `kinds=` does not name:
    1. two different values (0/1, yes/no, female/male, 20/40): binary, coded 0 and 1 in numerical or alphabetical order;
    2. numbers: continuous, even whole ones with few values;
    3. text with fewer than two rows per value on average (an id, a free text): left out, with a note;
    4. other text: categorical, coded in alphabetical order.
A column is one of numbers when more than half of its rows are; a text among them is an error, not a category.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from intervae.data.base import KINDS, Dataset, Kind, Variable
from intervae.errors import DataError, UsageError, unknown

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "<na>"})  # compared in lower case; "none" may be a category
TRUTH_WORDS = (frozenset({"no", "yes"}), frozenset({"false", "true"}), frozenset({"n", "y"}), frozenset({"f", "t"}))
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
LARGEST = float(np.finfo(np.float32).max)  # labels are kept as 32-bit floats
FOLLOWS = 0.999  # R^2 with which others explain a column, above which a person is told


@dataclass(frozen=True)
class Columns:
    """The chosen columns as labels (N, n), their variables (scale not yet measured), and a note on each decision."""

    labels: np.ndarray
    variables: tuple[Variable, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ColumnDescription:
    """One line of the table a person is shown: what a column is taken for and why."""

    name: str
    kind: Kind
    values: str
    decided: str


def describe_columns(dataset: Dataset) -> list[ColumnDescription]:
    """The variables of a data set with their kind, range or categories, and how that was decided."""
    rows = []
    for variable in dataset.variables:
        prefix = _note(variable.name, "")
        decided = next((note.removeprefix(prefix) for note in dataset.notes if note.startswith(prefix)), "given by the data set")
        if variable.categories:
            values = listed(variable.categories)
        elif variable.kind == "continuous":
            values = f"{variable.low:.4g} to {variable.high:.4g}" + (f" {variable.unit}" if variable.unit else "")
        else:
            values = ", ".join(str(code) for code in range(round(variable.high) + 1))
        rows.append(ColumnDescription(variable.name, variable.kind, values, decided))
    return rows


def decide_columns(
    table: Mapping[str, np.ndarray],
    *,
    rows: int,
    where: Callable[[int], str],
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    not_variables: Sequence[str] = (),
) -> Columns:
    """Turn the columns of a table into labels and variables.

    Arguments:
        table: name -> (N,) numbers, bools or text.
        rows: N, needed when there is no column.
        where: row number -> how an error names that row, such as `labels.csv, line 3`.
        variables: the columns to use, in this order; all of them without it.
        kinds: name -> kind, where the rule is to be overridden.
        not_variables: columns with another use (a group, a split), taken only when `variables` names them.
    """
    check_variables(variables, table)
    _check_kinds(kinds, table)
    chosen = [name for name in table if name not in not_variables] if variables is None else list(variables)
    labels, made, notes = [], [], []
    for name in chosen:
        column = _Column.read(name, table[name], where)
        kind, decided = _decide(column, (kinds or {}).get(name))
        if kind is None:
            if variables is not None:
                raise DataError(
                    f'column {name!r} is {decided}; leave it out of variables= (--variables), or pass kinds={{"{name}": "categorical"}} (--kind).'
                )
            notes.append(_note(name, f"left out, {decided}"))
            continue
        codes, categories = _encode(column, kind)
        if categories:
            decided += ": " + listed([f"{category} = {code}" for code, category in enumerate(categories)])
        labels.append(codes)
        made.append(Variable(name, kind, categories=categories))
        notes.append(_note(name, decided))
    values = np.stack(labels, axis=1) if labels else np.zeros((rows, 0))
    return Columns(values, tuple(made), (*notes, *_that_follow(values, made)))


@dataclass(frozen=True)
class _Column:
    """A column by its different values: their texts, their numbers (NaN where a text is none), and each row's value."""

    name: str
    texts: np.ndarray  # (d,) str
    numbers: np.ndarray  # (d,) float
    rows: np.ndarray  # (N,) index into texts
    where: Callable[[int], str]

    @classmethod
    def read(cls, name: str, raw: np.ndarray, where: Callable[[int], str]) -> _Column:
        if raw.dtype.kind in "biuf":
            numbers, rows = np.unique(raw.astype(np.float64), return_inverse=True)
            texts = np.array([_number_text(x) for x in numbers], dtype=object)
        else:
            stripped = np.array([str(value).strip() for value in raw], dtype=object)
            texts, rows = _same_truth_words(*np.unique(stripped, return_inverse=True))
            numbers = np.array([_number(text) for text in texts])
        column = cls(name, texts, numbers, rows.reshape(-1), where)
        column._check_finite()
        return column

    def _check_finite(self) -> None:
        missing = np.array([text.lower() in MISSING for text in self.texts], dtype=bool)
        if missing.any():
            without = int(missing[self.rows].sum())
            if without == len(self.rows):
                raise DataError(f"column {self.name!r} has no value in any row; fill it in, or leave it out with variables= (--variables).")
            more = f" ({without} of {len(self.rows)} rows)" if without > 1 else ""
            raise DataError(
                f"{self.place(missing)}: {self.name!r} has no value{more}; fill it in, remove the row, or leave it out with variables= (--variables)."
            )
        infinite = np.abs(self.numbers) > LARGEST
        if infinite.any():
            raise DataError(f"{self.place(infinite)}: {self.name!r} is {self.text(infinite)}; every label must be a finite number.")

    def first(self, which: np.ndarray) -> int:
        """The first row whose value is among `which` (d,) bool."""
        return int(np.flatnonzero(which[self.rows])[0])

    def place(self, which: np.ndarray) -> str:
        return self.where(self.first(which))

    def text(self, which: np.ndarray) -> str:
        return str(self.texts[self.rows[self.first(which)]])

    @property
    def is_number(self) -> np.ndarray:
        return ~np.isnan(self.numbers)

    @property
    def distinct(self) -> int:
        """How many values differ; 1 and 1.0 are the same number."""
        return len(np.unique(self.numbers)) if self.is_number.all() else len(self.texts)

    def require_numbers(self) -> None:
        if not self.is_number.all():
            text = ~self.is_number
            raise DataError(
                f"{self.place(text)}: {self.name!r} is {self.text(text)!r}, which is not a number; "
                f'correct it, pass kinds={{"{self.name}": "categorical"}} (--kind) if it is meant as text, or leave the column out with variables= '
                "(--variables)."
            )


def _decide(column: _Column, asked: str | None) -> tuple[Kind | None, str]:
    """The kind and the reason; None for a column that is an id or free text."""
    if column.distinct < 2:
        value = column.texts[0] if len(column.texts) else "nothing"
        raise DataError(
            f"column {column.name!r} is {value!r} in every row, so nothing can be learned of it; leave it out with variables= (--variables)."
        )
    if asked is not None:
        return asked, "given in kinds"  # type: ignore[return-value]
    rows = len(column.rows)
    if column.is_number[column.rows].sum() * 2 > rows:
        column.require_numbers()
        return ("binary", "two values") if column.distinct == 2 else ("continuous", "numbers")
    if column.distinct == 2:
        return "binary", "two values"
    commas = np.array([bool(DECIMAL_COMMA.fullmatch(text)) for text in column.texts], dtype=bool)
    if commas[column.rows].sum() * 2 > rows:
        raise DataError(
            f"{column.place(commas)}: {column.name!r} is {column.text(commas)!r}, a number with a decimal comma; write decimal points, as in "
            f'{column.text(commas).replace(",", ".")!r}, or pass kinds={{"{column.name}": "categorical"}} (--kind) if it is meant as text.'
        )
    if column.distinct * 2 > rows:
        return None, f"text with {column.distinct} different values in {rows} rows, so an id or free text"
    return "categorical", f"text with {column.distinct} values"


def _encode(column: _Column, kind: Kind) -> tuple[np.ndarray, tuple[str, ...]]:
    """The column as numbers (N,), and the names of the codes; plain numbers and a 0/1 column need none."""
    if kind == "continuous":
        column.require_numbers()
        return column.numbers[column.rows], ()
    if kind == "binary" and column.distinct != 2:
        raise DataError(
            f"column {column.name!r} has {column.distinct} different values, so it cannot be binary; pass "
            f'kinds={{"{column.name}": "categorical"}} (--kind).'
        )
    if column.is_number.all():
        values, codes = np.unique(column.numbers, return_inverse=True)
        categories = tuple(_number_text(value) for value in values)
    else:
        texts = [str(text) for text in column.texts]
        categories = tuple(sorted(texts, key=lambda text: (text.casefold(), text)))
        codes = np.array([categories.index(text) for text in texts])
    plain = kind == "binary" and categories == ("0", "1")
    return codes[column.rows].astype(np.float64), () if plain else categories


def check_variables(variables: Sequence[str] | None, known: Iterable[str]) -> None:
    """Refuse a `variables=` argument that is not a list of different known names."""
    if isinstance(variables, str):
        raise UsageError(f"variables={variables!r} must be a list of names, such as variables=[{variables!r}].")
    names = list(known)
    for name in variables or ():
        if name not in names:
            raise unknown("variable", name, names)
    if variables is not None and len(set(variables)) != len(variables):
        raise UsageError(f"variables={list(variables)} names one twice; give each once.")


def _check_kinds(kinds: Mapping[str, str] | None, known: Iterable[str]) -> None:
    names = list(known)
    for name, kind in (kinds or {}).items():
        if name not in names:
            raise unknown("variable in kinds= (--kind)", name, names)
        if kind not in KINDS:
            raise unknown(f"kind for {name!r}", kind, KINDS)


def _same_truth_words(texts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Yes, yes and YES are one value where a column holds nothing but yes and no (or true and false, y and n, t and f)."""
    lowered = np.array([text.lower() for text in texts], dtype=object)
    if not any(set(lowered) <= words for words in TRUTH_WORDS):
        return texts, rows
    merged, index = np.unique(lowered, return_inverse=True)
    return merged, index[rows]


def _number(text: str) -> float:
    """The number a text says, NaN when it says none; Python's 1_000 is none."""
    try:
        return float("nan") if "_" in text else float(text)
    except ValueError:
        return float("nan")


def _number_text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


# ---- columns that follow from others ------------------------------------------------------------------------------------
def _that_follow(labels: np.ndarray, variables: Sequence[Variable]) -> list[str]:
    """A note on each column that others explain, up to rounding: the last such, then what is left without it, so that a pair is told once."""
    spread = labels.std(axis=0)
    chosen = [i for i, variable in enumerate(variables) if variable.kind != "categorical" and spread[i] > 0]
    if len(labels) <= 2 * len(chosen):
        return []  # so few rows are explained by anything
    scaled = (labels[:, chosen] - labels[:, chosen].mean(axis=0)) / spread[chosen]
    correlations, notes = scaled.T @ scaled / len(scaled), []
    while len(chosen) > 1 and (found := np.flatnonzero(_unexplained(correlations) < 1 - FOLLOWS)).size:
        target = int(found[-1])
        others = listed([repr(variables[chosen[j]].name) for j in _explaining(correlations, target)])
        notes.append(
            f"columns: {variables[chosen[target]].name!r} follows from {others} (linear, R^2 above {FOLLOWS}), and what is found of one may be due "
            "to another; leave one of them out with variables= (--variables)"
        )
        chosen.pop(target)
        correlations = np.delete(np.delete(correlations, target, 0), target, 1)
    return notes[::-1]


def _unexplained(correlations: np.ndarray) -> np.ndarray:
    """(n, n) to the share (n,) of each column's variance that all others leave; 1e-9 or so for an exact combination."""
    return 1 / np.diagonal(np.linalg.inv(correlations + 1e-9 * np.eye(len(correlations))))


def _explaining(correlations: np.ndarray, target: int) -> list[int]:
    """The fewest columns that explain `target`, taken in the order of their weights when all of them do."""
    others = np.delete(np.arange(len(correlations)), target)
    known = correlations[np.ix_(others, others)] + 1e-9 * np.eye(len(others))
    heaviest = others[np.argsort(-np.abs(np.linalg.solve(known, correlations[others, target])))]
    for most in range(1, len(others)):
        kept = [target, *heaviest[:most]]
        if _unexplained(correlations[np.ix_(kept, kept)])[0] < 1 - FOLLOWS:
            return sorted(kept[1:])
    return sorted(heaviest)


def _note(name: str, decided: str) -> str:
    return f"column {name!r}: {decided}"


def listed(items: Sequence[str], most: int = 6) -> str:
    """The first few of a list, and how many there are where that is not all."""
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown}, ... ({len(items)} in all)"
