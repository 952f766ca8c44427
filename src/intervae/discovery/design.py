"""A table made ready for regressions of every variable on all others: what enters, what is predicted, and which variable each column stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from intervae.errors import DataError

MOST_CATEGORIES = 50
SMALLEST_SHARE = 1e-10  # of a column's variance that the others leave unexplained, below which it is their linear combination


@dataclass(frozen=True)
class Design:
    """Columns as they enter and leave the mechanisms of n variables.

    A categorical variable enters as one centred column per category and leaves as one logit each; any other is one column.

    Arguments:
        inputs: (N, P) centred; each variable's columns have a total variance of 1 where the table is standardised.
        owner: (P,) the variable each input column belongs to.
        targets: (N, O) continuous values as they enter, 0 / 1 of a binary variable, one-hot of a categorical one.
        node: (O,) the variable each output belongs to.
        kinds: (n,) continuous, binary or categorical.
    """

    inputs: np.ndarray
    owner: np.ndarray
    targets: np.ndarray
    node: np.ndarray
    kinds: tuple[str, ...]


def design(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str], *, standardise: bool) -> Design:
    """Encode (N, n) checked columns; without `standardise` continuous ones keep their units and are only centred."""
    inputs: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for name, kind, column in zip(names, kinds, columns.T, strict=True):
        if kind == "categorical":
            hot = one_hot(name, column)
            targets.append(hot)
        elif kind == "binary":
            hot = (column[:, None] == column.max()).astype(np.float64)
            if len(np.unique(column)) != 2:
                raise DataError(f"column {name!r} is said to be binary but has {len(np.unique(column))} values; call it continuous or categorical.")
            targets.append(hot)
        else:
            hot = column[:, None]
            targets.append(_centred(hot, standardise))
        inputs.append(_centred(hot, standardise))
    owner = np.repeat(np.arange(len(names)), [block.shape[1] for block in inputs])
    node = np.repeat(np.arange(len(names)), [block.shape[1] for block in targets])
    return Design(np.concatenate(inputs, axis=1), owner, np.concatenate(targets, axis=1), node, tuple(kinds))


def one_hot(name: str, column: np.ndarray) -> np.ndarray:
    """(N,) codes to (N, K) of 0 and 1; at most MOST_CATEGORIES, for what is seen once or twice cannot be learned."""
    levels, codes = np.unique(column, return_inverse=True)
    if len(levels) > MOST_CATEGORIES:
        raise DataError(
            f"column {name!r} has {len(levels)} categories in {len(column)} rows; merge the rare ones ({MOST_CATEGORIES} at most) "
            "or, if it is a quantity, call it continuous."
        )
    return np.eye(len(levels))[codes]


def _centred(block: np.ndarray, standardise: bool) -> np.ndarray:
    centred = block - block.mean(axis=0)
    return centred / np.sqrt(centred.var(axis=0).sum()) if standardise else centred


def refuse_collinear(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Refuse columns that are linear combinations of others: then the edges among them have no answer."""
    chosen = [i for i, kind in enumerate(kinds) if kind != "categorical"]
    if len(columns) <= len(chosen):
        raise DataError(f"{len(columns)} rows for {len(chosen)} columns leave nothing to judge a graph by; give more rows than columns.")
    found = linear_combination(columns, names, kinds)
    if found is not None:
        raise DataError(f"{found}; leave it out.")


def refuse_same_categories(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Refuse a categorical column that says the same as another one in other words or numbers: either could be the cause."""
    twins = same_categories(columns, kinds)
    if twins is not None:
        one, other = names[twins[0]], names[twins[1]]
        raise DataError(f"column {other!r} says the same as {one!r}, each value of one going with one value of the other; leave one of them out.")


def linear_combination(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]) -> str | None:
    """The first column that is a linear combination of those before it, in words; None where there is none. Categories are left out."""
    chosen = [i for i, kind in enumerate(kinds) if kind != "categorical"]
    scaled = (columns[:, chosen] - columns[:, chosen].mean(axis=0)) / columns[:, chosen].std(axis=0)
    left = np.abs(np.diagonal(np.linalg.qr(scaled, mode="r"))) ** 2 / len(scaled)  # variance of each that those before it leave
    bad = np.flatnonzero(left < SMALLEST_SHARE)
    if not len(bad):
        return None
    target = int(bad[0])
    weights = np.linalg.lstsq(scaled[:, :target], scaled[:, target], rcond=None)[0]
    others = [names[chosen[j]] for j in np.flatnonzero(np.abs(weights) > 1e-6)]
    return f"column {names[chosen[target]]!r} is a linear combination of {', '.join(map(repr, others))}"


def same_categories(columns: np.ndarray, kinds: Sequence[str]) -> tuple[int, int] | None:
    """The first two columns, at least one of them categorical, of which each tells the other; None where there are none."""
    levels = [len(np.unique(column)) for column in columns.T]
    for one, other in combinations(range(len(kinds)), 2):
        few = levels[one] == levels[other] <= MOST_CATEGORIES  # more are refused by themselves
        if few and "categorical" in (kinds[one], kinds[other]) and len(np.unique(columns[:, [one, other]], axis=0)) == levels[one]:
            return one, other
    return None


def unsettled(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]) -> tuple[str, ...]:
    """The note of a method that takes linear combinations, for labels that are functions of each other without any noise."""
    found = linear_combination(columns, names, kinds)
    return () if found is None else (f"{found}: which of them are causes may be a guess; leave it out unless it is an effect without noise.",)
