"""Codes of samples that share one factor, for the beta-VAE and FactorVAE scores.

They are rows of a table (`TableSampler`) or new images from a simulator (`SimulatorSampler`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.codes_and_factors import (
    CodesAndFactors,
    as_finite_array,
    check_codes_and_factors,
)
from intervae.metrics.disentanglement import require_two_factors

PROBE_SAMPLES = 1000  # simulated samples that determine the shape of the codes and best dims

Representation = Callable[[Any], Any]  # images -> codes (N, d) or (N, n, k)
Sample = Callable[[np.ndarray], Any]  # factors (N, m) -> images
Draw = Callable[[int, np.random.Generator], np.ndarray]  # n, rng -> factors (n, m)


class FactorSampler(Protocol):
    samples: CodesAndFactors
    parameters: dict[str, Any]
    n: int  # rows of the table, or images simulated so far

    def pairs(
        self, index: np.ndarray, batch: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each factor in index (P,): codes of `batch` pairs that share it.

        The result is two arrays (P, batch, d).
        """

    def groups(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
        """For each factor in index (P,): codes of `batch` samples that share its value.

        The result is (P, batch, d).
        """


class _ValueGroups(NamedTuple):
    """Rows grouped by the value of one factor; all arrays but the last are (N,)."""

    order: np.ndarray  # rows sorted by value
    place: np.ndarray  # position of each row in that order
    start: np.ndarray  # where the group of each row starts in that order
    size: np.ndarray  # size of the group of each row
    shared: np.ndarray  # rows in groups of two or more

    @classmethod
    def of(cls, classes: np.ndarray) -> _ValueGroups:
        order = np.argsort(classes, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        count = np.bincount(classes)
        return cls(
            order,
            place,
            (np.cumsum(count) - count)[classes],
            count[classes],
            np.flatnonzero(count[classes] > 1),
        )


class TableSampler:
    """Sampler of rows of a table that share the value of a factor."""

    def __init__(self, samples: CodesAndFactors, bins: int) -> None:
        require_two_factors(samples, "this score")
        self.samples = samples
        self.value_groups: list[_ValueGroups] = []
        for name, classes in zip(samples.factor_names, samples.classes(bins).T, strict=True):
            groups = _ValueGroups.of(classes)
            if not len(groups.shared):
                raise DataError(
                    f"no two rows share a value of factor {name!r}; "
                    "pass kinds='continuous' to cut it into bins, or more samples."
                )
            self.value_groups.append(groups)
        single = {
            name: count
            for name, groups in zip(samples.factor_names, self.value_groups, strict=True)
            if (count := len(samples) - len(groups.shared))
        }
        self.parameters = {
            **samples.parameters,
            **({} if all(samples.discrete) else {"bins": bins}),
            **({"rows_left_out": single} if single else {}),
        }
        self.n = len(samples)

    def pairs(
        self, index: np.ndarray, batch: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        first = np.empty((len(index), batch), dtype=np.int64)
        second = np.empty_like(first)
        for f in np.unique(index):
            points, groups = np.flatnonzero(index == f), self.value_groups[f]
            rows = rng.choice(groups.shared, (len(points), batch))
            count, start = groups.size[rows], groups.start[rows]
            # a random step to another row of the same group
            step = 1 + (rng.random(rows.shape) * (count - 1)).astype(np.int64)
            first[points] = rows
            second[points] = groups.order[start + (groups.place[rows] - start + step) % count]
        return self.samples.codes[first], self.samples.codes[second]

    def groups(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
        rows = np.empty((len(index), batch), dtype=np.int64)
        for f in np.unique(index):
            points, groups = np.flatnonzero(index == f), self.value_groups[f]
            anchor = rng.choice(groups.shared, (len(points), 1))
            drawn = (rng.random((len(points), batch)) * groups.size[anchor]).astype(np.int64)
            rows[points] = groups.order[groups.start[anchor] + drawn]
        return self.samples.codes[rows]


class SimulatorSampler:
    """Sampler of new images with independent factors, one of which is fixed."""

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
            raise UsageError(
                f"images_at_once is {images_at_once}, but at least one image at a time is needed."
            )
        self._represent, self._sample, self._images_at_once = representation, sample, images_at_once
        self._factors = factors if callable(factors) else as_finite_array(factors, "factors")
        if not callable(self._factors) and self._factors.ndim != 2:
            raise DataError(
                f"factors have shape {self._factors.shape}, but a table (rows, factors) "
                "or a function (n, rng) is needed."
            )
        self.n = 0
        probe = self.draw(PROBE_SAMPLES, np.random.default_rng([seed, 2]))
        self.samples = check_codes_and_factors(
            self._codes(probe), probe, names=names, kinds=None, dims=dims
        )
        require_two_factors(self.samples, "this score")
        self.parameters: dict[str, Any] = (
            self.samples.reduction.parameters if self.samples.reduction else {}
        )

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw factors (n, m)."""
        if callable(self._factors):
            # a copy, as `pairs` and `groups` overwrite columns
            drawn = as_finite_array(self._factors(n, rng), "factors").copy()
            if drawn.ndim != 2 or len(drawn) != n:
                raise DataError(
                    f"factors(n={n}, rng) returned shape {drawn.shape}, but ({n}, factors) "
                    "is needed."
                )
            return drawn
        return np.stack([rng.choice(column, n) for column in self._factors.T], axis=1)

    def encode(self, factors: np.ndarray) -> np.ndarray:
        """Return codes (..., d) of images of factors (..., m)."""
        codes = self._codes(factors.reshape(-1, factors.shape[-1]))
        codes = codes if self.samples.reduction is None else self.samples.reduction(codes)
        return codes.reshape(*factors.shape[:-1], -1)

    def pairs(
        self, index: np.ndarray, batch: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        first, second = (
            self.draw(len(index) * batch, rng).reshape(len(index), batch, -1) for _ in range(2)
        )
        points = np.arange(len(index))
        second[points, :, index] = first[points, :, index]
        return self.encode(first), self.encode(second)

    def groups(self, index: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
        factors = self.draw(len(index) * batch, rng).reshape(len(index), batch, -1)
        points = np.arange(len(index))
        factors[points, :, index] = factors[points, :1, index]
        return self.encode(factors)

    def _codes(self, factors: np.ndarray) -> np.ndarray:
        chunks = [
            factors[i : i + self._images_at_once]
            for i in range(0, len(factors), self._images_at_once)
        ]
        codes = np.concatenate(
            [as_finite_array(self._represent(self._sample(chunk)), "codes") for chunk in chunks]
        )
        self.n += len(factors)
        if len(codes) != len(factors):
            raise DataError(
                f"{len(factors)} factors gave {len(codes)} codes; "
                "sample and representation must return one row for each."
            )
        return codes
