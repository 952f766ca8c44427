"""MorphoMNIST of DeepSCM (Pawlowski et al. 2020, sec. 4.1): MNIST digits of given thickness.

thickness = 0.5 + Gamma(10, rate 5), intensity = 64 + 191 sigmoid(2 (thickness - 2.5) + 0.5 eps),
eps ~ N(0, 1), as published; digit and MNIST image are roots. With the image as noise every do() of
thickness and intensity has a true picture.
"""

from __future__ import annotations

import functools
import itertools
import time
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.special import expit

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.cache import checksum, read_cached, write_cached
from intervae.data.dataset import Dataset
from intervae.data.readers.file_source import choose_rows
from intervae.data.simulators.base import Simulator
from intervae.data.simulators.digit_morphing import measure_shears, morph_digits
from intervae.data.variables import Variable
from intervae.errors import DataError, RunError, UsageError
from intervae.files import CACHE_VARIABLE, cache_folder
from intervae.notes import Note

DIGITS = 10
SIDE = 28  # pixels
VERSION = 1  # of the pictures; increase it when they change, so that caches are made anew
DRAW = 2020  # seed of the attributes of the full data set
SLANT_MEAN, SLANT_STD = 7.0, 15.0  # degrees, about those of MNIST


class MorphoMnist(Simulator):
    """Variables `digit`, `thickness` (pixels), `intensity` (0 to 255), and `slant` if asked for.

    Noises: `image`, the row of the MNIST image, which also has the digit, and one noise for each
    other variable. The slant, a root of our own, is N(7, 15^2) degrees, positive to the right;
    without the variable every digit keeps its own slant.

    do(digit) has no unique true picture, as no image of another digit is the same handwriting. The
    rule here: the image of that digit, in the same part of MNIST, at the same quantile of the
    slant. Compare only its thickness and intensity with a model's.

    Arguments:
        images: (M, 28, 28) uint8.
        digits: (M,) 0 to 9.
        test: (M,) booleans, the images of the published test split.
        slant: whether the slant is a variable.
    """

    name: ClassVar[str] = "morpho-mnist"
    without_true_image: ClassVar[tuple[str, ...]] = ("digit",)

    def __init__(
        self, images: np.ndarray, digits: np.ndarray, test: np.ndarray, *, slant: bool = False
    ) -> None:
        if not isinstance(slant, bool):
            raise UsageError(f"slant={slant!r} must be true or false.")
        if images.ndim != 3 or images.dtype != np.uint8 or not len(images):
            raise DataError(
                "morpho-mnist is made of images (M, 28, 28) uint8, "
                f"not of {images.dtype} {images.shape}."
            )
        if not len(images) == len(digits) == len(test):
            raise DataError(
                f"morpho-mnist needs a digit and a split for each of its {len(images)} images, "
                f"not {len(digits)} and {len(test)}."
            )
        self.images, self.slant = images, slant
        self.digits, self.test = np.asarray(digits, np.intp), np.asarray(test, bool)
        variables = [
            Variable("digit", "categorical", categories=tuple(map(str, range(DIGITS)))),
            Variable("thickness", unit="pixels"),
            Variable("intensity", unit="grey levels"),
            *([Variable("slant", unit="degrees")] if slant else []),
        ]
        self.variables = tuple(variables)  # type: ignore[misc]
        self.graph = CausalGraph.from_edges(  # type: ignore[misc]
            [v.name for v in variables], [("thickness", "intensity")]
        )
        self.exogenous_names = ("image", *self.graph.names[1:])  # type: ignore[misc]

    # ---- mechanisms ------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, e): a training image at random, Gamma(10, rate 5), N(0, 1), and N(7, 15^2)."""
        return self._draw(rng.choice(np.flatnonzero(~self.test), n), rng)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Every MNIST image once, with one fixed draw of the attributes; MNIST's test images."""
        return self._draw(np.arange(len(self.images)), np.random.default_rng(DRAW)), self.test

    def _draw(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        n = len(image)
        columns = [image, rng.gamma(10.0, 1 / 5.0, n), rng.normal(size=n)]
        columns += [rng.normal(SLANT_MEAN, SLANT_STD, n)] if self.slant else []
        return np.stack(columns, axis=1)

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        if name == "digit":
            return self.digits[self._rows(exogenous["image"])].astype(np.float64)
        if name == "thickness":
            value = 0.5 + exogenous["thickness"]
        elif name == "intensity":
            logit = 2 * (values["thickness"] - 2.5) + 0.5 * exogenous["intensity"]
            value = 64 + 191 * expit(logit)
        else:
            value = exogenous[name]
        # as labels are stored, so that do() of a picture's own label changes no bit of it
        return value.astype(np.float32).astype(np.float64)

    # ---- images ----------------------------------------------------------------------------------
    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE
    ) -> np.ndarray:
        """Render variables (N, n) to images (N, 1, size, size) uint8, with a black border above 28.

        Without noises, each digit is its training image of median slant.
        """
        _check_size(size)
        table = self._values(values, size)
        digit = table[:, 0].astype(np.intp)
        if (digit != table[:, 0]).any() or (digit < 0).any() or (digit >= DIGITS).any():
            raise DataError("'digit' must be a whole number from 0 to 9.")
        if exogenous is None:
            rows = np.zeros(len(digit), np.intp)
            for d in np.unique(digit):
                rows[digit == d] = self._at_quantile(d, False, np.array([0.5]))
        else:
            noises = self._table(exogenous, self.exogenous_names, "noises")
            rows = self._with_digit(self._rows(noises[:, 0]), digit)
        pictures = morph_digits(self.images[rows], *table[:, 1:].T)
        return _with_border(pictures, size)

    def counterfactual(
        self, exogenous: np.ndarray, do: Do, *, size: int = SIDE
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images (N, 1, size, size) uint8 and variables (N, n) of the same noises under `do`."""
        return super().counterfactual(exogenous, do, size=size)

    def _rows(self, image: np.ndarray) -> np.ndarray:
        rows = image.astype(np.intp)
        if (rows != image).any() or (rows < 0).any() or (rows >= len(self.images)).any():
            raise DataError(
                f"the noise 'image' must be a whole number from 0 to {len(self.images) - 1}."
            )
        return rows

    @functools.cached_property
    def _by_slant(self) -> tuple[dict[tuple[int, bool], np.ndarray], np.ndarray]:
        """(digit, whether test) -> rows in the order of their slant, and their quantiles (M,)."""
        order = np.argsort(-measure_shears(self.images), kind="stable")
        ranked, quantiles = {}, np.empty(len(order))
        for key in itertools.product(range(DIGITS), (False, True)):
            rows = order[(self.digits[order] == key[0]) & (self.test[order] == key[1])]
            ranked[key] = rows
            quantiles[rows] = (np.arange(len(rows)) + 0.5) / max(len(rows), 1)
        return ranked, quantiles

    def _at_quantile(self, digit: int, test: bool, quantile: np.ndarray) -> np.ndarray:
        """Return the rows of a digit, in one part of MNIST, at quantiles (N,) of the slant."""
        rows = self._by_slant[0][digit, test]
        if not len(rows):
            part = "test" if test else "training"
            raise DataError(f"there is no image of the digit {digit} among the {part} images.")
        return rows[(quantile * len(rows)).astype(np.intp)]

    def _with_digit(self, rows: np.ndarray, digit: np.ndarray) -> np.ndarray:
        """Return images (N,) of these digits: the same, or those at the same quantile of slant."""
        result = rows.copy()
        other = self.digits[rows] != digit
        for d, test in itertools.product(np.unique(digit[other]), (False, True)):
            chosen = other & (digit == d) & (self.test[rows] == test)
            if chosen.any():
                result[chosen] = self._at_quantile(d, test, self._by_slant[1][rows[chosen]])
        return result

    # ---- data ------------------------------------------------------------------------------------
    def dataset(
        self,
        *,
        size: int = SIDE,
        samples: int | None = None,
        validation: float = 0.1,
        seed: int = 0,
    ) -> Dataset:
        """Return all digits, made once and cached, or a random subset, drawn on the fly.

        Arguments:
            samples: number of digits; default all.
            seed: of the subset and of the validation split. The attributes of an image and the test
                split are fixed.
        """
        _check_size(size)
        rows = choose_rows(len(self.images), samples, seed)
        exogenous, pictures, notes = self._pictures(None if samples is None else rows)
        values = self.simulate(exogenous)
        dataset = build_dataset(
            self.name,
            _with_border(pictures, size),
            values,
            self.variables,
            validation=validation,
            test=self.test[rows],
            seed=seed,
            fields={"exogenous": exogenous},
            graph=self.graph,
            simulator=self,
        )
        return replace(dataset, notes=notes)

    def _pictures(self, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, tuple[Note, ...]]:
        """Return noises (N, e), pictures (N, 28, 28) and notes, of some rows or (None) of all."""
        mnist = {"images": self.images, "digits": self.digits.astype(np.uint8), "test": self.test}
        key = {"version": VERSION, "mnist": checksum(mnist), "slant": self.slant}
        path = cache_folder() / f"{self.name}{'-slant' if self.slant else ''}.npz"
        arrays, problem = read_cached(path, key)
        if arrays is not None:
            chosen = slice(None) if rows is None else rows
            return arrays["exogenous"][chosen], arrays["pictures"][chosen], ()
        exogenous = self.published_grid()[0]
        if rows is not None:
            exogenous = exogenous[rows]
            return exogenous, self.render(self.simulate(exogenous), exogenous)[:, 0], ()
        start = time.monotonic()
        pictures = self.render(self.simulate(exogenous), exogenous)[:, 0]
        text = f"made {len(pictures):,} pictures of {self.name} in {time.monotonic() - start:.0f} s"
        if problem:
            text += f", because the cache {path} {problem}"
        try:
            write_cached(path, key, {"exogenous": exogenous, "pictures": pictures})
            text += f"; they are kept in {path}."
        except RunError as error:
            text += f"; they could not be kept for the next time: {str(error).removesuffix('.')} "
            text += f"(set {CACHE_VARIABLE} to a folder of your choice)."
        return exogenous, pictures, (Note("cache", str(path), text),)


def _check_size(size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < SIDE:
        raise UsageError(
            f"size={size!r}: morpho-mnist is {SIDE} x {SIDE} pixels; use {SIDE}, or a larger whole "
            "number for a black border."
        )


def _with_border(pictures: np.ndarray, size: int) -> np.ndarray:
    """Return (N, 28, 28) in the middle of (N, 1, size, size), black around."""
    before = (size - SIDE) // 2
    border = (before, size - SIDE - before)
    return np.pad(pictures, ((0, 0), border, border))[:, None]
