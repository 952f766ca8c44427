"""Cause-effect pairs for benchmarks/directions.py: simulated families and real tables.

A pair is (cause (N,), effect (N,)). A family draws another mechanism, cause distribution and noise
with every seed. "confounded" pairs have no direction: any is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.special import expit

from intervae.data.readers.sachs import load_sachs
from intervae.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]
Family = Callable[[np.random.Generator, int], Pair]


def scaled(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(axis=0)) / values.std(axis=0)


def smooth(x: np.ndarray, rng: np.random.Generator, width: float = 0.0) -> np.ndarray:
    """A random smooth function of x (N,) or (N, d): 60 random cosines."""
    x = x.reshape(len(x), -1)
    frequencies = rng.normal(size=(x.shape[1], 60)) / (width or rng.uniform(0.7, 3.0))
    return scaled(np.cos(x @ frequencies + rng.uniform(0, 2 * np.pi, 60)) @ rng.normal(size=60))


def cause(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Gaussian, uniform, gamma, two clusters, log-normal or a warped Gaussian."""
    kind = rng.integers(6)
    if kind == 1:
        return scaled(rng.uniform(-1, 1, rows))
    if kind == 2:
        return scaled(rng.gamma(rng.uniform(1, 8), size=rows))
    if kind == 3:
        centre = rng.choice([-1.0, 1.0], rows, p=[0.35, 0.65])
        return scaled(centre + rng.uniform(0.3, 0.6) * rng.normal(size=rows))
    normal = rng.normal(size=rows)
    if kind == 4:
        return scaled(np.exp(rng.uniform(0.2, 0.7) * normal))
    return scaled(normal + 0.7 * smooth(normal, rng)) if kind == 5 else normal


def noise(rng: np.random.Generator, rows: int) -> np.ndarray:
    kind = rng.integers(5)
    if kind == 2:
        return scaled(rng.uniform(-1, 1, rows))
    if kind == 3:
        return scaled(rng.laplace(size=rows))
    return scaled(rng.gamma(rng.uniform(2, 6), size=rows)) if kind == 4 else rng.normal(size=rows)


def function(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    kind = rng.integers(4)
    if kind == 0:
        return scaled(np.tanh(rng.uniform(0.7, 2) * (x - rng.uniform(-1, 1))))
    if kind == 1:
        return scaled(x + rng.uniform(0.2, 0.6) * rng.choice([-1, 1]) * x**2)
    return scaled(x + 0.3 * x**3) if kind == 2 else smooth(x, rng)


def level(rng: np.random.Generator) -> float:
    """Standard deviation of the noise, relative to that of the signal."""
    return float(np.exp(rng.uniform(np.log(0.15), 0.0)))


# ---- families ------------------------------------------------------------------------------------
def additive(rng: np.random.Generator, rows: int) -> Pair:
    x = cause(rng, rows)
    return x, function(x, rng) + level(rng) * noise(rng, rows)


def post_nonlinear(rng: np.random.Generator, rows: int) -> Pair:
    x, y = additive(rng, rows)
    y, kind = rng.choice([-1, 1]) * scaled(y), rng.integers(4)
    if kind == 0:
        return x, np.exp(rng.uniform(0.4, 1.0) * y)
    if kind == 1:
        return x, np.sign(y) * np.abs(y) ** rng.uniform(1.3, 3) + 0.1 * y
    if kind == 2:
        return x, np.arctan(rng.uniform(0.7, 2) * y)
    return x, np.log1p(np.exp(rng.uniform(1, 3) * y))


def heteroscedastic(rng: np.random.Generator, rows: int) -> Pair:
    x = cause(rng, rows)
    scale = level(rng) * np.exp(rng.uniform(0.2, 0.7) * function(x, rng))
    return x, function(x, rng) + scale * noise(rng, rows)


def linear_gaussian(rng: np.random.Generator, rows: int) -> Pair:
    x = rng.normal(size=rows)
    return x, x + 1.5 * level(rng) * rng.normal(size=rows)


def linear(rng: np.random.Generator, rows: int) -> Pair:
    x = cause(rng, rows)
    return x, x + level(rng) * noise(rng, rows)


def general(rng: np.random.Generator, rows: int) -> Pair:
    """y = f(x, e) with a random f: no noise model is right."""
    x, e = cause(rng, rows), rng.uniform(0.3, 1.0) * noise(rng, rows)
    y = smooth(np.stack([x, e], axis=1), rng, rng.uniform(1.0, 2.5))
    return x, y + 0.05 * rng.normal(size=rows)


def confounded(rng: np.random.Generator, rows: int) -> Pair:
    z = cause(rng, rows)
    x, y = (function(z, rng) + level(rng) * noise(rng, rows) for _ in range(2))
    return x, y


def additive_gaussian(rng: np.random.Generator, rows: int) -> Pair:
    x = rng.normal(size=rows)
    return x, function(x, rng) + level(rng) * rng.normal(size=rows)


def sigmoid(rng: np.random.Generator, rows: int) -> Pair:
    x = cause(rng, rows)
    inner = rng.uniform(0.8, 3) * (x - rng.uniform(-0.5, 0.5))
    return x, expit(inner + rng.uniform(0.2, 1.0) * rng.normal(size=rows))


def morpho_mnist(rng: np.random.Generator, rows: int) -> Pair:
    """Thickness and intensity of MorphoMNIST (Pawlowski et al. 2020)."""
    x = 0.5 + rng.gamma(10, 1 / 5, rows)
    return x, 64 + 191 * expit(2 * (x - 2.5) + 0.5 * rng.normal(size=rows))


def multiplicative(rng: np.random.Generator, rows: int) -> Pair:
    x = cause(rng, rows)
    x = x - x.min() + rng.uniform(0.1, 1)
    f = function(x / x.std(), rng)
    return x, (f - f.min() + 0.3) * np.exp(rng.uniform(0.1, 0.7) * noise(rng, rows))


def discretised(rng: np.random.Generator, rows: int) -> Pair:
    columns = [*(additive, post_nonlinear, general)[rng.integers(3)](rng, rows)]
    kind = rng.integers(3)  # the effect, the cause, both
    for i in (0, 1):
        if kind != i:
            step = rng.choice([0.1, 0.2, 0.5])
            columns[i] = np.round(scaled(columns[i]) / step) * step
    return columns[0], columns[1]


def measured_with_error(rng: np.random.Generator, rows: int) -> Pair:
    x, y = (additive, post_nonlinear, heteroscedastic)[rng.integers(3)](rng, rows)
    return (
        scaled(x) + rng.uniform(0.1, 0.5) * rng.normal(size=rows),
        scaled(y) + rng.uniform(0.0, 0.3) * rng.normal(size=rows),
    )


def confounded_cause(rng: np.random.Generator, rows: int) -> Pair:
    """x -> y with a hidden common cause: the direction is right, the model is not."""
    z = cause(rng, rows)
    x = scaled(function(z, rng) + noise(rng, rows))
    y = function(x, rng) + rng.uniform(0.2, 0.8) * function(z, rng)
    return x, y + level(rng) * noise(rng, rows)


FITTED: tuple[Family, ...] = (
    additive,
    post_nonlinear,
    heteroscedastic,
    linear_gaussian,
    linear,
    general,
    confounded,
)
HELD_OUT: tuple[Family, ...] = (
    additive_gaussian,
    sigmoid,
    morpho_mnist,
    multiplicative,
    discretised,
    measured_with_error,
    confounded_cause,
)
ROWS = (200, 400, 800)


def simulated(families: tuple[Family, ...], seeds: range) -> Iterator[tuple[str, Pair]]:
    """Yield (family, pair), of 200, 400 or 800 rows."""
    for family in families:
        for seed in seeds:
            rng = np.random.default_rng([seed, *family.__name__.encode()])
            yield family.__name__, family(rng, int(rng.choice(ROWS)))


# ---- real tables ---------------------------------------------------------------------------------
def tuebingen(folder: Path) -> Iterator[tuple[str, Pair]]:
    """Yield (pair0001, pair) of a folder of the public cause-effect pairs (Mooij et al. 2016).

    `pairmeta.txt` has lines of number, first and last column of the cause, first and last column
    of the effect, weight; `pairNNNN.txt` the rows. Pairs of more than one column are skipped.
    """
    for line in (folder / "pairmeta.txt").read_text().splitlines():
        words = line.split()
        if len(words) < 5:
            continue
        number, columns = words[0], [int(word) for word in words[1:5]]
        if columns[0] != columns[1] or columns[2] != columns[3]:
            continue
        path = folder / f"pair{int(number):04d}.txt"
        if not path.is_file():
            raise DataError(f"{path}: there is no such file; pairmeta.txt names it.")
        table = np.loadtxt(path, ndmin=2)
        yield path.stem, (table[:, columns[0] - 1], table[:, columns[2] - 1])


def sachs(_: Path) -> Iterator[tuple[str, Pair]]:
    """Yield (cause -> effect, pair) of the 17 edges of the consensus graph; 853 baseline cells.

    The logarithm of the intensities is used, as usual for flow cytometry.
    """
    table = load_sachs()
    columns = np.log(table.columns)
    for first, second, _ in table.graph.edges:
        yield (
            f"{first} -> {second}",
            (columns[:, table.graph.index(first)], columns[:, table.graph.index(second)]),
        )


def real_tables() -> tuple[dict[str, list[tuple[str, Pair]]], dict[str, str]]:
    """Return the real pairs by table, and the reason for each table that is missing."""
    root = os.environ.get("INTERVAE_DATA", "")
    tables, skipped = {}, {}
    for name, reader, needed in (
        ("tuebingen", tuebingen, "pairmeta.txt"),
        ("sachs", sachs, "sachs.npz"),
    ):
        folder = Path(root) / name
        if not root:
            skipped[name] = "INTERVAE_DATA is not set"
        elif not (folder / needed).is_file():
            skipped[name] = f"INTERVAE_DATA has no {name}/{needed}"
        else:
            tables[name] = list(reader(folder))
    return tables, skipped
