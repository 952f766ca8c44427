"""MNIST digits rotated or shifted by a table column (CMCL, Mao et al. 2022, sec. 4.2, App. E.3)."""

from __future__ import annotations

import numpy as np

from intervae.data.dataset import Dataset
from intervae.data.readers.mnist import SIDE, read_part
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
    """Rotate digits by 0.9 `angle`^2 + noise degrees, `angle` uniform in 0 to 10.

    Arguments:
        size: side of the square images in pixels.
        samples: number of images.
        each: number of MNIST images of each digit; the paper uses one.
        first: index of the first image of each digit, in the order of the training file.
        noise: standard deviation of the noise of the rotation, degrees.
        validation, test, seed: random splits; the seed also draws the samples.
    """
    simulator = MovedDigits(_digits(each, first), move="rotation", noise=noise)
    return simulator.dataset(
        size=_square(size),
        samples=samples,
        validation=validation,
        test=test,
        seed=seed,
        name="mnist-rotation",
    )


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
    """Shift digits down by `offset` + noise pixels (of 28), `offset` uniform in -5 to 5.

    Arguments:
        law: "linear" as in the paper, or "tanh" for 6 tanh(offset / 3), non-linear as the paper's
            theory requires.
        noise: standard deviation of the noise in pixels; the paper adds N(0, 1) twice.
        size, samples, each, first, validation, test, seed: as in `mnist_rotation`.
    """
    simulator = MovedDigits(_digits(each, first), move="shift", law=law, noise=noise)
    return simulator.dataset(
        size=_square(size),
        samples=samples,
        validation=validation,
        test=test,
        seed=seed,
        name="mnist-shift",
    )


def _digits(each: int, first: int) -> np.ndarray:
    """Return (10, each, 28, 28) images of each digit, in the order of the training file."""
    for option, value, minimum in (("each", each, 1), ("first", first, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise UsageError(f"{option}={value!r} must be a whole number, {minimum} or more.")
    images, digits = read_part("train")
    by_digit = [images[digits == digit][first : first + each] for digit in range(DIGITS)]
    if min(map(len, by_digit)) < each:
        raise UsageError(
            f"each={each} from first={first} exceeds the images of some digit; "
            "use a smaller each or first."
        )
    return np.stack(by_digit)


def _square(size: int) -> int:
    if not isinstance(size, int):
        raise UsageError(f"size={size}: moved digits are square; give one number.")
    return size
