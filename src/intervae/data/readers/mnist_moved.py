"""MNIST digits turned or shifted by a column of a table (CMCL, Mao et al. 2022, sec. 4.2 and App. E.3), from the files of MNIST."""

from __future__ import annotations

import numpy as np

from intervae.data.base import Dataset
from intervae.data.readers.mnist import HOME, SIDE, read_part
from intervae.data.simulators.moved_digits import DIGITS, SAMPLES, MovedDigits
from intervae.errors import UsageError


def mnist_rotation(
    *,
    size: int = SIDE,
    samples: int = SAMPLES,
    each: int = 1,
    first: int = 0,
    noise: float = 1.0,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Digits turned by 0.9 `angle`^2 + noise degrees, `angle` uniform in 0 to 10.

    Arguments:
        size: pixels, square.
        samples: how many pictures are made.
        each: how many pictures of each digit they are made of; the paper takes one.
        first: begin at this one of each digit's pictures, in the order of the training file.
        noise: standard deviation of what is added to the rotation, degrees.
        validation, test, seed: random splits; the seed draws the samples too.
    """
    simulator = MovedDigits(_digits(each, first), move="rotation", noise=noise)
    return simulator.dataset(size=_square(size), samples=samples, validation=validation, test=test, seed=seed, name="mnist-rotation")


def mnist_shift(
    *,
    size: int = SIDE,
    samples: int = SAMPLES,
    each: int = 1,
    first: int = 0,
    law: str = "linear",
    noise: float = 2.0**0.5,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Digits shifted down by `offset` + noise pixels (of 28), `offset` uniform in -5 to 5.

    Arguments:
        law: "linear" as the paper prints it, or "tanh", 6 tanh(offset / 3), which is not linear, as its theory asks for.
        noise: standard deviation of what is added, pixels; the paper adds N(0, 1) twice.
        size, samples, each, first, validation, test, seed: as in `mnist_rotation`.
    """
    simulator = MovedDigits(_digits(each, first), move="shift", law=law, noise=noise)
    return simulator.dataset(size=_square(size), samples=samples, validation=validation, test=test, seed=seed, name="mnist-shift")


def _digits(each: int, first: int) -> np.ndarray:
    """(10, each, 28, 28): pictures of each digit, in the order of the training file."""
    for option, value, least in (("each", each, 1), ("first", first, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{option}={value!r} must be a whole number, {least} or more.")
    images, digits = read_part("train")
    chosen = [images[digits == digit][first : first + each] for digit in range(DIGITS)]
    fewest = min(len(pictures) for pictures in chosen)
    if fewest < each:
        raise UsageError(f"each={each} pictures of every digit from the {first}th on are not in the training file of {HOME.title}; ask for fewer.")
    return np.stack(chosen)


def _square(size: int) -> int:
    if not isinstance(size, int):
        raise UsageError(f"size={size}: moved digits are square; give one number.")
    return size
