"""Codes of samples that share one factor: rows of a table, or new images from a simulator; for the scores in sampled.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.disentanglement import several_factors
from intervae.metrics.samples import Samples, numbers, read_samples

PROBE = 1000  # samples of a simulator that tell the shape of its codes, and the best dim of each variable

Representation = Callable[[Any], Any]  # images -> codes (N, d) or (N, n, k)
Sample = Callable[[np.ndarray], Any]  # factors (N, m) -> images
Draw = Callable[[int, np.random.Generator], np.ndarray]  # n, rng -> factors (n, m)


class Source(Protocol):
    samples: Samples
    parameters: dict[str, Any]
    n: int  # rows, or images made so far

    def pairs(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """For each factor number in index (P,), codes of `batch` pairs that share it: twice (P, batch, d)."""

    def alike(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
        """For each factor number in index (P,), codes of `batch` samples that all share one value of it: (P, batch, d)."""


class _Groups(NamedTuple):
    """Rows by the value of one factor; all arrays (N,) but the last."""

    order: np.ndarray  # rows sorted by value
    place: np.ndarray  # where each row stands in that order
    start: np.ndarray  # where the rows with the same value as this row start in it
    size: np.ndarray  # how many there are
    shared: np.ndarray  # the rows that are not alone with their value

    @classmethod
    def of(cls, classes: np.ndarray) -> _Groups:
        order = np.argsort(classes, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        count = np.bincount(classes)
        return cls(order, place, (np.cumsum(count) - count)[classes], count[classes], np.flatnonzero(count[classes] > 1))


class Rows:
    """Rows of a table, found by the value of a factor."""

    def __init__(self, samples: Samples, bins: int) -> None:
        several_factors(samples, "this score")
        self.samples = samples
        self.groups: list[_Groups] = []
        for name, classes in zip(samples.factor_names, samples.classes(bins).T, strict=True):
            groups = _Groups.of(classes)
            if not len(groups.shared):
                raise DataError(f"no two rows share a value of factor {name!r}; pass kinds='continuous' to cut it into bins, or more samples.")
            self.groups.append(groups)
        lone = {name: n for name, g in zip(samples.factor_names, self.groups, strict=True) if (n := len(samples) - len(g.shared))}
        cut = {} if all(samples.discrete) else {"bins": bins}
        self.parameters = {**samples.parameters, **cut, **({"rows_left_out": lone} if lone else {})}
        self.n = len(samples)

    def pairs(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        first = np.empty((len(index), batch), dtype=np.int64)
        second = np.empty_like(first)
        for f in np.unique(index):
            here, groups = np.flatnonzero(index == f), self.groups[f]
            rows = rng.choice(groups.shared, (len(here), batch))
            count, start = groups.size[rows], groups.start[rows]
            step = 1 + (rng.random(rows.shape) * (count - 1)).astype(np.int64)  # to another row with the same value
            first[here], second[here] = rows, groups.order[start + (groups.place[rows] - start + step) % count]
        return self.samples.codes[first], self.samples.codes[second]

    def alike(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
        rows = np.empty((len(index), batch), dtype=np.int64)
        for f in np.unique(index):
            here, groups = np.flatnonzero(index == f), self.groups[f]
            anchor = rng.choice(groups.shared, (len(here), 1))
            drawn = (rng.random((len(here), batch)) * groups.size[anchor]).astype(np.int64)
            rows[here] = groups.order[groups.start[anchor] + drawn]
        return self.samples.codes[rows]


class Simulated:
    """New images of factors that are drawn independently, then held."""

    def __init__(
        self,
        representation: Representation,
        sample: Sample,
        factors: np.ndarray | Draw,
        names: Sequence[str] | None,
        dims: str | None,
        images_at_once: int,
        seed: int,
    ) -> None:
        if images_at_once < 1:
            raise UsageError(f"images_at_once is {images_at_once}, but at least one image at a time is needed.")
        self._represent, self._sample, self._images_at_once = representation, sample, images_at_once
        self._factors = factors if callable(factors) else numbers(factors, "factors")
        if not callable(self._factors) and self._factors.ndim != 2:
            raise DataError(f"factors have shape {self._factors.shape}, but a table (rows, factors) or a function (n, rng) is needed.")
        self.n = 0
        probe = self.draw(PROBE, np.random.default_rng([seed, 2]))
        self.samples = read_samples(self._codes(probe), probe, names=names, kinds=None, dims=dims)
        several_factors(self.samples, "this score")
        self.parameters: dict[str, Any] = self.samples.reduction.parameters if self.samples.reduction else {}

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        if callable(self._factors):
            drawn = numbers(self._factors(n, rng), "factors").copy()  # its columns are set below
            if drawn.ndim != 2 or len(drawn) != n:
                raise DataError(f"factors(n={n}, rng) gave shape {drawn.shape}, but ({n}, factors) is needed.")
            return drawn
        return np.stack([rng.choice(column, n) for column in self._factors.T], axis=1)

    def encode(self, factors: np.ndarray) -> np.ndarray:
        """(..., m) factors to (..., d) codes."""
        codes = self._codes(factors.reshape(-1, factors.shape[-1]))
        codes = codes if self.samples.reduction is None else self.samples.reduction(codes)
        return codes.reshape(*factors.shape[:-1], -1)

    def pairs(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        first, second = (self.draw(len(index) * batch, rng).reshape(len(index), batch, -1) for _ in range(2))
        points = np.arange(len(index))
        second[points, :, index] = first[points, :, index]
        return self.encode(first), self.encode(second)

    def alike(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
        factors = self.draw(len(index) * batch, rng).reshape(len(index), batch, -1)
        points = np.arange(len(index))
        factors[points, :, index] = factors[points, :1, index]
        return self.encode(factors)

    def _codes(self, factors: np.ndarray) -> np.ndarray:
        parts = [factors[i : i + self._images_at_once] for i in range(0, len(factors), self._images_at_once)]
        codes = np.concatenate([numbers(self._represent(self._sample(part)), "codes") for part in parts])
        self.n += len(factors)
        if len(codes) != len(factors):
            raise DataError(f"{len(factors)} factors gave {len(codes)} codes; sample and representation must return one row for each.")
        return codes
