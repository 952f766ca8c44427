"""Checked codes and factors, the input of every disentanglement metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError, unknown
from intervae.metrics.binned_information import equal_width_bins, mutual_information

SMALLEST_N = 4  # rows; fewer show no dependence
MAX_CLASSES = 64  # distinct integers up to which a factor of unknown kind is discrete
LARGEST = 1e50  # squares of larger numbers come near overflow, and solvers stop converging
SMALLEST = 1e-50  # a column with a smaller range is constant
ROUNDING = 1e-12  # a column with a smaller relative range is constant
BEST_DIM_BINS = 20
DIMS = ("mean", "best", "each")
KINDS = ("discrete", "continuous")

Kinds = str | Sequence[str] | None


@dataclass(frozen=True)
class CodesAndFactors:
    """Paired rows of codes and factors.

    Arguments:
        codes: (N, d) latents of a model.
        factors: (N, m) true values, no column constant.
        discrete: (m,) whether a factor is a class.
        reduction: how vector-valued codes became (N, d); None for plain codes.
    """

    codes: np.ndarray
    factors: np.ndarray
    code_names: tuple[str, ...]
    factor_names: tuple[str, ...]
    discrete: tuple[bool, ...]
    reduction: CodeReduction | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def parameters(self) -> dict[str, Any]:
        """Kinds of the factors and reduction of the codes, for `Measurement.parameters`."""
        kinds = {
            name: KINDS[not discrete]
            for name, discrete in zip(self.factor_names, self.discrete, strict=True)
        }
        return {"kinds": kinds, **(self.reduction.parameters if self.reduction else {})}

    def classes(self, bins: int) -> np.ndarray:
        """Return class numbers (N, m); continuous factors are cut into `bins` of equal width."""
        columns = []
        for name, column, discrete in zip(
            self.factor_names, self.factors.T, self.discrete, strict=True
        ):
            labels = (
                np.unique(column, return_inverse=True)[1]
                if discrete
                else equal_width_bins(column, bins)
            )
            if (labels == labels[0]).all():
                raise DataError(
                    f"factor {name!r} is constant when cut into {bins} bins; "
                    "give more bins or kinds='discrete'."
                )
            columns.append(labels)
        return np.stack(columns, axis=1)

    def take(self, rows: np.ndarray) -> CodesAndFactors:
        return replace(self, codes=self.codes[rows], factors=self.factors[rows])


@dataclass(frozen=True)
class CodeReduction:
    """Map of vector-valued codes (N, n, k) to (N, d).

    Arguments:
        dims: "mean" over the k dims, "best" for one dim of each variable, "each" for all dims.
        chosen: (n,) the dim of each variable for "best".
    """

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


def check_codes_and_factors(
    codes: Any,
    factors: Any,
    *,
    names: Sequence[str] | None,
    kinds: Kinds,
    dims: str | None,
) -> CodesAndFactors:
    """Check the arguments that all disentanglement metrics share, and name the columns.

    Arguments:
        codes: (N, d), or vector-valued (N, n, k) with `dims`.
        factors: (N, m), or (N,) for a single one.
        names: of the factors; by default the columns of a data frame, or factor0, factor1, ...
        kinds: "discrete", "continuous", or a list with one of them for each factor. By default a
            factor is discrete if it has at most 64 distinct integer values, each of them at least
            twice on average.
        dims: reduction of vector-valued codes: "mean" over a variable's dims; "best", the dim with
            the most information on any one factor, chosen on these samples and so slightly
            optimistic; or "each", all dims as separate codes.
    """
    columns = names if names is not None else getattr(factors, "columns", None)
    table = as_finite_array(factors, "factors")
    table = table[:, None] if table.ndim == 1 else table
    values = as_finite_array(codes, "codes")
    values = values[:, None] if values.ndim == 1 else values
    if table.ndim != 2 or values.ndim not in (2, 3) or 0 in table.shape or 0 in values.shape:
        raise DataError(
            f"codes {values.shape} and factors {table.shape} must be (samples, dims), "
            "or codes (samples, variables, dims) with dims=."
        )
    if len(table) != len(values):
        raise DataError(
            f"codes have {len(values)} rows and factors {len(table)}; "
            "they must be paired, row by row."
        )
    if len(table) < SMALLEST_N:
        raise DataError(
            f"at least {SMALLEST_N} samples are needed, but got {len(table)}; pass more."
        )
    table, values = _remove_rounding(table), _remove_rounding(values)
    if columns is None:
        columns = [f"factor{i}" for i in range(table.shape[1])]
    factor_names = tuple(str(name) for name in columns)
    if len(factor_names) != table.shape[1] or len(set(factor_names)) != len(factor_names):
        raise UsageError(
            f"names must be {table.shape[1]} different ones, one for each factor, "
            f"not {list(factor_names)}."
        )
    for name, column in zip(factor_names, table.T, strict=True):
        if (column == column[0]).all():
            raise DataError(
                f"factor {name!r} has the single value {column[0]:g} in these samples, "
                "so it cannot be scored; leave it out."
            )
    code_names = tuple(f"z{i}" for i in range(values.shape[1]))
    samples = CodesAndFactors(values, table, code_names, factor_names, _discrete(table, kinds))
    return _reduce(samples, dims)


def as_finite_array(values: Any, name: str) -> np.ndarray:
    """Return `values` as float64; raise if any is not finite or exceeds LARGEST."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name} cannot be read as numbers ({error}); "
            "pass a numeric array or a detached tensor on the CPU."
        ) from error
    good = np.abs(array) <= LARGEST
    if not good.all():
        bad = tuple(int(i) for i in np.argwhere(~good)[0])
        raise DataError(
            f"{name} hold {array[bad]} at index {bad}; "
            f"every value must be a finite number below {LARGEST:g}."
        )
    return array


def _remove_rounding(table: np.ndarray) -> np.ndarray:
    """Make columns that vary only by rounding constant."""
    steady = np.ptp(table, axis=0) <= np.maximum(ROUNDING * np.abs(table).max(0), SMALLEST)
    return np.where(steady, table[:1], table)


def information_matrix(samples: CodesAndFactors, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mutual information (d, m) of codes and factors, and entropies (m,) of the factors.

    Both are in nats; codes and continuous factors are cut into `bins` of equal width.
    """
    if bins < 2:
        raise UsageError(f"bins is {bins}, but at least 2 are needed; 20 is usual.")
    classes = samples.classes(bins)
    codes = [equal_width_bins(column, bins) for column in samples.codes.T]
    matrix = np.array(
        [[mutual_information(code, factor) for factor in classes.T] for code in codes]
    )
    return matrix, np.array([mutual_information(factor, factor) for factor in classes.T])


def train_test_split(
    samples: CodesAndFactors, test: Any, seed: int
) -> tuple[CodesAndFactors, CodesAndFactors]:
    """Split into training and test rows.

    Arguments:
        test: fraction of rows to hold out at random, or separate (codes, factors).
    """
    if isinstance(test, tuple | list):
        return samples, _separate_test(samples, test)
    if not 0 < test < 1:
        raise UsageError(
            f"test is {test}, but it must be a fraction between 0 and 1, or (codes, factors)."
        )
    held_out = max(1, round(test * len(samples)))
    rows = np.random.default_rng(seed).permutation(len(samples))
    training = samples.take(np.sort(rows[held_out:]))
    for name, column in zip(samples.factor_names, training.factors.T, strict=True):
        if not len(column) or (column == column[0]).all():
            raise DataError(
                f"factor {name!r} has one value in the {len(column)} training rows; "
                "pass more samples, another seed, or test=."
            )
    return training, samples.take(np.sort(rows[:held_out]))


def _separate_test(samples: CodesAndFactors, test: Sequence[Any]) -> CodesAndFactors:
    codes = as_finite_array(test[0], "test codes")
    factors = as_finite_array(test[1], "test factors")
    codes, factors = (array[:, None] if array.ndim == 1 else array for array in (codes, factors))
    if samples.reduction is not None and codes.ndim == 3:
        codes = samples.reduction(codes)
    if (
        codes.shape != (len(factors), samples.codes.shape[1])
        or factors.shape[1:] != samples.factors.shape[1:]
        or not len(codes)
    ):
        raise DataError(
            f"test codes {codes.shape} and factors {factors.shape} do not match "
            "the training ones; the dims must be the same."
        )
    return replace(samples, codes=codes, factors=factors)


def _discrete(table: np.ndarray, kinds: Kinds) -> tuple[bool, ...]:
    if kinds is None:
        return tuple(_is_discrete(column) for column in table.T)
    per_factor = [kinds] * table.shape[1] if isinstance(kinds, str) else list(kinds)
    for kind in per_factor:
        if kind not in KINDS:
            raise unknown("kind of a factor", kind, KINDS)
    if len(per_factor) != table.shape[1]:
        raise UsageError(
            f"kinds has {len(per_factor)} entries for {table.shape[1]} factors; "
            "give one for each, or one word for all."
        )
    return tuple(kind == "discrete" for kind in per_factor)


def _is_discrete(column: np.ndarray) -> bool:
    distinct, max_classes = len(np.unique(column)), min(MAX_CLASSES, len(column) // 2)
    return bool((column == np.round(column)).all()) and distinct <= max_classes


def _reduce(samples: CodesAndFactors, dims: str | None) -> CodesAndFactors:
    codes = samples.codes
    if dims is not None and dims not in DIMS:
        raise unknown("dims", dims, DIMS)
    if codes.ndim == 2:
        return samples
    if dims is None:
        raise UsageError(
            f"codes of shape {codes.shape} are vector-valued; "
            f"reduce them with dims={' or '.join(map(repr, DIMS))}."
        )
    variables, width = codes.shape[1:]
    reduction = CodeReduction(dims)
    if dims == "best":
        every = replace(samples, codes=codes.reshape(len(codes), -1))
        information, entropies = information_matrix(every, BEST_DIM_BINS)
        shared = (information / entropies).max(1).reshape(variables, width)
        reduction = CodeReduction(dims, tuple(int(i) for i in shared.argmax(1)))
    return replace(
        samples,
        codes=reduction(codes),
        code_names=reduction.names(variables, width),
        reduction=reduction,
    )
