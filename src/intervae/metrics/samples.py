"""Codes and factors as every disentanglement metric takes them: checked, named, each factor's kind known, vector-valued codes reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError, unknown

SMALLEST_N = 4  # rows; fewer say nothing about dependence
MOST_CLASSES = 64  # distinct whole numbers up to which a factor counts as discrete where its kind is not given
LARGEST = 1e50  # squares of larger numbers come near overflow, and solvers stop converging
SMALLEST = 1e-50  # a column with a smaller range is constant
ROUNDING = 1e-12  # a column that varies by a smaller share of its size is constant
DIMS = ("mean", "best", "each")
KINDS = ("discrete", "continuous")


@dataclass(frozen=True)
class Samples:
    """Paired rows of codes and factors.

    Arguments:
        codes: (N, d) what a model reads off the samples.
        factors: (N, m) the truth, no column constant.
        discrete: (m,) whether a factor is a class.
        reduction: how vector-valued codes became (N, d); None where they were plain.
    """

    codes: np.ndarray
    factors: np.ndarray
    code_names: tuple[str, ...]
    factor_names: tuple[str, ...]
    discrete: tuple[bool, ...]
    reduction: Reduction | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def parameters(self) -> dict[str, Any]:
        """What every metric's number depends on: the factors' kinds, and how vector-valued codes were reduced."""
        kinds = {name: KINDS[not discrete] for name, discrete in zip(self.factor_names, self.discrete, strict=True)}
        return {"kinds": kinds, **(self.reduction.parameters if self.reduction else {})}

    def classes(self, bins: int) -> np.ndarray:
        """(N, m) class numbers: a discrete factor's own values, a continuous factor cut into `bins` of equal width."""
        columns = []
        for name, column, discrete in zip(self.factor_names, self.factors.T, self.discrete, strict=True):
            labels = np.unique(column, return_inverse=True)[1] if discrete else equal_width(column, bins)
            if (labels == labels[0]).all():
                raise DataError(f"factor {name!r} is constant when cut into {bins} bins; give more bins or kinds='discrete'.")
            columns.append(labels)
        return np.stack(columns, axis=1)

    def take(self, rows: np.ndarray) -> Samples:
        return replace(self, codes=self.codes[rows], factors=self.factors[rows])


@dataclass(frozen=True)
class Reduction:
    """From vector-valued codes (N, n, k) to (N, d): the mean over the k dims, one chosen dim of each variable, or every dim on its own."""

    dims: str
    chosen: tuple[int, ...] = ()

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        if self.dims == "mean":
            return codes.mean(2)
        if self.dims == "each":
            return codes.reshape(len(codes), -1)
        return codes[:, np.arange(codes.shape[1]), list(self.chosen)]

    def names(self, variables: int, width: int) -> tuple[str, ...]:
        if self.dims == "each":
            return tuple(f"z{i}[{j}]" for i in range(variables) for j in range(width))
        return tuple(f"z{i}" for i in range(variables))

    @property
    def parameters(self) -> dict[str, Any]:
        return {"dims": self.dims, **({"chosen_dims": list(self.chosen)} if self.chosen else {})}


def read_samples(codes: Any, factors: Any, *, names: Sequence[str] | None, kinds: str | Sequence[str] | None, dims: str | None) -> Samples:
    """Check and name; the arguments are those of every metric.

    Arguments:
        codes: (N, d), or vector-valued (N, n, k) with `dims` given.
        factors: (N, m), or (N,) for one.
        names: of the factors; the columns of a data frame, or factor0, factor1, ...
        kinds: "discrete", "continuous", or one of them for each factor. Without it a factor is discrete where it holds at most 64 distinct
            whole numbers that come at least twice on average, else continuous.
        dims: for vector-valued codes: "mean" over a variable's dims; "best", the dim that shares most information with any one factor
            (chosen on these very samples, so a little flattering); or "each", all dims as codes of their own.
    """
    found = names if names is not None else getattr(factors, "columns", None)
    table = numbers(factors, "factors")
    table = table[:, None] if table.ndim == 1 else table
    values = numbers(codes, "codes")
    values = values[:, None] if values.ndim == 1 else values
    if table.ndim != 2 or values.ndim not in (2, 3) or 0 in table.shape or 0 in values.shape:
        raise DataError(f"codes {values.shape} and factors {table.shape} must be (samples, dims), or codes (samples, variables, dims) with dims=.")
    if len(table) != len(values):
        raise DataError(f"codes have {len(values)} rows and factors {len(table)}; they must be paired, row by row.")
    if len(table) < SMALLEST_N:
        raise DataError(f"at least {SMALLEST_N} samples are needed, but got {len(table)}; pass more.")
    table, values = _without_rounding(table), _without_rounding(values)
    labels = tuple(str(name) for name in (found if found is not None else (f"factor{i}" for i in range(table.shape[1]))))
    if len(labels) != table.shape[1] or len(set(labels)) != len(labels):
        raise UsageError(f"names must be {table.shape[1]} different ones, one for each factor, not {list(labels)}.")
    for name, column in zip(labels, table.T, strict=True):
        if (column == column[0]).all():
            raise DataError(f"factor {name!r} has the one value {column[0]:g} in these samples, so nothing can be said about it; leave it out.")
    samples = Samples(values, table, tuple(f"z{i}" for i in range(values.shape[1])), labels, _kinds(table, kinds))
    return _reduce(samples, dims)


def numbers(values: Any, name: str) -> np.ndarray:
    """`values` as float64, every one finite."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name} cannot be read as numbers ({error}); pass a numeric array or a detached tensor on the CPU.") from error
    good = np.abs(array) <= LARGEST
    if not good.all():
        bad = tuple(int(i) for i in np.argwhere(~good)[0])
        raise DataError(f"{name} hold {array[bad]} at index {bad}; every value must be a finite number below {LARGEST:g}.")
    return array


def _without_rounding(table: np.ndarray) -> np.ndarray:
    """A column (of the last axes) that varies by rounding alone becomes constant, for every metric alike."""
    steady = np.ptp(table, axis=0) <= np.maximum(ROUNDING * np.abs(table).max(0), SMALLEST)
    return np.where(steady, table[:1], table)


def equal_width(values: np.ndarray, bins: int) -> np.ndarray:
    """(N,) bin numbers from 0 of a cut into equally wide bins from the least to the largest value; a constant has one bin."""
    try:
        edges = np.histogram(values, bins)[1]
    except ValueError:  # the values differ by rounding alone
        return np.zeros(len(values), dtype=np.int64)
    return np.digitize(values, edges[:-1]) - 1


def mutual_information(a: np.ndarray, b: np.ndarray) -> float:
    """In nats, of two columns (N,) of class numbers from 0: the plug-in estimate, biased upwards by about (cells) / 2N."""
    width = int(b.max()) + 1
    counts = np.bincount(a * width + b, minlength=(int(a.max()) + 1) * width).reshape(-1, width).astype(np.float64)
    expected = counts.sum(1, keepdims=True) * counts.sum(0)  # whole numbers, so that a constant gives exactly 0
    filled = counts > 0
    return max(0.0, float((counts[filled] * np.log(counts[filled] * len(a) / expected[filled])).sum() / len(a)))


def information_matrix(samples: Samples, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Mutual information (d, m) of every code, cut into `bins` of equal width, with every factor; and the factors' entropies (m,); nats."""
    if bins < 2:
        raise UsageError(f"bins is {bins}, but at least 2 are needed; 20 is usual.")
    classes = samples.classes(bins)
    cut = [equal_width(column, bins) for column in samples.codes.T]
    matrix = np.array([[mutual_information(code, factor) for factor in classes.T] for code in cut])
    return matrix, np.array([mutual_information(factor, factor) for factor in classes.T])


def split(samples: Samples, test: Any, seed: int) -> tuple[Samples, Samples]:
    """Training and test rows: `test` is the fraction of rows to hold out at random, or (codes, factors) given apart."""
    if isinstance(test, tuple | list):
        codes, factors = numbers(test[0], "test codes"), numbers(test[1], "test factors")
        codes, factors = (array[:, None] if array.ndim == 1 else array for array in (codes, factors))
        if samples.reduction is not None and codes.ndim == 3:
            codes = samples.reduction(codes)
        if codes.shape != (len(factors), samples.codes.shape[1]) or factors.shape[1:] != samples.factors.shape[1:] or not len(codes):
            raise DataError(f"test codes {codes.shape} and factors {factors.shape} do not go with the training ones; the dims must be the same.")
        return samples, replace(samples, codes=codes, factors=factors)
    if not 0 < test < 1:
        raise UsageError(f"test is {test}, but it must be a fraction between 0 and 1, or (codes, factors).")
    held_out = max(1, round(test * len(samples)))
    rows = np.random.default_rng(seed).permutation(len(samples))
    training = samples.take(np.sort(rows[held_out:]))
    for name, column in zip(samples.factor_names, training.factors.T, strict=True):
        if not len(column) or (column == column[0]).all():
            raise DataError(f"factor {name!r} has one value in the {len(column)} training rows; pass more samples, another seed, or test=.")
    return training, samples.take(np.sort(rows[:held_out]))


def _kinds(table: np.ndarray, kinds: str | Sequence[str] | None) -> tuple[bool, ...]:
    if kinds is None:
        return tuple(_is_discrete(column) for column in table.T)
    given = [kinds] * table.shape[1] if isinstance(kinds, str) else list(kinds)
    for kind in given:
        if kind not in KINDS:
            raise unknown("kind of a factor", kind, KINDS)
    if len(given) != table.shape[1]:
        raise UsageError(f"kinds has {len(given)} entries for {table.shape[1]} factors; give one for each, or one word for all.")
    return tuple(kind == "discrete" for kind in given)


def _is_discrete(column: np.ndarray) -> bool:
    distinct = len(np.unique(column))
    return bool((column == np.round(column)).all()) and distinct <= min(MOST_CLASSES, len(column) // 2)


def _reduce(samples: Samples, dims: str | None) -> Samples:
    codes = samples.codes
    if dims is not None and dims not in DIMS:
        raise unknown("dims", dims, DIMS)
    if codes.ndim == 2:
        return samples
    if dims is None:
        raise UsageError(f"codes of shape {codes.shape} are vector-valued; say with dims={' or '.join(map(repr, DIMS))} how to reduce them.")
    variables, width = codes.shape[1:]
    reduction = Reduction(dims)
    if dims == "best":
        every = replace(samples, codes=codes.reshape(len(codes), -1))
        information, entropies = information_matrix(every, 20)
        shared = (information / entropies).max(1).reshape(variables, width)
        reduction = Reduction(dims, tuple(int(i) for i in shared.argmax(1)))
    return replace(samples, codes=reduction(codes), code_names=reduction.names(variables, width), reduction=reduction)
