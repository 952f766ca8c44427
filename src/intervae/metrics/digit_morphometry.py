"""Thickness, slant and intensity of digit pictures (Morpho-MNIST, Castro et al. 2019, sec. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from intervae.data import Variable
from intervae.data.stroke_morphology import (
    SCALE,
    enlarging_weights,
    measure_images,
    medial_axis_table,
)
from intervae.data.threads import map_rows
from intervae.errors import DataError
from intervae.metrics.image_similarity import as_float_images
from intervae.metrics.variable_regressor import VariableRegressor
from intervae.settings import check_whole

LARGEST_SCALE = 64


class Morphometry(NamedTuple):
    """Measured attributes, (N,) each; nan where a picture is empty.

    Arguments:
        thickness: mean thickness of the strokes in pixels of the picture.
        slant: shear angle in degrees, positive to the right.
        intensity: median of the pixels at least half as bright as the brightest, 0 to 255.
    """

    thickness: np.ndarray
    slant: np.ndarray
    intensity: np.ndarray


def morphometry(images: Any, *, scale: int = SCALE) -> Morphometry:
    """Measure thickness, slant and intensity of bright strokes on a dark ground.

    Arguments:
        images: (N, 1, H, W), uint8 or floats in [0, 1].
        scale: enlargement for the thickness; that of the published data is 16, and 4 is four times
            as fast, with a difference of about 0.07 pixels.

    Thickness is 2 x mean distance to the background on the medial axis. Slant is the arctangent of
    the shear -u11 / u02 from the central moments. A picture with one grey value has no thickness
    (nan), a black one nothing at all.
    """
    check_whole(2, scale=scale)
    if scale > LARGEST_SCALE:
        raise DataError(f"scale={scale} is too large; use at most {LARGEST_SCALE}, such as 16.")
    array = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
    if array.ndim != 4 or array.shape[1] != 1 or not array.size:
        raise DataError(
            f"digits are measured on images (N, 1, H, W) with one channel, not on {array.shape}."
        )
    pixels = np.ascontiguousarray(255 * as_float_images(array)[:, 0])
    measured = np.empty((len(pixels), 3))
    weights, table = enlarging_weights(scale), medial_axis_table()

    def measure(rows: slice) -> None:
        measure_images(pixels[rows], weights, table, measured[rows])

    map_rows(measure, len(pixels), "Measuring digits")
    thickness, shear, intensity = measured.T
    return Morphometry(thickness, np.degrees(np.arctan(-shear)), intensity)


class MorphometryRegressor(VariableRegressor):
    """Morphometry as a reader of the variables that have its names; an empty picture reads 0.

    Arguments:
        variables: of any names; `thickness`, `slant` and `intensity` are read.
    """

    def __init__(self, variables: Sequence[Variable], *, scale: int = SCALE) -> None:
        self.variables = tuple(v for v in variables if v.name in Morphometry._fields)
        self.scale = scale

    @property
    def training_images(self) -> int:
        return 0

    def __call__(self, images: Any) -> np.ndarray:
        measured = morphometry(images, scale=self.scale)
        return np.stack([np.nan_to_num(getattr(measured, name)) for name in self.names], axis=1)
