"""Ordered categories: stages I < II < III, small < medium < large, grades from 1 to 5.

`kinds={"grade": "ordinal"}` orders numbers by size. The order of texts is written out, as in
`kinds={"size": "small < medium < large"}`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from intervae.data.raw_column import RawColumn, number_text, parse_number
from intervae.data.variables import Variable
from intervae.errors import DataError, UsageError, abbreviate

ORDINAL = "ordinal"  # an entry of kinds=, not a kind of `Variable`
MARK = "<"


def is_ordered(kind: object) -> bool:
    """Whether an entry of kinds= is "ordinal" or an order such as "small < medium < large"."""
    return isinstance(kind, str) and (kind == ORDINAL or MARK in kind)


def split_order(order: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return the classes that an order names, lowest first.

    Spaces around `<` can be left out, unless one of the column's `values` holds a `<` itself, as
    in "<5 < 5 to 10 < >10".
    """
    mark = f" {MARK} " if any(MARK in value for value in values) else MARK
    return tuple(word.strip() for word in order.split(mark))


def encode_ordered(column: RawColumn, kind: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the column as codes (N,), and the words for its codes, lowest first."""
    name, values = column.name, [str(text) for text in column.texts]
    if column.is_number.all():  # 1 and 1.0 are the same number
        values = [number_text(number) for number in column.numbers]
    if column.distinct == 2:
        raise DataError(
            f"column {name!r} has two values, {' and '.join(dict.fromkeys(values))}, so it is "
            f'binary, not ordinal; pass kinds={{"{name}": "binary"}} (--kind {name}=binary).'
        )
    if kind != ORDINAL:
        words = _read_order(column, kind, values)
    elif column.is_number.all():
        words = tuple(number_text(number) for number in np.unique(column.numbers))
    else:
        is_text = ~column.is_number
        raise DataError(
            f"{column.place(is_text)}: {name!r} is {column.text(is_text)!r}, a text, whose order "
            f"must be written; pass the values ({abbreviate(values)}) from the lowest to the "
            f'highest, as in kinds={{"{name}": "a < b < c"}} (--kind "{name}=a < b < c").'
        )
    return column.spread(np.array([float(words.index(value)) for value in values])), words


def _read_order(column: RawColumn, order: str, values: list[str]) -> tuple[str, ...]:
    """Return the classes of an order, which must be the column's values, each of them once."""
    which = f"the order {order!r} of column {column.name!r}"
    words = split_order(order, values)
    if column.is_number.all():
        words = tuple(_plain_number(word) for word in words)
    for i, word in enumerate(words):
        if not word:
            raise UsageError(f"{which} has a class without a name; write it as in 'a < b < c'.")
        if word in words[:i]:
            raise UsageError(f"{which} names {word!r} twice; give each class once.")
    not_named = np.array([value not in words for value in values], dtype=bool)
    if column.is_number.all() and all(np.isnan(parse_number(word)) for word in words):
        raise DataError(
            f"column {column.name!r} holds numbers and {which} none; order them by size with "
            f'kinds={{"{column.name}": "{ORDINAL}"}} (--kind {column.name}={ORDINAL}).'
        )
    if not_named.any():
        raise DataError(
            f"{column.place(not_named)}: {column.name!r} is {column.text(not_named)!r}, which "
            f"{which} lacks; add it in kinds= (--kind), or correct the cell."
        )
    for word in words:
        if word not in values:
            raise DataError(
                f"{which} names {word!r}, which is in no row, so nothing can be learned about it; "
                "take it out of the order, or correct it."
            )
    return words


def _plain_number(word: str) -> str:
    """Return a number as the columns write it, 1 for 1.0; another text as it is."""
    number = parse_number(word)
    return word if np.isnan(number) else number_text(number)


def describe_kind(variable: Variable) -> str:
    """Return the entry of kinds= that gives the kind of a variable."""
    return variable.describe_values(len(variable.categories)) if variable.ordered else variable.kind


def has_kind(variable: Variable, kind: str) -> bool:
    """Whether an entry of kinds= is the kind, and the order, that a variable has."""
    if not variable.ordered or not is_ordered(kind):
        return kind == describe_kind(variable)
    words = split_order(kind, variable.categories)
    return kind == ORDINAL or tuple(map(_plain_number, words)) == variable.categories
