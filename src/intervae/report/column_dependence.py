"""Dependence between the columns of a table: HSIC tests with Holm's correction, effect sizes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from intervae.data import Dataset, Variable
from intervae.discovery.base import random_rows
from intervae.discovery.design_matrix import one_hot
from intervae.discovery.kernels import CentredKernel, gaussian_kernel, hsic_p_value
from intervae.report.findings import rank_correlation

TESTED_ROWS = 500  # of the HSIC test, whose time grows with their square
SIGNIFICANT = 0.01  # corrected p-value of a dependence


@dataclass(frozen=True)
class ColumnDependence:
    """Dependence between two columns.

    Arguments:
        first, second: names.
        measure: "rank correlation", "correlation ratio" or "Cramér's V".
        size: value of the measure, between -1 and 1.
        p: p-value of independence by HSIC, corrected for the number of pairs (Holm).
    """

    first: str
    second: str
    measure: str
    size: float
    p: float


def column_dependences(data: Dataset, *, seed: int = 0) -> list[ColumnDependence]:
    """Test every pair of columns of the training split; the most dependent pair comes first."""
    labels = data.train.labels.double().cpu().numpy()
    rows = random_rows(labels, TESTED_ROWS, seed)
    kernels = [_kernel(column, v) for column, v in zip(rows.T, data.variables, strict=True)]
    testable = {i: kernel for i, kernel in enumerate(kernels) if kernel is not None}
    pairs = list(combinations(testable, 2))
    p_values = np.array([hsic_p_value(testable[i], testable[j]) for i, j in pairs])
    dependences = []
    for (i, j), p in zip(pairs, holm(p_values), strict=True):
        kinds = data.variables[i].kind, data.variables[j].kind
        measure, size = association(labels[:, i], labels[:, j], *kinds)
        names = data.names[i], data.names[j]
        dependences.append(ColumnDependence(*names, measure, size, float(p)))
    return sorted(dependences, key=lambda d: (d.p, -abs(d.size)))


def _kernel(column: np.ndarray, variable: Variable) -> CentredKernel | None:
    """Kernel of a column; None where it is constant or has too few rows for the test."""
    if column.std() == 0 or len(column) < 6:
        return None
    if variable.kind == "categorical":
        points = one_hot(variable.name, column)
    else:
        points = (column - column.mean()) / column.std()
    return CentredKernel.from_kernel(gaussian_kernel(points))


def holm(p: np.ndarray) -> np.ndarray:
    """Correct p-values (k,) for their number by Holm's step-down method."""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def association(a: np.ndarray, b: np.ndarray, kind_a: str, kind_b: str) -> tuple[str, float]:
    """Return the measure of association that suits the kinds of two columns, and its value."""
    if "categorical" not in (kind_a, kind_b):
        return "rank correlation", rank_correlation(a, b)
    if kind_a == kind_b or "binary" in (kind_a, kind_b):
        return "Cramér's V", cramers_v(a, b)
    groups, values = (a, b) if kind_a == "categorical" else (b, a)
    between = sum(
        (groups == g).mean() * (values[groups == g].mean() - values.mean()) ** 2
        for g in np.unique(groups)
    )
    return "correlation ratio", float(np.sqrt(between / max(values.var(), 1e-12)))


def cramers_v(a: np.ndarray, b: np.ndarray) -> float:
    """sqrt(chi^2 / (N (k - 1))), k the smaller number of categories."""
    counts = one_hot("", a).T @ one_hot("", b)
    expected = np.outer(counts.sum(1), counts.sum(0)) / len(a)
    degrees = min(counts.shape) - 1
    if not degrees:
        return 0.0
    return float(np.sqrt(((counts - expected) ** 2 / expected).sum() / (len(a) * degrees)))
