"""Cars3D (Reed et al. 2015, Deep Visual Analogy-Making): 183 cars, 24 azimuths, 4 elevations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.memory import check_memory
from intervae.data.pixel_arrays import Size, as_size, resize_images
from intervae.data.progress import progress
from intervae.data.readers.archives import open_npz
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.variables import Variable

SOURCE = FileSource(
    "Cars3D", "cars3d", "www.scottreed.info (nips2015-analogy-data.tar.gz, folder data/cars)"
)
FILE = "cars3d_64.npz"
AZIMUTHS, ELEVATIONS = 15.0 * np.arange(24), 6.0 * np.arange(4)  # degrees
VIEWS = len(AZIMUTHS) * len(ELEVATIONS)
CHUNK = 8  # cars read at a time


def cars3d(
    *,
    size: int | Sequence[int] = 64,
    samples: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Read the cars from cars3d_64.npz, or from the published *.mat files, one per car.

    Arguments:
        size: resize to this many pixels, square or (height, width).
        samples: number of images, drawn at random; default all.
        validation, test, seed: random splits.
    """
    target = as_size(size) or (64, 64)
    archive = SOURCE.find(FILE)
    images = _read_npz(archive, target) if archive is not None else _read_mats(_mats(), target)
    cars = len(images) // VIEWS
    car, azimuth, elevation = np.unravel_index(
        np.arange(len(images)), (cars, len(AZIMUTHS), len(ELEVATIONS))
    )
    labels = np.stack([car, AZIMUTHS[azimuth], ELEVATIONS[elevation]], axis=1)
    variables = (
        Variable("car", "categorical", categories=tuple(map(str, range(cars)))),
        Variable("azimuth", unit="degrees"),
        Variable("elevation", unit="degrees"),
    )
    if samples is not None:
        rows = choose_rows(len(images), samples, seed)
        images, labels = images[rows], labels[rows]
    return build_dataset(
        "cars3d", images, labels, variables, validation=validation, test=test, seed=seed
    )


def _read_npz(path: Path, size: Size) -> np.ndarray:
    """Return (N, 3, *size) uint8, the elevation changing fastest, then the azimuth."""
    with open_npz(SOURCE, path) as open_array:
        stored = open_array("images")
        views = (len(AZIMUTHS), len(ELEVATIONS))
        if (
            len(stored.shape) != 6
            or stored.shape[1:3] != views
            or stored.shape[5] != 3
            or stored.shape[0] < 1
            or stored.dtype != np.uint8
        ):
            SOURCE.raise_broken(
                path,
                f"has pictures of shape {stored.shape} and type {stored.dtype} "
                "where uint8 (cars, 24, 4, side, side, 3) is expected",
            )
        images = _allocate(stored.shape[0], size, path)
        count = -(-stored.shape[0] // CHUNK)
        for start, cars in progress(stored.chunks(CHUNK), count, "reading Cars3D"):
            chunk = np.ascontiguousarray(cars.reshape(-1, *cars.shape[3:]).transpose(0, 3, 1, 2))
            images[start * VIEWS : start * VIEWS + len(chunk)] = resize_images(chunk, size)
    return images


def _mats() -> list[Path]:
    """Return the *.mat files of the first folder that has some."""
    root = SOURCE.root(FILE) / SOURCE.folder
    folders = (root / "cars", root / "data" / "cars", root)
    paths = next(filter(None, (sorted(folder.glob("*.mat")) for folder in folders)), None)
    return paths or SOURCE.raise_missing(f"{FILE}, or folder cars of *.mat files,")


def _read_mats(paths: list[Path], size: Size) -> np.ndarray:
    """Return the same from files with an array `im` (side, side, 3, 24, 4) each."""
    from scipy.io import loadmat

    images = _allocate(len(paths), size, paths[0])
    for number, path in progress(enumerate(paths), len(paths), "reading Cars3D"):
        with SOURCE.reading(path):
            stored = np.asarray(loadmat(path, variable_names=["im"]).get("im", 0))
        if (
            stored.ndim != 5
            or stored.shape[2:] != (3, len(AZIMUTHS), len(ELEVATIONS))
            or stored.dtype != np.uint8
        ):
            SOURCE.raise_broken(
                path,
                f"has an array im of shape {stored.shape} and type {stored.dtype} "
                "where uint8 (side, side, 3, 24, 4) is expected",
            )
        chunk = np.ascontiguousarray(
            stored.transpose(3, 4, 2, 0, 1).reshape(VIEWS, 3, *stored.shape[:2])
        )
        images[number * VIEWS : (number + 1) * VIEWS] = resize_images(chunk, size)
    return images


def _allocate(cars: int, size: Size, path: Path) -> np.ndarray:
    check_memory(cars * VIEWS * 3 * size[0] * size[1], path.name, "pass a smaller size= (--size)")
    return np.empty((cars * VIEWS, 3, *size), np.uint8)
