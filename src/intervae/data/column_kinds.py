"""Kind of each column of a table: continuous, binary or categorical, perhaps ordered.

The rule, in this order, for every column that `kinds=` does not name:
    1. two different values (0/1, yes/no, female/male, 20/40): binary, coded 0 and 1 in numerical
       or alphabetical order;
    2. numbers: continuous; whole numbers with few values, which may be classes, get a note;
    3. text with fewer than two rows per value on average (an id, a free text): left out, with a
       note;
    4. other text: categorical, coded in alphabetical order.
Only `kinds=` orders categories, see ordered_categories.py.
A column with numbers in more than half of its rows is numeric; a text in it is an error.
Only cells that have a value count; a missing one (see `raw_column.MISSING`) becomes NaN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from intervae.data.collinear_columns import collinear_notes
from intervae.data.dataset import Dataset
from intervae.data.missing_labels import MISSING_LABELS
from intervae.data.ordered_categories import ORDINAL, encode_ordered, is_ordered
from intervae.data.raw_column import RawColumn, number_text
from intervae.data.variables import KINDS, Kind, Spec, Variable
from intervae.errors import DataError, UsageError, abbreviate, unknown
from intervae.notes import Note

FEW = 20  # whole numbers that may be classes
ROWS_PER_VALUE = 5  # at least, on average
FEW_VALUES = "few-whole-numbers"  # kind of the note
MAX_COLUMNS = 1000
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


@dataclass(frozen=True)
class Columns:
    """The chosen columns: labels (N, n), variables without scale, and a note per decision.

    A missing label is NaN.
    """

    labels: np.ndarray
    variables: tuple[Variable, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class ColumnDescription:
    """Name, kind and values of a variable, and the reason for its kind."""

    name: str
    kind: Kind
    values: str
    reason: str


def describe_columns(dataset: Dataset) -> list[ColumnDescription]:
    """Return kind, range or categories, and the reason for the kind, of each variable."""
    reasons = {note.subject: note.reason for note in dataset.notes if note.kind == "column-kind"}
    return [
        ColumnDescription(
            v.name, v.kind, v.describe_values(), reasons.get(v.name, "given by the data set")
        )
        for v in dataset.variables
    ]


def check_count(names: Sequence[object], option: str = "variables= (--variables)") -> None:
    """Raise a DataError for more columns than a graph or a network can have."""
    if len(names) > MAX_COLUMNS:
        raise DataError(
            f"{len(names)} columns are too many, at most {MAX_COLUMNS} can be variables; "
            f"choose some with {option}."
        )


def decide_columns(
    table: Mapping[str, np.ndarray],
    *,
    rows: int,
    where: Callable[[int], str],
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    not_variables: Sequence[str] = (),
    like: Spec | None = None,
) -> Columns:
    """Turn the columns of a table into labels and variables.

    Arguments:
        table: name -> (N,) numbers, bools or text.
        rows: N, needed for a table without columns.
        where: row number -> how an error names that row, such as `labels.csv, line 3`.
        variables: the columns to use, in this order; default all.
        kinds: name -> kind, "ordinal" or an order such as "small < medium < large", for columns to
            which the rule does not apply.
        not_variables: columns with another use (a group, a split), used only if `variables`
            names them.
        like: what a trained model knows: its variables are read, with their kinds and codes.
    """
    if like is not None:
        return _columns_like(table, like, rows, where)
    check_variables(variables, table)
    _check_kinds(kinds, table)
    default = [name for name in table if name not in not_variables]
    names = default if variables is None else list(variables)
    check_count(names)
    labels, results, notes = [], [], []
    for name in names:
        column = RawColumn.read(name, table[name], where)
        explicit = (kinds or {}).get(name)
        ordered = is_ordered(explicit)
        kind, reason = _decide_kind(column, "categorical" if ordered else explicit)
        if kind is None:
            if variables is not None:
                raise DataError(
                    f"column {name!r} is {reason}; leave it out of variables= (--variables), "
                    f'or pass kinds={{"{name}": "categorical"}} (--kind).'
                )
            notes.append(_note("column-left-out", name, f"left out, {reason}"))
            continue
        codes, categories = (
            encode_ordered(column, str(explicit)) if ordered else _encode(column, kind)
        )
        if categories:
            reason += ": " + abbreviate(
                [f"{category} = {code}" for code, category in enumerate(categories)]
            )
        labels.append(codes)
        results.append(Variable(name, kind, categories=categories, ordered=ordered))
        notes.append(_note("column-kind", name, reason))
        if kind == "continuous" and name not in (kinds or {}) and _has_few_whole_numbers(column):
            notes.append(_few_values_note(column))
        if text := column.describe_missing():
            notes.append(Note(MISSING_LABELS, name, text))
    values = np.stack(labels, axis=1) if labels else np.zeros((rows, 0))
    return Columns(values, tuple(results), (*notes, *collinear_notes(values, results)))


def _columns_like(
    table: Mapping[str, np.ndarray], like: Spec, rows: int, where: Callable[[int], str]
) -> Columns:
    """Return the columns that are the variables of `like`, coded as there."""
    labels, notes = [], []
    for variable in like.variables:
        if variable.name not in table:
            raise unknown("column of the trained model", variable.name, table, DataError)
        column = RawColumn.read(variable.name, table[variable.name], where)
        if variable.kind == "continuous":
            column.require_numbers()
            labels.append(column.spread(column.numbers))
        else:
            labels.append(column.spread(_codes_like(column, variable)))
        if text := column.describe_missing():
            notes.append(Note(MISSING_LABELS, variable.name, text))
    values = np.stack(labels, axis=1) if labels else np.zeros((rows, 0))
    return Columns(values, like.variables, tuple(notes))


def _codes_like(column: RawColumn, variable: Variable) -> np.ndarray:
    """Return the codes that a variable has for the values of a column."""
    words = variable.categories or tuple(str(code) for code in range(round(variable.high) + 1))
    texts = [
        number_text(column.numbers[i]) if column.is_number[i] else str(text)
        for i, text in enumerate(column.texts)
    ]
    for text in texts:
        if text not in words:
            raise unknown(f"category in the column {column.name!r}", text, words, DataError)
    return np.array([float(words.index(text)) for text in texts])


def _note(kind: str, name: str, reason: str) -> Note:
    return Note(kind, name, f"column {name!r}: {reason}", reason)


def _decide_kind(column: RawColumn, kind: str | None) -> tuple[Kind | None, str]:
    """Return the kind (None for an id or free text) and the reason; `kind` overrides the rule."""
    if column.distinct < 2:
        value = column.texts[0] if len(column.texts) else "nothing"
        which = "" if column.present.all() else " that has a value"
        raise DataError(
            f"column {column.name!r} is {value!r} in every row{which}, so nothing can be learned "
            "from it; leave it out with variables= (--variables)."
        )
    if kind is not None:
        return kind, "given in kinds"  # type: ignore[return-value]
    rows = len(column.rows)
    if column.is_number[column.rows].sum() * 2 > rows:
        column.require_numbers()
        if column.distinct == 2:
            return "binary", "two values"
        few = _has_few_whole_numbers(column)
        return "continuous", f"{column.distinct} whole numbers" if few else "numbers"
    if column.distinct == 2:
        return "binary", "two values"
    commas = np.array([bool(DECIMAL_COMMA.fullmatch(text)) for text in column.texts], dtype=bool)
    if commas[column.rows].sum() * 2 > rows:
        text = column.text(commas)
        raise DataError(
            f"{column.place(commas)}: {column.name!r} is {text!r}, a number with a decimal comma; "
            f"write decimal points, as in {text.replace(',', '.')!r}, or pass "
            f'kinds={{"{column.name}": "categorical"}} (--kind) if it is meant as text.'
        )
    if column.distinct * 2 > rows:
        values = f"{column.distinct} different values in {rows} rows"
        return None, f"text with {values}, so an id or free text"
    return "categorical", f"text with {column.distinct} values"


def _has_few_whole_numbers(column: RawColumn) -> bool:
    """Whether a numeric column may be classes: 3 to FEW whole numbers, each in several rows."""
    numbers = column.numbers
    return (
        3 <= column.distinct <= FEW
        and bool((numbers == np.round(numbers)).all())
        and column.distinct * ROWS_PER_VALUE <= len(column.rows)
    )


def _few_values_note(column: RawColumn) -> Note:
    low, high = number_text(column.numbers.min()), number_text(column.numbers.max())
    text = (
        f"column {column.name!r} has {column.distinct} whole numbers from {low} to {high} and is "
        "read as continuous; if they are classes, such as digits, pass --kind "
        f'{column.name}=categorical (kinds={{"{column.name}": "categorical"}}), or ordinal if '
        "their order matters"
    )
    return Note(FEW_VALUES, column.name, text, f"{column.distinct} whole numbers, {low} to {high}")


def _encode(column: RawColumn, kind: Kind) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the column as numbers (N,), and the words for its codes; none for 0 and 1."""
    if kind == "continuous":
        column.require_numbers()
        return column.spread(column.numbers), ()
    if kind == "binary" and column.distinct != 2:
        raise DataError(
            f"column {column.name!r} has {column.distinct} different values, so it cannot be "
            f'binary; pass kinds={{"{column.name}": "categorical"}} (--kind).'
        )
    if column.is_number.all():
        values, codes = np.unique(column.numbers, return_inverse=True)
        categories = tuple(number_text(value) for value in values)
    else:
        texts = [str(text) for text in column.texts]
        categories = tuple(sorted(texts, key=lambda text: (text.casefold(), text)))
        codes = np.array([categories.index(text) for text in texts])
    is_plain = kind == "binary" and categories == ("0", "1")
    return column.spread(codes.astype(np.float64)), () if is_plain else categories


def check_variables(variables: Sequence[str] | None, columns: Iterable[str]) -> None:
    """Raise an error unless `variables` is None or a list of different columns."""
    if isinstance(variables, str):
        raise UsageError(
            f"variables={variables!r} must be a list of names, such as variables=[{variables!r}]."
        )
    if variables is not None and not isinstance(variables, Iterable):
        raise UsageError(f"variables={variables!r} must be a list of names.")
    names = list(columns)
    for name in variables or ():
        if name not in names:
            raise unknown("variable", name, names)
    if variables is not None and len(set(variables)) != len(variables):
        raise UsageError(f"variables={list(variables)} names one twice; give each once.")


def _check_kinds(kinds: Mapping[str, str] | None, columns: Iterable[str]) -> None:
    """Raise an error unless `kinds` maps columns to known kinds."""
    names = list(columns)
    for name, kind in (kinds or {}).items():
        if name not in names:
            raise unknown("variable in kinds= (--kind)", name, names)
        if kind not in KINDS and not is_ordered(kind):
            known = (*KINDS, ORDINAL, "an order such as 'a < b < c'")
            raise unknown(f"kind for {name!r}", kind, known)
