"""Cars3D (Reed et al. 2015, Deep Visual Analogy-Making): 183 car models, each from 24 azimuths and 4 elevations, on white."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import Size, as_size, check_memory, progress, resize_images
from intervae.data.readers.files import Home, choose_rows, open_npz

HOME = Home("Cars3D", "cars3d", "www.scottreed.info (nips2015-analogy-data.tar.gz, folder data/cars)")
FILE = "cars3d_64.npz"
AZIMUTHS, ELEVATIONS = 15.0 * np.arange(24), 6.0 * np.arange(4)  # degrees
VIEWS = len(AZIMUTHS) * len(ELEVATIONS)
AT_ONCE = 8  # cars


def cars3d(*, size: int | Sequence[int] = 64, samples: int | None = None, validation: float = 0.1, test: float = 0.2, seed: int = 0) -> Dataset:
    """Read the cars: cars3d_64.npz, or else the published *.mat files, one a car.

    Arguments:
        size: make the pictures this many pixels, square or (height, width).
        samples: keep only this many pictures, drawn at random.
        validation, test, seed: random splits.
    """
    wanted = as_size(size) or (64, 64)
    packed = HOME.find(FILE)
    images = _read_npz(packed, wanted) if packed is not None else _read_mats(_mats(), wanted)
    car, azimuth, elevation = np.unravel_index(np.arange(len(images)), (len(images) // VIEWS, len(AZIMUTHS), len(ELEVATIONS)))
    labels = np.stack([car, AZIMUTHS[azimuth], ELEVATIONS[elevation]], axis=1)
    names = tuple(map(str, range(len(images) // VIEWS)))
    variables = (Variable("car", "categorical", categories=names), Variable("azimuth", unit="degrees"), Variable("elevation", unit="degrees"))
    if samples is not None:
        rows = choose_rows(len(images), samples, seed)
        images, labels = images[rows], labels[rows]
    return build_dataset("cars3d", images, labels, variables, validation=validation, test=test, seed=seed)


def _read_npz(path: Path, size: Size) -> np.ndarray:
    """(N, 3, *size) uint8, the elevation changing fastest, then the azimuth."""
    with open_npz(HOME, path) as array:
        stored = array("images")
        views = (len(AZIMUTHS), len(ELEVATIONS))
        if len(stored.shape) != 6 or stored.shape[1:3] != views or stored.shape[5] != 3 or stored.shape[0] < 1 or stored.dtype != np.uint8:
            HOME.broken(path, f"has pictures of shape {stored.shape} and type {stored.dtype} where uint8 (cars, 24, 4, side, side, 3) is expected")
        images = _room(stored.shape[0], size, path)
        for start, cars in progress(stored.rows(AT_ONCE), -(-stored.shape[0] // AT_ONCE), "reading Cars3D"):
            pictures = np.ascontiguousarray(cars.reshape(-1, *cars.shape[3:]).transpose(0, 3, 1, 2))
            images[start * VIEWS : start * VIEWS + len(pictures)] = _resized(pictures, size)
    return images


def _mats() -> list[Path]:
    root = HOME.root(FILE) / HOME.folder
    found = [sorted(folder.glob("*.mat")) for folder in (root / "cars", root / "data" / "cars", root)]
    return next(filter(None, found), None) or HOME.missing(f"{FILE}, or folder cars of *.mat files,")


def _read_mats(paths: list[Path], size: Size) -> np.ndarray:
    """The same from files with an array `im` (side, side, 3, 24, 4) each."""
    from scipy.io import loadmat

    images = _room(len(paths), size, paths[0])
    for number, path in progress(enumerate(paths), len(paths), "reading Cars3D"):
        with HOME.reading(path):
            stored = np.asarray(loadmat(path, variable_names=["im"]).get("im", 0))
        if stored.ndim != 5 or stored.shape[2:] != (3, len(AZIMUTHS), len(ELEVATIONS)) or stored.dtype != np.uint8:
            HOME.broken(path, f"has an array im of shape {stored.shape} and type {stored.dtype} where uint8 (side, side, 3, 24, 4) is expected")
        pictures = np.ascontiguousarray(stored.transpose(3, 4, 2, 0, 1).reshape(VIEWS, 3, *stored.shape[:2]))
        images[number * VIEWS : (number + 1) * VIEWS] = _resized(pictures, size)
    return images


def _room(cars: int, size: Size, path: Path) -> np.ndarray:
    check_memory(cars * VIEWS * 3 * size[0] * size[1], path.name, "pass a smaller size= (--size)")
    return np.empty((cars * VIEWS, 3, *size), np.uint8)


def _resized(pictures: np.ndarray, size: Size) -> np.ndarray:
    return pictures if pictures.shape[2:] == size else resize_images(pictures, size)
